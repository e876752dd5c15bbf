-- Who may use the HTTP API. Of a token only its hash is kept: it is shown once, when it is made.

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
