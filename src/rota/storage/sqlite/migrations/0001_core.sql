-- The core: jobs, schedules with their ledger, runs with their attempts, and who works on them.
-- Instants are whole microseconds since 1970 (UTC); durations are text such as '1h30m'.

CREATE TABLE {prefix}meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE {prefix}jobs (
    name        TEXT PRIMARY KEY,
    executor    TEXT NOT NULL,
    source      TEXT NOT NULL,
    origin      TEXT,
    spec        TEXT NOT NULL,
    args_schema TEXT NOT NULL,
    description TEXT NOT NULL,
    queue       TEXT NOT NULL,
    priority    INTEGER NOT NULL,
    timeout     TEXT,
    policies    TEXT NOT NULL,
    enabled     INTEGER NOT NULL,
    error       TEXT,
    version     TEXT NOT NULL,
    version_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- AUTOINCREMENT: the ledger outlives a dropped schedule, so an id is never given out again.
CREATE TABLE {prefix}schedules (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    name           TEXT NOT NULL UNIQUE,
    job            TEXT NOT NULL,
    kind           TEXT NOT NULL,
    expr           TEXT NOT NULL,
    timezone       TEXT NOT NULL,
    dst            TEXT NOT NULL,
    anchor         TEXT NOT NULL,
    next_fire_at   INTEGER,
    last_fired_at  INTEGER,
    enabled        INTEGER NOT NULL,
    paused         INTEGER NOT NULL,
    paused_by      TEXT,
    paused_at      INTEGER,
    paused_reason  TEXT,
    overlap        TEXT NOT NULL,
    overlap_key    TEXT,
    queue_max      INTEGER,
    on_error       TEXT NOT NULL,
    pause_after    INTEGER,
    catch_up       TEXT NOT NULL,
    catch_up_limit INTEGER NOT NULL,
    misfire_grace  TEXT NOT NULL,
    jitter         TEXT NOT NULL,
    spread         TEXT NOT NULL,
    first_run      INTEGER,
    starts_at      INTEGER,
    ends_at        INTEGER,
    args           TEXT NOT NULL,
    priority       INTEGER,
    retry          TEXT,
    owner          TEXT,
    created_at     INTEGER NOT NULL,
    state          TEXT,
    error          TEXT
) STRICT;
CREATE INDEX {prefix}schedules_due ON {prefix}schedules (next_fire_at)
    WHERE enabled = 1 AND paused = 0 AND next_fire_at IS NOT NULL;
CREATE INDEX {prefix}schedules_job ON {prefix}schedules (job);

CREATE TABLE {prefix}schedule_changes (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    schedule_id INTEGER NOT NULL,
    name        TEXT NOT NULL,
    at          INTEGER NOT NULL,
    by          TEXT,
    action      TEXT NOT NULL,
    reason      TEXT,
    before      TEXT,
    after       TEXT
) STRICT;
CREATE INDEX {prefix}schedule_changes_of ON {prefix}schedule_changes (schedule_id, id);

CREATE TABLE {prefix}occurrences (
    schedule_id     INTEGER NOT NULL,
    occurrence      INTEGER NOT NULL,
    last_occurrence INTEGER NOT NULL,
    count           INTEGER,
    outcome         TEXT NOT NULL,
    reason          TEXT,
    run_id          TEXT,
    recorded_at     INTEGER NOT NULL,
    PRIMARY KEY (schedule_id, occurrence)
) STRICT, WITHOUT ROWID;
CREATE INDEX {prefix}occurrences_uncounted ON {prefix}occurrences (schedule_id) WHERE count IS NULL;

CREATE TABLE {prefix}runs (
    seq                 INTEGER PRIMARY KEY AUTOINCREMENT,
    id                  TEXT NOT NULL UNIQUE,
    job                 TEXT NOT NULL,
    queue               TEXT NOT NULL,
    priority            INTEGER NOT NULL,
    state               TEXT NOT NULL,
    due_at              INTEGER NOT NULL,
    created_at          INTEGER NOT NULL,
    queued_at           INTEGER,
    claimed_at          INTEGER,
    started_at          INTEGER,
    finished_at         INTEGER,
    attempt             INTEGER NOT NULL DEFAULT 0,
    failures            INTEGER NOT NULL DEFAULT 0,
    lost                INTEGER NOT NULL DEFAULT 0,
    redo                INTEGER NOT NULL DEFAULT 0,
    max_attempts        INTEGER NOT NULL,
    timeout             TEXT,
    backoff             TEXT,
    args                TEXT NOT NULL,
    overlap_key         TEXT,
    concurrency_key     TEXT,
    concurrency_limit   INTEGER NOT NULL DEFAULT 1,
    wanted_key          TEXT,
    schedule_id         INTEGER,
    occurrence          INTEGER,
    missed_count        INTEGER NOT NULL DEFAULT 0,
    retry_of            TEXT,
    created_by          TEXT,
    worker_id           TEXT,
    lease_until         INTEGER,
    error               TEXT,
    reason              TEXT,
    result              TEXT,
    progress            TEXT,
    cancel_requested_at INTEGER,
    pause_requested_at  INTEGER,
    correlation_id      TEXT,
    trace               TEXT
) STRICT;
CREATE INDEX {prefix}runs_claim ON {prefix}runs (queue, priority DESC, due_at, seq) WHERE state = 'queued';
CREATE INDEX {prefix}runs_due ON {prefix}runs (due_at) WHERE state = 'waiting';
CREATE INDEX {prefix}runs_held ON {prefix}runs (wanted_key, priority DESC, seq) WHERE state = 'held';
CREATE INDEX {prefix}runs_in_line ON {prefix}runs (wanted_key, seq)
    WHERE state = 'waiting' AND attempt = 0 AND occurrence IS NOT NULL AND retry_of IS NULL;
CREATE INDEX {prefix}runs_lease ON {prefix}runs (lease_until) WHERE state = 'running';
CREATE INDEX {prefix}runs_paused ON {prefix}runs (seq) WHERE state = 'paused';
CREATE INDEX {prefix}runs_finished ON {prefix}runs (state, finished_at)
    WHERE state IN ('succeeded', 'dead', 'cancelled');
-- What is queued or runs is left out, so that no enqueue and no claim pays for this one.
CREATE INDEX {prefix}runs_job ON {prefix}runs (job, seq)
    WHERE state <> 'queued' AND state <> 'running';
CREATE INDEX {prefix}runs_schedule ON {prefix}runs (schedule_id, seq) WHERE schedule_id IS NOT NULL;

CREATE TABLE {prefix}run_keys (
    job      TEXT NOT NULL,
    key      TEXT NOT NULL,
    run_id   TEXT NOT NULL,
    until    INTEGER,
    PRIMARY KEY (job, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX {prefix}run_keys_run ON {prefix}run_keys (run_id);

CREATE TABLE {prefix}slots (
    key       TEXT NOT NULL,
    number    INTEGER NOT NULL,
    owner_run INTEGER NOT NULL,
    PRIMARY KEY (key, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX {prefix}slots_owner ON {prefix}slots (owner_run);

-- A run that succeeds at its first try has no row here.
CREATE TABLE {prefix}attempts (
    run_seq     INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    worker_id   TEXT,
    started_at  INTEGER,
    finished_at INTEGER,
    outcome     TEXT NOT NULL,
    error       TEXT,
    PRIMARY KEY (run_seq, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE {prefix}logs (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    run_seq INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    level   TEXT NOT NULL,
    text    TEXT NOT NULL
) STRICT;
CREATE INDEX {prefix}logs_run ON {prefix}logs (run_seq, id);

CREATE TABLE {prefix}workers (
    id         TEXT PRIMARY KEY,
    host       TEXT NOT NULL,
    pid        INTEGER NOT NULL,
    version    TEXT NOT NULL,
    tzdata     TEXT NOT NULL,
    origin     TEXT,
    jobs       TEXT NOT NULL,
    queues     TEXT NOT NULL,
    slots      INTEGER NOT NULL,
    stuck      INTEGER NOT NULL DEFAULT 0,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE {prefix}locks (
    name     TEXT PRIMARY KEY,
    owner    TEXT,
    token    INTEGER NOT NULL,
    until    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE {prefix}queues (
    name      TEXT PRIMARY KEY,
    paused    INTEGER NOT NULL DEFAULT 0,
    reason    TEXT,
    paused_by TEXT,
    paused_at INTEGER
) STRICT, WITHOUT ROWID;

-- Only operator actions and exceptions; routine transitions are read from runs and attempts.
CREATE TABLE {prefix}events (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    at     INTEGER NOT NULL,
    kind   TEXT NOT NULL,
    run_id TEXT,
    name   TEXT,
    detail TEXT
) STRICT;
CREATE INDEX {prefix}events_run ON {prefix}events (run_id, id) WHERE run_id IS NOT NULL;

CREATE TABLE {prefix}audit (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    at     INTEGER NOT NULL,
    by     TEXT NOT NULL,
    via    TEXT NOT NULL,
    action TEXT NOT NULL,
    thing  TEXT NOT NULL,
    reason TEXT,
    before TEXT,
    after  TEXT
) STRICT;
