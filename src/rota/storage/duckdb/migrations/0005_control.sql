-- Control rows: the one table that clients write. A statement that is inserted here is done by the
-- process that runs, and answered in its row. Whoever may write to the file may say anything.

CREATE SEQUENCE {prefix}control_id;

CREATE TABLE {views}control (
    id           BIGINT NOT NULL DEFAULT nextval('{prefix}control_id'),
    statement    VARCHAR NOT NULL CHECK (length(statement) <= 262144),
    requested_by VARCHAR CHECK (length(requested_by) <= 128),
    requested_at TIMESTAMPTZ NOT NULL DEFAULT current_timestamp,
    role         VARCHAR NOT NULL DEFAULT 'admin',
    status       VARCHAR NOT NULL DEFAULT 'asked',
    answered_at  TIMESTAMPTZ,
    rows         VARCHAR,
    more         BOOLEAN NOT NULL DEFAULT false,
    error        VARCHAR
);
