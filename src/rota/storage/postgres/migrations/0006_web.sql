-- Who may use the HTTP API. Of a token only its hash is kept: it is shown once, when it is made.

CREATE TABLE {prefix}tokens (
    id         TEXT COLLATE "C" PRIMARY KEY,
    name       TEXT COLLATE "C" NOT NULL,
    role       TEXT NOT NULL,
    hash       TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    created_by TEXT NOT NULL,
    expires_at TIMESTAMPTZ,
    revoked_at TIMESTAMPTZ,
    revoked_by TEXT
);
CREATE UNIQUE INDEX tokens_name ON {prefix}tokens (name) WHERE revoked_at IS NULL;

-- What surfaces list: the few among many. Only who dies, is cancelled or is paused pays for these.
CREATE INDEX runs_dead ON {prefix}runs (seq) WHERE state = 'dead';
CREATE INDEX runs_cancelled ON {prefix}runs (seq) WHERE state = 'cancelled';
CREATE INDEX schedules_broken ON {prefix}schedules (id) WHERE error IS NOT NULL;
CREATE INDEX schedules_paused ON {prefix}schedules (id) WHERE paused;
