-- Who may use the HTTP API. Of a token only its hash is kept: it is shown once, when it is made.

CREATE TABLE {prefix}tokens (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    role       TEXT NOT NULL,
    hash       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    revoked_by TEXT
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX {prefix}tokens_name ON {prefix}tokens (name) WHERE revoked_at IS NULL;

-- What surfaces list: the few among many. Only who dies, is cancelled or is paused pays for these.
CREATE INDEX {prefix}runs_dead ON {prefix}runs (seq) WHERE state = 'dead';
CREATE INDEX {prefix}runs_cancelled ON {prefix}runs (seq) WHERE state = 'cancelled';
CREATE INDEX {prefix}schedules_broken ON {prefix}schedules (id) WHERE error IS NOT NULL;
CREATE INDEX {prefix}schedules_paused ON {prefix}schedules (id) WHERE paused = 1;
