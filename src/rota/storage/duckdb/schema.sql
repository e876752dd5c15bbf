-- The data model on DuckDB. Tables in the schema _{schema}_data are private; people read the views of
-- views.sql in the schema _{schema}, and write one table, {views}control.
--
-- Durations are text such as 1h30m, JSON is text. Numbers come from sequences: a number is never given out
-- again, because the ledger outlives a dropped schedule, and a late settle its deleted run.
--
-- No primary keys and no indexes. All writes of Rota stand in one line (Instance.write_lock), so that what must
-- be unique is compared before it is inserted; and an index of DuckDB turns an update into a delete and an
-- insert, cannot be used for an order, and is what fails when a log is replayed after a crash. A scan of
-- 100,000 runs takes a few milliseconds, and a scan by seq reads only the blocks that can hold it.
--
-- Until the first release this file is edited in place: a store made by another text is refused. From then
-- on it stays as it is, as migration 1, and changes are files in migrations/, from 0002 on.

CREATE SCHEMA IF NOT EXISTS "_{schema}_data";
CREATE SCHEMA IF NOT EXISTS "_{schema}";

CREATE SEQUENCE {prefix}schedules_id;
CREATE SEQUENCE {prefix}schedule_changes_id;
CREATE SEQUENCE {prefix}runs_seq;
CREATE SEQUENCE {prefix}logs_id;
CREATE SEQUENCE {prefix}control_id;
CREATE SEQUENCE {prefix}events_id;
CREATE SEQUENCE {prefix}audit_id;

-- What to do: a name, an executor, a body, and the policies of its runs.
CREATE TABLE {prefix}jobs (
    name        VARCHAR NOT NULL,
    executor    VARCHAR NOT NULL,
    source      VARCHAR NOT NULL,     -- code, file, or api for SQL that a statement made
    origin      VARCHAR,              -- whose folder a file job is in: workers of one origin serve the same folder
    spec        VARCHAR NOT NULL,     -- JSON: what the executor needs, such as files, a function, a URL
    args_schema VARCHAR NOT NULL,     -- JSON: names and types of arguments, checked by every enqueue
    description VARCHAR NOT NULL,
    queue       VARCHAR NOT NULL,
    priority    INTEGER NOT NULL,
    timeout     VARCHAR,
    policies    VARCHAR NOT NULL,     -- JSON: retry, isolation, concurrency
    enabled     BOOLEAN NOT NULL,
    error       VARCHAR,              -- why it cannot run, such as a broken file
    version     VARCHAR NOT NULL,     -- hash of the definition
    version_at  TIMESTAMPTZ NOT NULL  -- of two definitions of a file job the later one counts
);

-- When each version of a file job was first seen, so that an old copy of a folder never wins by being read last.
CREATE TABLE {prefix}job_versions (
    job     VARCHAR NOT NULL,
    version VARCHAR NOT NULL,
    seen_at TIMESTAMPTZ NOT NULL
);

-- The text of a SQL file before variables are filled in, stored once under its hash.
CREATE TABLE {prefix}job_texts (
    hash    VARCHAR NOT NULL,
    text    VARCHAR NOT NULL,
    names   VARCHAR NOT NULL,  -- JSON: the variables it uses; their values are never stored
    kept_at TIMESTAMPTZ NOT NULL
);

