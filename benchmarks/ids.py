"""Ids of runs on PostgreSQL, which have a table of their own: for rows put in past the store."""

IDS = "rota_data.run_ids"
NAME_SINCE = f"INSERT INTO {IDS} (id, seq) SELECT id, seq FROM rota_data.runs WHERE seq > %s"
# Of rows that were put in after all that have one.
NAME_THE_REST = f"""
    INSERT INTO {IDS} (id, seq)
    SELECT id, seq FROM rota_data.runs WHERE seq > (SELECT coalesce(max(seq), 0) FROM {IDS})"""
