"""URLs of databases: one whose password is not encoded is refused, because parts of it would show.

Of `postgresql://shop:p@ss/w@host/db` the server's library makes the password `p`, the host `ss` and
the rest a name, and both would be told to everybody as where the store is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rota.errors import Invalid

ENCODE = "percent-encode @ / # : ? in its password (p@ss is p%40ss)"
# How we wait for a server of PostgreSQL: one that vanished is noticed within a minute, not after
# two hours.
_PATIENCE: dict[str, str | int] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
_POSTGRES = ("postgresql", "postgres")
# As libpq reads it: user and password end at the first @, if no / comes before it.
_WHO = re.compile(r"[^@/]*@")
_PORT = re.compile(r"[0-9]*")


def check_url(url: str, what: str) -> None:
    """Refuse a URL whose password leaks into its host, port or name. Nothing of it is repeated."""
    scheme, _, rest = url.partition("://")
    if scheme not in _POSTGRES:
        return
    who = _WHO.match(rest)
    place = rest[who.end() if who else 0 :].partition("?")[0]
    hosts = place.partition("/")[0].split(",")
    ports = [host.rpartition("]")[2].partition(":")[2] for host in hosts]
    if "@" in place or not all(_PORT.fullmatch(port) for port in ports):
        raise Invalid(f"{what} cannot be understood; {ENCODE}")


def with_patience(
    given: Mapping[str, str | int | None], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Parameters of a connection, with our patience where neither they, nor the environment, nor a
    service file that we do not read, may say otherwise."""
    if given.get("service") or "PGSERVICE" in environment:
        return dict(given)
    patience = dict(_PATIENCE)
    if "PGCONNECT_TIMEOUT" in environment:
        del patience["connect_timeout"]
    return {**patience, **given}


def leave_out(scheme: str) -> str:
    """What to do about `postgresql+psycopg`, as SQLAlchemy names a database and its driver."""
    driver = scheme.partition("+")[2]
    return f" (leave out '+{driver}')" if driver else ""
