-- The same entries as before. Of `IN` with three values SQLite makes a table for every row that is
-- written, to look the state up in it: every enqueue, claim and settle paid for this one.

DROP INDEX {prefix}runs_finished;
CREATE INDEX {prefix}runs_finished ON {prefix}runs (state, finished_at)
    WHERE state = 'succeeded' OR state = 'dead' OR state = 'cancelled';
