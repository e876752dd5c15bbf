-- When each version of a file job was first seen: of two, the later one is the job.

CREATE TABLE {prefix}job_versions (
    job     VARCHAR NOT NULL,
    version VARCHAR NOT NULL,
    seen_at TIMESTAMPTZ NOT NULL
);
