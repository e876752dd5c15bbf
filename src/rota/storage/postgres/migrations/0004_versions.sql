-- When each version of a file job was first seen: of two, the later one is the job.

CREATE TABLE {prefix}job_versions (
    job     TEXT COLLATE "C" NOT NULL,
    version TEXT COLLATE "C" NOT NULL,
    seen_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (job, version)
);