-- When to make runs of a job.
CREATE TABLE {prefix}schedules (
    id             BIGINT NOT NULL DEFAULT nextval('{prefix}schedules_id'),
    name           VARCHAR NOT NULL,
    job            VARCHAR NOT NULL,
    kind           VARCHAR NOT NULL,          -- cron, every or once
    expr           VARCHAR NOT NULL,
    next_fire_at   TIMESTAMPTZ,               -- the cursor; NULL: never again; year 9999: waits for its run
    last_fired_at  TIMESTAMPTZ,
    enabled        BOOLEAN NOT NULL,          -- by the definition
    paused         BOOLEAN NOT NULL,          -- by an operator; neither undoes the other
    paused_by      VARCHAR,
    paused_at      TIMESTAMPTZ,
    paused_reason  VARCHAR,
    overlap_key    VARCHAR,                   -- runs of one key exclude each other
    ends_at        TIMESTAMPTZ,
    args           VARCHAR NOT NULL,          -- JSON
    priority       INTEGER,                   -- NULL: the job's
    options        JSON NOT NULL,             -- JSON: what differs from the defaults
    plan_key       VARCHAR NOT NULL,          -- equal: due at one instant, they are fired by one plan
    created_at     TIMESTAMPTZ NOT NULL,
    state          VARCHAR,                   -- what happened last, in words
    error          VARCHAR,                   -- why it cannot be planned
    registered     VARCHAR,                   -- JSON: what code or its file declared last. The same again
                                              -- changes nothing, so that an operator's edit stays
    revision       BIGINT NOT NULL DEFAULT 0  -- counts edits: a plan of an older one is not carried out
);

-- The history of each schedule, also after it was dropped.
CREATE TABLE {prefix}schedule_changes (
    id          BIGINT NOT NULL DEFAULT nextval('{prefix}schedule_changes_id'),
    schedule_id BIGINT NOT NULL,
    name        VARCHAR NOT NULL,
    "at"        TIMESTAMPTZ NOT NULL,
    "by"        VARCHAR,
    action      VARCHAR NOT NULL,
    reason      VARCHAR,
    before      VARCHAR,  -- JSON with arguments: no view shows it
    after       VARCHAR
);

-- The ledger: what became of each occurrence. It is compared before a run is inserted, so that no occurrence
-- has a second run, also where the first one was deleted.
CREATE TABLE {prefix}occurrences (
    schedule_id     BIGINT NOT NULL,
    occurrence      TIMESTAMPTZ NOT NULL,
    last_occurrence TIMESTAMPTZ NOT NULL,  -- a row may stand for a range of occurrences of one outcome
    count           BIGINT,                -- how many; NULL until a long range has been counted
    outcome         VARCHAR NOT NULL,
    reason          VARCHAR,
    run_id          VARCHAR,
    recorded_at     TIMESTAMPTZ NOT NULL
);

-- One durable request to do a job once.
CREATE TABLE {prefix}runs (
    seq                 BIGINT NOT NULL,             -- order of creation, key of what belongs to a run
    id                  VARCHAR NOT NULL,            -- made of the occurrence: firing twice gives one id
    job                 VARCHAR NOT NULL,
    queue               VARCHAR NOT NULL,
    priority            INTEGER NOT NULL,
    state               VARCHAR NOT NULL,            -- changes: model/transitions.py
    due_at              TIMESTAMPTZ NOT NULL,
    created_at          TIMESTAMPTZ NOT NULL,
    queued_at           TIMESTAMPTZ,
    claimed_at          TIMESTAMPTZ,
    started_at          TIMESTAMPTZ,                 -- of the latest attempt
    finished_at         TIMESTAMPTZ,
    attempt             INTEGER NOT NULL DEFAULT 0,  -- with seq the fence: a late worker matches no row
    failures            INTEGER NOT NULL DEFAULT 0,  -- attempts that count against max_attempts
    lost                INTEGER NOT NULL DEFAULT 0,  -- attempts whose worker went away
    redo                INTEGER NOT NULL DEFAULT 0,  -- how often an operator began it again
    max_attempts        INTEGER NOT NULL,
    timeout             VARCHAR,
    backoff             VARCHAR,                     -- JSON: the retry policy; NULL: the job's
    args                VARCHAR NOT NULL,            -- JSON
    overlap_key         VARCHAR,
    concurrency_key     VARCHAR,
    concurrency_limit   INTEGER NOT NULL DEFAULT 1,
    wanted_key          VARCHAR,                     -- the slot it needs next: o/overlap, then c/concurrency
    schedule_id         BIGINT,
    occurrence          TIMESTAMPTZ,
    missed_count        BIGINT NOT NULL DEFAULT 0,   -- occurrences before it that it stands for
    retry_of            VARCHAR,                     -- the failed run, with on_error = retry
    created_by          VARCHAR,
    worker_id           VARCHAR,
    lease_until         TIMESTAMPTZ,                 -- then any process may take it over
    error               VARCHAR,
    reason              VARCHAR,
    result              VARCHAR,                     -- JSON
    progress            VARCHAR,
    cancel_requested_at TIMESTAMPTZ,
    pause_requested_at  TIMESTAMPTZ,
    correlation_id      VARCHAR,
    trace               VARCHAR
);

