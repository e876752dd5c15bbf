-- Steps of SQL runs with the texts they ran, and files that handlers keep.

-- The text of a SQL file before interpolation, once, by its hash. `names` are the variables it
-- uses, as JSON: their values are never stored.
CREATE TABLE {prefix}job_texts (
    hash    TEXT PRIMARY KEY,
    text    TEXT NOT NULL,
    names   TEXT NOT NULL,
    kept_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The files of a run as it began. Later attempts and a redo use these, not the folder.
CREATE TABLE {prefix}run_files (
    run_seq INTEGER NOT NULL,
    number  INTEGER NOT NULL,
    name    TEXT NOT NULL,
    hash    TEXT NOT NULL,
    PRIMARY KEY (run_seq, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX {prefix}run_files_hash ON {prefix}run_files (hash);

-- One row per attempt and file that was begun. It says 'running' for a step that is done, too:
-- whether it is done says step_marks, which is written in the transaction of the step itself.
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

-- "Step done", inserted together with the step's own work where that is in this database. `void`:
-- an operator asked to begin again before it.
CREATE TABLE {prefix}step_marks (
    run_seq     INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    rows        INTEGER,
    result      TEXT,
    void        INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (run_seq, number, attempt)
) STRICT, WITHOUT ROWID;

-- What ctx.storage keeps, shared by all runs.
CREATE TABLE {prefix}files (
    id           TEXT PRIMARY KEY,
    name         TEXT NOT NULL,
    content_type TEXT NOT NULL,
    size         INTEGER NOT NULL,
    sha256       TEXT NOT NULL,
    job          TEXT,
    run_id       TEXT,
    created_at   INTEGER NOT NULL,
    until        INTEGER,
    content      BLOB NOT NULL
) STRICT;
CREATE INDEX {prefix}files_until ON {prefix}files (until) WHERE until IS NOT NULL;
CREATE INDEX {prefix}files_created ON {prefix}files (created_at, id);
