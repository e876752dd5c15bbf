-- Steps of SQL runs with the texts they ran, and files that handlers keep.

-- The text of a SQL file before interpolation, once, by its hash. `names` are the variables it
-- uses, as JSON: their values are never stored.
CREATE TABLE {prefix}job_texts (
    hash    VARCHAR NOT NULL,
    text    VARCHAR NOT NULL,
    names   VARCHAR NOT NULL,
    kept_at TIMESTAMPTZ NOT NULL
);

-- The files of a run as it began. Later attempts and a redo use these, not the folder.
CREATE TABLE {prefix}run_files (
    run_seq BIGINT NOT NULL,
    number  INTEGER NOT NULL,
    name    VARCHAR NOT NULL,
    hash    VARCHAR NOT NULL
);

-- One row per attempt and file that was begun. It says 'running' for a step that is done, too:
-- whether it is done says step_marks, which is written in the transaction of the step itself.
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

-- "Step done", inserted together with the step's own work where that is in this database. `void`:
-- an operator asked to begin again before it.
CREATE TABLE {prefix}step_marks (
    run_seq     BIGINT NOT NULL,
    number      INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    finished_at TIMESTAMPTZ NOT NULL,
    rows        BIGINT,
    result      VARCHAR,
    void        BOOLEAN NOT NULL DEFAULT false
);

-- What ctx.storage keeps, shared by all runs.
CREATE TABLE {prefix}files (
    id           VARCHAR NOT NULL,
    name         VARCHAR NOT NULL,
    content_type VARCHAR NOT NULL,
    size         BIGINT NOT NULL,
    sha256       VARCHAR NOT NULL,
    job          VARCHAR,
    run_id       VARCHAR,
    created_at   TIMESTAMPTZ NOT NULL,
    until        TIMESTAMPTZ,
    content      BLOB NOT NULL
);