-- Idempotency keys of enqueues: the run that a key stands for.
CREATE TABLE {prefix}run_keys (
    job    VARCHAR NOT NULL,
    key    VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL,
    until  TIMESTAMPTZ  -- NULL: as long as the run is there
);

-- Slots that are taken. `number` is below the limit of the key.
CREATE TABLE {prefix}slots (
    key       VARCHAR NOT NULL,  -- o/… or c/…, as wanted_key of a run
    number    INTEGER NOT NULL,
    owner_run BIGINT NOT NULL    -- seq
);

-- Attempts that have ended. A run that succeeds at its first attempt has no row here: the view makes it from
-- the run, which saves an insert per run.
CREATE TABLE {prefix}attempts (
    run_seq     BIGINT NOT NULL,
    number      INTEGER NOT NULL,
    worker_id   VARCHAR,
    started_at  TIMESTAMPTZ,
    finished_at TIMESTAMPTZ,
    outcome     VARCHAR NOT NULL,
    error       VARCHAR
);

-- The SQL files of a run as it began. Later attempts and a redo use these, not the folder.
CREATE TABLE {prefix}run_files (
    run_seq BIGINT NOT NULL,
    number  INTEGER NOT NULL,
    name    VARCHAR NOT NULL,
    hash    VARCHAR NOT NULL  -- of job_texts
);

-- One row per attempt and file that was begun. Of a finished step it still says 'running': the truth is in
-- step_marks, which the transaction of the step itself writes.
CREATE TABLE {prefix}steps (
    run_seq     BIGINT NOT NULL,
    attempt     INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    name        VARCHAR NOT NULL,
    hash        VARCHAR,
    started_at  TIMESTAMPTZ NOT NULL,
    finished_at TIMESTAMPTZ,
    status      VARCHAR NOT NULL,
    error       VARCHAR,
    note        VARCHAR
);

-- "Step done", committed together with the step's own work where that is in this database.
CREATE TABLE {prefix}step_marks (
    run_seq     BIGINT NOT NULL,
    number      INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,               -- 0: an operator told the run to skip this step
    finished_at TIMESTAMPTZ NOT NULL,
    rows        BIGINT,
    result      VARCHAR,                        -- JSON: the first rows of its last result
    void        BOOLEAN NOT NULL DEFAULT false  -- an operator asked to begin again before it
);

-- Log lines of attempts.
CREATE TABLE {prefix}logs (
    id      BIGINT NOT NULL DEFAULT nextval('{prefix}logs_id'),
    run_seq BIGINT NOT NULL,
    attempt INTEGER NOT NULL,
    "at"    TIMESTAMPTZ NOT NULL,
    level   VARCHAR NOT NULL,
    text    VARCHAR NOT NULL
);

-- Files that handlers store with ctx.storage, shared by all runs.
CREATE TABLE {prefix}files (
    id           VARCHAR NOT NULL,
    name         VARCHAR NOT NULL,
    content_type VARCHAR NOT NULL,
    size         BIGINT NOT NULL,
    sha256       VARCHAR NOT NULL,
    job          VARCHAR,
    run_id       VARCHAR,
    created_at   TIMESTAMPTZ NOT NULL,
    until        TIMESTAMPTZ,  -- deleted afterwards; NULL: never
    content      BLOB NOT NULL
);

