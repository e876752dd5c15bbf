-- The data model on SQLite. Tables begin with _{schema}_ and are private; people read the views of views.sql,
-- and write one table, {views}control.
--
-- Instants are whole microseconds since 1970 in UTC, durations text such as 1h30m, booleans 0 or 1. JSON is
-- text. STRICT: a value of another type is refused. WITHOUT ROWID, where the
-- key is text or a pair: the row lies in the index of its key. AUTOINCREMENT: a number is never given out
-- again, because the ledger outlives a dropped schedule, and a late settle its deleted run.
--
-- Until the first release this file is edited in place: a store made by another text is refused. From then
-- on it stays as it is, as migration 1, and changes are files in migrations/, from 0002 on.

-- What to do: a name, an executor, a body, and the policies of its runs.
CREATE TABLE {prefix}jobs (
    name        TEXT PRIMARY KEY,
    executor    TEXT NOT NULL,
    source      TEXT NOT NULL,     -- code, file, or api for SQL that a statement made
    origin      TEXT,              -- whose folder a file job is in: workers of one origin serve the same folder
    spec        TEXT NOT NULL,     -- JSON: what the executor needs, such as files, a function, a URL
    args_schema TEXT NOT NULL,     -- JSON: names and types of arguments, checked by every enqueue
    description TEXT NOT NULL,
    queue       TEXT NOT NULL,
    priority    INTEGER NOT NULL,
    timeout     TEXT,
    policies    TEXT NOT NULL,     -- JSON: retry, isolation, concurrency
    enabled     INTEGER NOT NULL,
    error       TEXT,              -- why it cannot run, such as a broken file
    version     TEXT NOT NULL,     -- hash of the definition
    version_at  INTEGER NOT NULL   -- of two definitions of a file job the later one counts
) STRICT, WITHOUT ROWID;

-- When each version of a file job was first seen, so that an old copy of a folder never wins by being read last.
CREATE TABLE {prefix}job_versions (
    job     TEXT NOT NULL,
    version TEXT NOT NULL,
    seen_at INTEGER NOT NULL,
    PRIMARY KEY (job, version)
) STRICT, WITHOUT ROWID;

