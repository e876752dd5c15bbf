-- When each version of a file job was first seen: of two, the later one is the job.

CREATE TABLE {prefix}job_versions (
    job     TEXT NOT NULL,
    version TEXT NOT NULL,
    seen_at INTEGER NOT NULL,
    PRIMARY KEY (job, version)
) STRICT, WITHOUT ROWID;
