-- Runs at every start, before the first job: jobs may count on what it makes.
CREATE TABLE IF NOT EXISTS orders (
    id       INTEGER,
    day      DATE,
    customer VARCHAR,
    product  VARCHAR,
    quantity INTEGER,
    price    DECIMAL(8, 2)
);
CREATE TABLE IF NOT EXISTS alerts (
    run_id    VARCHAR,
    job_name  VARCHAR,
    message   VARCHAR,
    failed_at TIMESTAMPTZ
);