-- The text of a SQL file before variables are filled in, stored once under its hash.
CREATE TABLE {prefix}job_texts (
    hash    TEXT PRIMARY KEY,
    text    TEXT NOT NULL,
    names   TEXT NOT NULL,         -- JSON: the variables it uses; their values are never stored
    kept_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- When to make runs of a job.
CREATE TABLE {prefix}schedules (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    name           TEXT NOT NULL UNIQUE,
    job            TEXT NOT NULL,
    kind           TEXT NOT NULL,     -- cron, every or once
    expr           TEXT NOT NULL,
    next_fire_at   INTEGER,           -- the cursor; NULL: never again; year 9999: waits for its run
    last_fired_at  INTEGER,
    enabled        INTEGER NOT NULL,  -- by the definition
    paused         INTEGER NOT NULL,  -- by an operator; neither undoes the other
    paused_by      TEXT,
    paused_at      INTEGER,
    paused_reason  TEXT,
    overlap_key    TEXT,              -- runs of one key exclude each other
    ends_at        INTEGER,
    args           TEXT NOT NULL,     -- JSON
    priority       INTEGER,           -- NULL: the job's
    options        TEXT NOT NULL CHECK (json_valid(options)),  -- what differs from the defaults
    plan_key       TEXT NOT NULL,     -- equal: due at one instant, they are fired by one plan
    created_at     INTEGER NOT NULL,
    state          TEXT,              -- what happened last, in words
    error          TEXT,              -- why it cannot be planned
    registered     TEXT,              -- JSON: what code or its file declared last. The same again
                                      -- changes nothing, so that an operator's edit stays
    revision       INTEGER NOT NULL DEFAULT 0,  -- counts edits: a plan of an older one is not carried out
    -- Stored nowhere. The columns of views have a type on SQLite only if they are columns of a table.
    timezone       TEXT AS (coalesce(options ->> 'timezone', 'UTC')),
    overlap        TEXT AS (coalesce(options ->> 'overlap', 'wait')),
    queue_max      INTEGER AS (options ->> 'queue_max'),
    on_error       TEXT AS (coalesce(options ->> 'on_error', 'next')),
    pause_after    INTEGER AS (options ->> 'pause_after'),
    catch_up       TEXT AS (coalesce(options ->> 'catch_up', 'one')),
    owner          TEXT AS (options ->> 'owner')
) STRICT;
-- With the plan key: a group that one plan fires is found without reading the others.
CREATE INDEX {prefix}schedules_due ON {prefix}schedules (next_fire_at, plan_key)
    WHERE enabled AND NOT paused AND next_fire_at IS NOT NULL;
CREATE INDEX {prefix}schedules_job ON {prefix}schedules (job);
-- What lists show first: the few among many.
CREATE INDEX {prefix}schedules_broken ON {prefix}schedules (id) WHERE error IS NOT NULL;
CREATE INDEX {prefix}schedules_paused ON {prefix}schedules (id) WHERE paused;

-- The history of each schedule, also after it was dropped.
CREATE TABLE {prefix}schedule_changes (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    schedule_id INTEGER NOT NULL,
    name        TEXT NOT NULL,
    at          INTEGER NOT NULL,
    by          TEXT,
    action      TEXT NOT NULL,
    reason      TEXT,
    before      TEXT,              -- JSON with arguments: no view shows it
    after       TEXT
) STRICT;
CREATE INDEX {prefix}schedule_changes_of ON {prefix}schedule_changes (schedule_id, id);
CREATE INDEX {prefix}schedule_changes_dropped ON {prefix}schedule_changes (name)
    WHERE action = 'drop';

-- The ledger: what became of each occurrence. Its key makes a second run of an occurrence impossible, also
-- where the first one was deleted.
CREATE TABLE {prefix}occurrences (
    schedule_id     INTEGER NOT NULL,
    occurrence      INTEGER NOT NULL,
    last_occurrence INTEGER NOT NULL,  -- a row may stand for a range of occurrences of one outcome
    count           INTEGER,           -- how many; NULL until a long range has been counted
    outcome         TEXT NOT NULL,
    reason          TEXT,
    run_id          TEXT,
    recorded_at     INTEGER NOT NULL,
    PRIMARY KEY (schedule_id, occurrence)
) STRICT, WITHOUT ROWID;
CREATE INDEX {prefix}occurrences_uncounted ON {prefix}occurrences (schedule_id) WHERE count IS NULL;

-- One durable request to do a job once.
CREATE TABLE {prefix}runs (
    seq                 INTEGER PRIMARY KEY AUTOINCREMENT,  -- order of creation, key of what belongs to a run
    id                  TEXT NOT NULL UNIQUE,      -- made of the occurrence: firing twice is a conflict
    job                 TEXT NOT NULL,
    queue               TEXT NOT NULL,
    priority            INTEGER NOT NULL,
    state               TEXT NOT NULL,             -- changes: model/transitions.py
    due_at              INTEGER NOT NULL,
    created_at          INTEGER NOT NULL,
    queued_at           INTEGER,
    claimed_at          INTEGER,
    started_at          INTEGER,                   -- of the latest attempt
    finished_at         INTEGER,
    attempt             INTEGER NOT NULL DEFAULT 0,  -- with seq the fence: a late worker matches no row
    failures            INTEGER NOT NULL DEFAULT 0,  -- attempts that count against max_attempts
    lost                INTEGER NOT NULL DEFAULT 0,  -- attempts whose worker went away
    redo                INTEGER NOT NULL DEFAULT 0,  -- how often an operator began it again
    max_attempts        INTEGER NOT NULL,
    timeout             TEXT,
    backoff             TEXT,                      -- JSON: the retry policy; NULL: the job's
    args                TEXT NOT NULL,             -- JSON
    overlap_key         TEXT,
    concurrency_key     TEXT,
    concurrency_limit   INTEGER NOT NULL DEFAULT 1,
    wanted_key          TEXT,                      -- the slot it needs next: o/overlap, then c/concurrency
    schedule_id         INTEGER,
    occurrence          INTEGER,
    missed_count        INTEGER NOT NULL DEFAULT 0,  -- occurrences before it that it stands for
    retry_of            TEXT,                      -- the failed run, with on_error = retry
    created_by          TEXT,
    worker_id           TEXT,
    lease_until         INTEGER,                   -- then any process may take it over
    error               TEXT,
    reason              TEXT,
    result              TEXT,                      -- JSON
    progress            TEXT,
    cancel_requested_at INTEGER,
    pause_requested_at  INTEGER,
    correlation_id      TEXT,
    trace               TEXT
) STRICT;
-- Partial indexes: a run has an entry only in those of its state.
CREATE INDEX {prefix}runs_claim ON {prefix}runs (queue, priority DESC, due_at, seq) WHERE state = 'queued';
CREATE INDEX {prefix}runs_due ON {prefix}runs (due_at) WHERE state = 'waiting';
CREATE INDEX {prefix}runs_held ON {prefix}runs (wanted_key, priority DESC, seq) WHERE state = 'held';
CREATE INDEX {prefix}runs_in_line ON {prefix}runs (wanted_key, seq)
    WHERE state = 'waiting' AND attempt = 0 AND occurrence IS NOT NULL AND retry_of IS NULL;
CREATE INDEX {prefix}runs_lease ON {prefix}runs (lease_until) WHERE state = 'running';
CREATE INDEX {prefix}runs_paused ON {prefix}runs (seq) WHERE state = 'paused';
CREATE INDEX {prefix}runs_dead ON {prefix}runs (seq) WHERE state = 'dead';
CREATE INDEX {prefix}runs_cancelled ON {prefix}runs (seq) WHERE state = 'cancelled';
-- OR, not IN: for IN with three values SQLite builds a table for every row that is written, to look the state
-- up in it.
CREATE INDEX {prefix}runs_finished ON {prefix}runs (state, finished_at)
    WHERE state = 'succeeded' OR state = 'dead' OR state = 'cancelled';
-- For the view `dead`, which has instants as text: its order is that of an expression. With the job, so that
-- the dead of one job are found without reading the others.
CREATE INDEX {prefix}runs_died ON {prefix}runs ({instant finished_at}, job) WHERE state = 'dead';
-- Without what is queued or runs, so that no enqueue and no claim pays for this one.
CREATE INDEX {prefix}runs_job ON {prefix}runs (job, seq)
    WHERE state <> 'queued' AND state <> 'running';
CREATE INDEX {prefix}runs_schedule ON {prefix}runs (schedule_id, seq) WHERE schedule_id IS NOT NULL;

-- Idempotency keys of enqueues: the run that a key stands for.
CREATE TABLE {prefix}run_keys (
    job      TEXT NOT NULL,
    key      TEXT NOT NULL,
    run_id   TEXT NOT NULL,
    until    INTEGER,              -- NULL: as long as the run is there
    PRIMARY KEY (job, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX {prefix}run_keys_run ON {prefix}run_keys (run_id);

-- Slots that are taken. `number` is below the limit of the key: the primary key lets no two runs have one slot.
CREATE TABLE {prefix}slots (
    key       TEXT NOT NULL,       -- o/… or c/…, as wanted_key of a run
    number    INTEGER NOT NULL,
    owner_run INTEGER NOT NULL,    -- seq
    PRIMARY KEY (key, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX {prefix}slots_owner ON {prefix}slots (owner_run);

-- Attempts that have ended. A run that succeeds at its first attempt has no row here: the view makes it from
-- the run, which saves an insert per run.
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

-- The SQL files of a run as it began. Later attempts and a redo use these, not the folder.
CREATE TABLE {prefix}run_files (
    run_seq INTEGER NOT NULL,
    number  INTEGER NOT NULL,
    name    TEXT NOT NULL,
    hash    TEXT NOT NULL,         -- of job_texts
    PRIMARY KEY (run_seq, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX {prefix}run_files_hash ON {prefix}run_files (hash);

-- One row per attempt and file that was begun. Of a finished step it still says 'running': the truth is in
-- step_marks, which the transaction of the step itself writes.
CREATE TABLE {prefix}steps (
    run_seq     INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    name        TEXT NOT NULL,
    hash        TEXT,
    started_at  INTEGER NOT NULL,
    finished_at INTEGER,
    status      TEXT NOT NULL,
    error       TEXT,
    note        TEXT,
    PRIMARY KEY (run_seq, attempt, number)
) STRICT, WITHOUT ROWID;

-- "Step done", committed together with the step's own work where that is in this database.
CREATE TABLE {prefix}step_marks (
    run_seq     INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,  -- 0: an operator told the run to skip this step
    finished_at INTEGER NOT NULL,
    rows        INTEGER,
    result      TEXT,              -- JSON: the first rows of its last result
    void        INTEGER NOT NULL DEFAULT 0,  -- an operator asked to begin again before it
    PRIMARY KEY (run_seq, number, attempt)
) STRICT, WITHOUT ROWID;

-- Log lines of attempts.
CREATE TABLE {prefix}logs (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    run_seq INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    level   TEXT NOT NULL,
    text    TEXT NOT NULL
) STRICT;
CREATE INDEX {prefix}logs_run ON {prefix}logs (run_seq, id);

-- Files that handlers store with ctx.storage, shared by all runs.
CREATE TABLE {prefix}files (
    id           TEXT PRIMARY KEY,
    name         TEXT NOT NULL,
    content_type TEXT NOT NULL,
    size         INTEGER NOT NULL,
    sha256       TEXT NOT NULL,
    job          TEXT,
    run_id       TEXT,
    created_at   INTEGER NOT NULL,
    until        INTEGER,          -- deleted afterwards; NULL: never
    content      BLOB NOT NULL
) STRICT;
CREATE INDEX {prefix}files_until ON {prefix}files (until) WHERE until IS NOT NULL;
CREATE INDEX {prefix}files_created ON {prefix}files (created_at, id);

-- Named lines of runs. A queue is there from the first time that it is named.
CREATE TABLE {prefix}queues (
    name      TEXT PRIMARY KEY,
    paused    INTEGER NOT NULL DEFAULT 0,
    reason    TEXT,
    paused_by TEXT,
    paused_at INTEGER
) STRICT, WITHOUT ROWID;

-- Processes that work, each with its last heartbeat.
CREATE TABLE {prefix}workers (
    id         TEXT PRIMARY KEY,
    host       TEXT NOT NULL,
    pid        INTEGER NOT NULL,
    version    TEXT NOT NULL,
    tzdata     TEXT NOT NULL,      -- processes with different time zones plan different occurrences
    origin     TEXT,
    jobs       TEXT NOT NULL,      -- JSON
    queues     TEXT NOT NULL,      -- JSON; empty: all
    slots      INTEGER NOT NULL,
    stuck      INTEGER NOT NULL DEFAULT 0,  -- handlers that ignore their timeout
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Named locks that handlers take. `token` grows with each owner, so that a late one can be fenced off.
CREATE TABLE {prefix}locks (
    name     TEXT PRIMARY KEY,
    owner    TEXT,
    token    INTEGER NOT NULL,
    until    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The one table that clients write. A process carries out a statement that is inserted here and answers in
-- its row. SQLite knows no users: what may write to the file may ask for anything.
CREATE TABLE {views}control (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    statement    TEXT NOT NULL CHECK (length(statement) <= 262144),
    requested_by TEXT CHECK (length(requested_by) <= 128),
    requested_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now') || '000Z'),
    role         TEXT NOT NULL DEFAULT 'admin',
    status       TEXT NOT NULL DEFAULT 'asked',
    answered_at  TEXT,
    rows         TEXT,             -- JSON
    more         INTEGER NOT NULL DEFAULT 0,  -- the answer had more rows than are stored
    error        TEXT
) STRICT;
CREATE INDEX {prefix}control_asked ON {views}control (id) WHERE status = 'asked';

-- Exceptions and actions that concern runs; routine transitions are read from runs and attempts.
CREATE TABLE {prefix}events (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    at     INTEGER NOT NULL,
    kind   TEXT NOT NULL,
    run_id TEXT,
    name   TEXT,
    detail TEXT
) STRICT;
CREATE INDEX {prefix}events_run ON {prefix}events (run_id, id) WHERE run_id IS NOT NULL;

-- What operators did, by whom and by which way.
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

-- Access to the HTTP API. A token is shown once, when it is made: only its hash is stored.
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

-- About the store itself: its installation, what made it (storage/schema.py), the switch of dispatch.
CREATE TABLE {prefix}meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
