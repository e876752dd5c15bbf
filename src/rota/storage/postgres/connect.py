"""Open connections: where to, and how a session of ours behaves."""

from __future__ import annotations

import logging
import os

import psycopg
from psycopg.conninfo import conninfo_to_dict

from rota.errors import Invalid, StorageError
from rota.model.url import ENCODE, check_url, with_timeouts
from rota.storage.postgres.faults import translate
from rota.storage.postgres.session import Session

log = logging.getLogger("rota.storage")

OLDEST_SERVER = 130_000

# A transaction of ours is short: one that is left open holds locks that others need. Every
# statement of ours is a walk along an index, and each is planned once, as that: what the statistics
# of the moment say (none yet, an empty queue, a burst) must not turn a claim into a read of the
# whole table, and planning it anew would cost as much as running it.
LOCK_TIMEOUT = "10s"
_OURS = {
    "timezone": "UTC",
    "default_transaction_isolation": "read committed",
    "client_min_messages": "warning",
    "idle_in_transaction_session_timeout": "60s",
    "lock_timeout": LOCK_TIMEOUT,
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
}
_VALUES = ", ".join(f"('{name}', '{value}')" for name, value in _OURS.items())
_SESSION = f"""
SELECT set_config(name, value, false)
  FROM (VALUES {_VALUES}) AS ours(name, value)
 WHERE pg_backend_pid() = %s
"""
# A pooler answers the handshake itself, and the process it names is none of the server's. The
# session may be shared with strangers, or be ours alone: that cannot be seen from here. So each
# transaction is set instead, and a statement that is sent alone goes without.
_LOCALLY = "".join(f"; SET LOCAL {name} = '{value}'" for name, value in _OURS.items()).encode()
# The one of ours that PgBouncer follows from session to session, and the only one set there.
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
        self._prepare, self._told = prepare, False
        self.pooled = False  # found when the first session is opened
        told = {"application_name": "rota", **given}
        self._parameters = with_timeouts(told, os.environ)
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
            connection.prepare_threshold = None  # what goes through a cursor is sent seldom
            connection.prepares = ours and self._prepare and _set_up(connection)
            if ours and not connection.prepares:
                connection.execute(_SHARED_SESSION)
                connection.locally = _LOCALLY
                self.pooled = True
                self._tell()
        except psycopg.Error as fault:
            connection.close()
            raise translate(fault, self.shown, self.role) from fault
        except BaseException:
            connection.close()
            raise
        self.role = connection.info.user
        return connection

    def _tell(self) -> None:
        """Once, of a pooler that was found and not asked for."""
        if self._prepare and not self._told:
            self._told = True
            log.info(
                "%s is behind a pooler: no statement is prepared, and what our sessions are set to "
                "is set in each transaction",
                self.shown,
            )


def _set_up(connection: Session) -> bool:
    """False where the session is a pooler's, and left as it is; both in one round trip."""
    found = connection.execute(_SESSION, (connection.info.backend_pid,))
    return found.rowcount > 0
