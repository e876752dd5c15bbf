"""Open connections: where to, and how a session of ours behaves."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from rota.errors import Invalid, StorageError
from rota.model.url import ENCODE, check_url
from rota.storage.postgres.faults import translate
from rota.storage.postgres.session import Session

OLDEST_SERVER = 130_000

# What the URL does not say. A peer that vanished is noticed within a minute.
_DEFAULTS: dict[str, str | int] = {
    "application_name": "rota",
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}

# A transaction of ours is short: one that is left open holds locks that others need. Every
# statement of ours is a walk along an index, and each is planned once, as that: what the statistics
# of the moment say (none yet, an empty queue, a burst) must not turn a claim into a read of the
# whole table, and planning it anew would cost as much as running it.
LOCK_TIMEOUT = "10s"
_SESSION = f"""
SET timezone = 'UTC';
SET default_transaction_isolation = 'read committed';
SET client_min_messages = warning;
SET idle_in_transaction_session_timeout = '60s';
SET lock_timeout = '{LOCK_TIMEOUT}';
SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET jit = off
"""
# Behind a transaction pooler a session is shared with strangers; poolers follow this one setting.
_SHARED_SESSION = "SET timezone = 'UTC'"


class Address:
    """A server's database, and the way to show it without a password."""

    def __init__(self, url: str, *, prepare: bool) -> None:
        check_url(url, "the database URL")
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error:
            # Without the driver's words: they may repeat the password.
            raise Invalid(
                "the database URL cannot be understood; use postgresql://user@host/name, and "
                f"{ENCODE}"
            ) from None
        self._prepare = prepare
        self._parameters: dict[str, Any] = {**_DEFAULTS, **given}
        self.role = str(given.get("user") or "")
        host = given.get("host") or given.get("hostaddr") or ""
        port = f":{given['port']}" if given.get("port") else ""
        self.shown = f"postgresql://{host}{port}/{given.get('dbname') or self.role}"

    def connect(self, *, ours: bool = True) -> Session:
        """A new session in autocommit; for other people's SQL it is left as the server has it."""
        try:
            connection = Session.connect(
                **self._parameters, client_encoding="utf8", autocommit=True
            )
        except psycopg.Error as fault:
            raise translate(fault, self.shown, self.role) from fault
        try:
            if connection.info.server_version < OLDEST_SERVER:
                raise StorageError(
                    f"{self.shown} is PostgreSQL {connection.info.server_version // 10_000}; "
                    f"Rota needs {OLDEST_SERVER // 10_000}"
                )
            connection.prepares = self._prepare and ours
            connection.prepare_threshold = None  # what goes through a cursor is sent seldom
            if ours:
                connection.execute(_SESSION if self._prepare else _SHARED_SESSION)
        except psycopg.Error as fault:
            connection.close()
            raise translate(fault, self.shown, self.role) from fault
        except BaseException:
            connection.close()
            raise
        self.role = connection.info.user
        return connection
