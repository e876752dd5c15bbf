-- Steps of SQL runs with the texts they ran, and files that handlers keep.

-- The text of a SQL file before interpolation, once, by its hash. `names` are the variables it
-- uses, as JSON: their values are never stored.
CREATE TABLE {prefix}job_texts (
    kept_at TIMESTAMPTZ NOT NULL,
    hash    TEXT COLLATE "C" PRIMARY KEY,
    text    TEXT NOT NULL,
    names   JSON NOT NULL
);

-- The files of a run as it began. Later attempts and a redo use these, not the folder.
CREATE TABLE {prefix}run_files (
    run_seq BIGINT NOT NULL,
    number  INTEGER NOT NULL,
    name    TEXT NOT NULL,
    hash    TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (run_seq, number)
);
CREATE INDEX run_files_hash ON {prefix}run_files (hash);

-- One row per attempt and file that was begun. It says 'running' for a step that is done, too:
-- whether it is done says step_marks, which is written in the transaction of the step itself.
CREATE TABLE {prefix}steps (
    run_seq     BIGINT NOT NULL,
    started_at  TIMESTAMPTZ NOT NULL,
    finished_at TIMESTAMPTZ,
    attempt     INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    name        TEXT NOT NULL,
    hash        TEXT COLLATE "C",
    status      TEXT COLLATE "C" NOT NULL,
    error       TEXT,
    note        TEXT,
    PRIMARY KEY (run_seq, attempt, number)
);

-- "Step done", inserted together with the step's own work where that is in this database. `void`:
-- an operator asked to begin again before it.
CREATE TABLE {prefix}step_marks (
    run_seq     BIGINT NOT NULL,
    finished_at TIMESTAMPTZ NOT NULL,
    rows        BIGINT,
    number      INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    void        BOOLEAN NOT NULL DEFAULT false,
    result      JSON,
    PRIMARY KEY (run_seq, number, attempt)
);

-- What ctx.storage keeps, shared by all runs.
CREATE TABLE {prefix}files (
    created_at   TIMESTAMPTZ NOT NULL,
    until        TIMESTAMPTZ,
    size         BIGINT NOT NULL,
    id           TEXT COLLATE "C" PRIMARY KEY,
    name         TEXT NOT NULL,
    content_type TEXT NOT NULL,
    sha256       TEXT NOT NULL,
    job          TEXT,
    run_id       UUID,
    content      BYTEA NOT NULL
);
CREATE INDEX files_until ON {prefix}files (until) WHERE until IS NOT NULL;
CREATE INDEX files_created ON {prefix}files (created_at, id);
