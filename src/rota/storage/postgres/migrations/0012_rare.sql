-- Three indexes of states that few runs are in become one. A run that is enqueued is in none of them,
-- and yet each costs the enqueue: it is opened, and its condition made ready, with every statement.

CREATE INDEX runs_rare ON {prefix}runs (state, seq) WHERE state IN ('dead', 'cancelled', 'paused');
DROP INDEX {prefix}runs_dead;
DROP INDEX {prefix}runs_cancelled;
DROP INDEX {prefix}runs_paused;
