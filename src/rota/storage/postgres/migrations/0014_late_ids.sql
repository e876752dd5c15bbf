-- Who called rota.enqueue while the migration before this one was under way waited for it, and went on
-- in the function as it was when he called it: his run has no id in the table of ids yet.

LOCK TABLE {prefix}runs IN SHARE ROW EXCLUSIVE MODE;
INSERT INTO {prefix}run_ids (id, seq) SELECT id, seq FROM {prefix}runs ON CONFLICT DO NOTHING;
ANALYZE {prefix}run_ids;
