-- The core: jobs, schedules with their ledger, runs with their attempts, and who works on them.
-- Durations are text such as '1h30m', JSON is text.
-- No primary keys and no indexes. All writes stand in one line (Instance.write_lock), so that what must
-- be unique is compared before it is inserted; and an index of DuckDB turns an update into a delete
-- and an insert, cannot be used for an order, and is what fails when a log is replayed after a crash.
-- A scan of 100,000 runs takes a few milliseconds, and one by seq reads the blocks that can hold it.

CREATE SCHEMA IF NOT EXISTS "_{schema}_data";
CREATE SCHEMA IF NOT EXISTS "_{schema}";

-- A number is never given out again: the ledger outlives a dropped schedule, a late settle its run.
CREATE SEQUENCE {prefix}schedules_id;
CREATE SEQUENCE {prefix}schedule_changes_id;
CREATE SEQUENCE {prefix}runs_seq;
CREATE SEQUENCE {prefix}logs_id;
CREATE SEQUENCE {prefix}events_id;
CREATE SEQUENCE {prefix}audit_id;

CREATE TABLE {prefix}meta (
    key   VARCHAR NOT NULL,
    value VARCHAR NOT NULL
);

CREATE TABLE {prefix}jobs (
    name        VARCHAR NOT NULL,
    executor    VARCHAR NOT NULL,
    source      VARCHAR NOT NULL,
    origin      VARCHAR,
    spec        VARCHAR NOT NULL,
    args_schema VARCHAR NOT NULL,
    description VARCHAR NOT NULL,
    queue       VARCHAR NOT NULL,
    priority    INTEGER NOT NULL,
    timeout     VARCHAR,
    policies    VARCHAR NOT NULL,
    enabled     BOOLEAN NOT NULL,
    error       VARCHAR,
    version     VARCHAR NOT NULL,
    version_at  TIMESTAMPTZ NOT NULL
);

CREATE TABLE {prefix}schedules (
    id             BIGINT NOT NULL,
    name           VARCHAR NOT NULL,
    job            VARCHAR NOT NULL,
    kind           VARCHAR NOT NULL,
    expr           VARCHAR NOT NULL,
    timezone       VARCHAR NOT NULL,
    dst            VARCHAR NOT NULL,
    anchor         VARCHAR NOT NULL,
    next_fire_at   TIMESTAMPTZ,
    last_fired_at  TIMESTAMPTZ,
    enabled        BOOLEAN NOT NULL,
    paused         BOOLEAN NOT NULL,
    paused_by      VARCHAR,
    paused_at      TIMESTAMPTZ,
    paused_reason  VARCHAR,
    overlap        VARCHAR NOT NULL,
    overlap_key    VARCHAR,
    queue_max      INTEGER,
    on_error       VARCHAR NOT NULL,
    pause_after    INTEGER,
    catch_up       VARCHAR NOT NULL,
    catch_up_limit INTEGER NOT NULL,
    misfire_grace  VARCHAR NOT NULL,
    jitter         VARCHAR NOT NULL,
    spread         VARCHAR NOT NULL,
    first_run      TIMESTAMPTZ,
    starts_at      TIMESTAMPTZ,
    ends_at        TIMESTAMPTZ,
    args           VARCHAR NOT NULL,
    priority       INTEGER,
    retry          VARCHAR,
    owner          VARCHAR,
    created_at     TIMESTAMPTZ NOT NULL,
    state          VARCHAR,
    error          VARCHAR
);

CREATE TABLE {prefix}schedule_changes (
    id          BIGINT NOT NULL,
    schedule_id BIGINT NOT NULL,
    name        VARCHAR NOT NULL,
    "at"        TIMESTAMPTZ NOT NULL,
    "by"        VARCHAR,
    action      VARCHAR NOT NULL,
    reason      VARCHAR,
    before      VARCHAR,
    after       VARCHAR
);

CREATE TABLE {prefix}occurrences (
    schedule_id     BIGINT NOT NULL,
    occurrence      TIMESTAMPTZ NOT NULL,
    last_occurrence TIMESTAMPTZ NOT NULL,
    count           BIGINT,
    outcome         VARCHAR NOT NULL,
    reason          VARCHAR,
    run_id          VARCHAR,
    recorded_at     TIMESTAMPTZ NOT NULL
);

