"""Ids of runs on PostgreSQL, which have a table of their own: for rows put in past the store."""

IDS = "rota_data.run_ids"
NAME_THE_REST = f"""
    INSERT INTO {IDS} (seq, id)
    SELECT seq, id FROM rota_data.runs WHERE seq > (SELECT coalesce(max(seq), 0) FROM {IDS})"""
