"""URLs of databases. An unencoded password is refused, because parts of it would be shown.

libpq reads `postgresql://shop:p@ss/w@host/db` as the password `p` and the host `ss`, with the rest
as a name. Host and name are shown as the address of the store.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rota.errors import Invalid

ENCODE = "percent-encode @ / # : ? in its password (p@ss is p%40ss)"
# Timeouts for a PostgreSQL server: a lost connection is noticed in a minute, not in two hours.
_TIMEOUTS: dict[str, str | int] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
_POSTGRES = ("postgresql", "postgres")
# As libpq reads it: user and password end at the first @, if no / comes before it.
_USER = re.compile(r"[^@/]*@")
_PORT = re.compile(r"[0-9]*")


def check_url(url: str, what: str) -> None:
    """Refuse a URL whose password leaks into its host, port or name, without repeating it."""
    scheme, _, rest = url.partition("://")
    if scheme not in _POSTGRES:
        return
    user = _USER.match(rest)
    address = rest[user.end() if user else 0 :].partition("?")[0]
    hosts = address.partition("/")[0].split(",")
    ports = [host.rpartition("]")[2].partition(":")[2] for host in hosts]
    if "@" in address or not all(_PORT.fullmatch(port) for port in ports):
        raise Invalid(f"{what} cannot be understood; {ENCODE}")


def with_timeouts(
    parameters: Mapping[str, str | int | None], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Connection parameters with our timeouts.

    Values in the parameters or the environment win. With a service file, which is not read here,
    nothing is added."""
    if parameters.get("service") or "PGSERVICE" in environment:
        return dict(parameters)
    timeouts = dict(_TIMEOUTS)
    if "PGCONNECT_TIMEOUT" in environment:
        del timeouts["connect_timeout"]
    return {**timeouts, **parameters}


def leave_out(scheme: str) -> str:
    """A hint about `postgresql+psycopg`, as SQLAlchemy writes a database and its driver."""
    driver = scheme.partition("+")[2]
    return f" (leave out '+{driver}')" if driver else ""