CREATE TABLE {prefix}runs (
    seq                 BIGINT NOT NULL,
    id                  VARCHAR NOT NULL,
    job                 VARCHAR NOT NULL,
    queue               VARCHAR NOT NULL,
    priority            INTEGER NOT NULL,
    state               VARCHAR NOT NULL,
    due_at              TIMESTAMPTZ NOT NULL,
    created_at          TIMESTAMPTZ NOT NULL,
    queued_at           TIMESTAMPTZ,
    claimed_at          TIMESTAMPTZ,
    started_at          TIMESTAMPTZ,
    finished_at         TIMESTAMPTZ,
    attempt             INTEGER NOT NULL DEFAULT 0,
    failures            INTEGER NOT NULL DEFAULT 0,
    lost                INTEGER NOT NULL DEFAULT 0,
    redo                INTEGER NOT NULL DEFAULT 0,
    max_attempts        INTEGER NOT NULL,
    timeout             VARCHAR,
    backoff             VARCHAR,
    args                VARCHAR NOT NULL,
    overlap_key         VARCHAR,
    concurrency_key     VARCHAR,
    concurrency_limit   INTEGER NOT NULL DEFAULT 1,
    wanted_key          VARCHAR,
    schedule_id         BIGINT,
    occurrence          TIMESTAMPTZ,
    missed_count        BIGINT NOT NULL DEFAULT 0,
    retry_of            VARCHAR,
    created_by          VARCHAR,
    worker_id           VARCHAR,
    lease_until         TIMESTAMPTZ,
    error               VARCHAR,
    reason              VARCHAR,
    result              VARCHAR,
    progress            VARCHAR,
    cancel_requested_at TIMESTAMPTZ,
    pause_requested_at  TIMESTAMPTZ,
    correlation_id      VARCHAR,
    trace               VARCHAR
);

CREATE TABLE {prefix}run_keys (
    job      VARCHAR NOT NULL,
    key      VARCHAR NOT NULL,
    run_id   VARCHAR NOT NULL,
    until    TIMESTAMPTZ
);

CREATE TABLE {prefix}slots (
    key       VARCHAR NOT NULL,
    number    INTEGER NOT NULL,
    owner_run BIGINT NOT NULL
);

-- A run that succeeds at its first try has no row here.
CREATE TABLE {prefix}attempts (
    run_seq     BIGINT NOT NULL,
    number      INTEGER NOT NULL,
    worker_id   VARCHAR,
    started_at  TIMESTAMPTZ,
    finished_at TIMESTAMPTZ,
    outcome     VARCHAR NOT NULL,
    error       VARCHAR
);

CREATE TABLE {prefix}logs (
    id      BIGINT NOT NULL,
    run_seq BIGINT NOT NULL,
    attempt INTEGER NOT NULL,
    "at"    TIMESTAMPTZ NOT NULL,
    level   VARCHAR NOT NULL,
    text    VARCHAR NOT NULL
);

CREATE TABLE {prefix}workers (
    id         VARCHAR NOT NULL,
    host       VARCHAR NOT NULL,
    pid        BIGINT NOT NULL,
    version    VARCHAR NOT NULL,
    tzdata     VARCHAR NOT NULL,
    origin     VARCHAR,
    jobs       VARCHAR NOT NULL,
    queues     VARCHAR NOT NULL,
    slots      INTEGER NOT NULL,
    stuck      INTEGER NOT NULL DEFAULT 0,
    started_at TIMESTAMPTZ NOT NULL,
    seen_at    TIMESTAMPTZ NOT NULL
);

CREATE TABLE {prefix}locks (
    name     VARCHAR NOT NULL,
    owner    VARCHAR,
    token    BIGINT NOT NULL,
    until    TIMESTAMPTZ NOT NULL
);

CREATE TABLE {prefix}queues (
    name      VARCHAR NOT NULL,
    paused    BOOLEAN NOT NULL DEFAULT false,
    reason    VARCHAR,
    paused_by VARCHAR,
    paused_at TIMESTAMPTZ
);

-- Only operator actions and exceptions; routine transitions are read from runs and attempts.
CREATE TABLE {prefix}events (
    id     BIGINT NOT NULL,
    "at"   TIMESTAMPTZ NOT NULL,
    kind   VARCHAR NOT NULL,
    run_id VARCHAR,
    name   VARCHAR,
    detail VARCHAR
);

CREATE TABLE {prefix}audit (
    id     BIGINT NOT NULL,
    "at"   TIMESTAMPTZ NOT NULL,
    "by"   VARCHAR NOT NULL,
    via    VARCHAR NOT NULL,
    action VARCHAR NOT NULL,
    thing  VARCHAR NOT NULL,
    reason VARCHAR,
    before VARCHAR,
    after  VARCHAR
);