-- Named lines of runs. A queue is there from the first time that it is named.
CREATE TABLE {prefix}queues (
    name      VARCHAR NOT NULL,
    paused    BOOLEAN NOT NULL DEFAULT false,
    reason    VARCHAR,
    paused_by VARCHAR,
    paused_at TIMESTAMPTZ
);

-- Processes that work, each with its last heartbeat.
CREATE TABLE {prefix}workers (
    id         VARCHAR NOT NULL,
    host       VARCHAR NOT NULL,
    pid        BIGINT NOT NULL,
    version    VARCHAR NOT NULL,
    tzdata     VARCHAR NOT NULL,            -- processes with different time zones plan different occurrences
    origin     VARCHAR,
    jobs       VARCHAR NOT NULL,            -- JSON
    queues     VARCHAR NOT NULL,            -- JSON; empty: all
    slots      INTEGER NOT NULL,
    stuck      INTEGER NOT NULL DEFAULT 0,  -- handlers that ignore their timeout
    started_at TIMESTAMPTZ NOT NULL,
    seen_at    TIMESTAMPTZ NOT NULL
);

-- Named locks that handlers take. `token` grows with each owner, so that a late one can be fenced off.
CREATE TABLE {prefix}locks (
    name  VARCHAR NOT NULL,
    owner VARCHAR,
    token BIGINT NOT NULL,
    until TIMESTAMPTZ NOT NULL
);

-- The one table that clients write. A process carries out a statement that is inserted here and answers in
-- its row. DuckDB knows no users: what may write to the file may ask for anything.
CREATE TABLE {views}control (
    id           BIGINT NOT NULL DEFAULT nextval('{prefix}control_id'),
    statement    VARCHAR NOT NULL CHECK (length(statement) <= 262144),
    requested_by VARCHAR CHECK (length(requested_by) <= 128),
    requested_at TIMESTAMPTZ NOT NULL DEFAULT current_timestamp,
    role         VARCHAR NOT NULL DEFAULT 'admin',
    status       VARCHAR NOT NULL DEFAULT 'asked',
    answered_at  TIMESTAMPTZ,
    rows         VARCHAR,                         -- JSON
    more         BOOLEAN NOT NULL DEFAULT false,  -- the answer had more rows than are stored
    error        VARCHAR
);

-- Exceptions and actions that concern runs; routine transitions are read from runs and attempts.
CREATE TABLE {prefix}events (
    id     BIGINT NOT NULL DEFAULT nextval('{prefix}events_id'),
    "at"   TIMESTAMPTZ NOT NULL,
    kind   VARCHAR NOT NULL,
    run_id VARCHAR,
    name   VARCHAR,
    detail VARCHAR
);

-- What operators did, by whom and by which way.
CREATE TABLE {prefix}audit (
    id     BIGINT NOT NULL DEFAULT nextval('{prefix}audit_id'),
    "at"   TIMESTAMPTZ NOT NULL,
    "by"   VARCHAR NOT NULL,
    via    VARCHAR NOT NULL,
    action VARCHAR NOT NULL,
    thing  VARCHAR NOT NULL,
    reason VARCHAR,
    before VARCHAR,
    after  VARCHAR
);

-- Access to the HTTP API. A token is shown once, when it is made: only its hash is stored.
CREATE TABLE {prefix}tokens (
    id         VARCHAR NOT NULL,
    name       VARCHAR NOT NULL,
    role       VARCHAR NOT NULL,
    hash       VARCHAR NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    created_by VARCHAR NOT NULL,
    expires_at TIMESTAMPTZ,
    revoked_at TIMESTAMPTZ,
    revoked_by VARCHAR
);

-- About the store itself: its installation, what made it (storage/schema.py), the switch of dispatch.
CREATE TABLE {prefix}meta (
    key   VARCHAR NOT NULL,
    value VARCHAR NOT NULL
);
