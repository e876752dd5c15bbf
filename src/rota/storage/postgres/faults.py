"""What the server or the driver said, as one of Rota's errors that names the way out."""

from __future__ import annotations

import psycopg

from rota.errors import ReadOnly, RotaError, StorageError, Unavailable, WrongSchema

# A transaction that ended with one of these may be run again: serialization failure, deadlock.
REPEATABLE = frozenset({"40001", "40P01"})
# Somebody else's transaction held a lock for longer than we wait.
LOCKED = "55P03"

_AWAY = "check that the server runs and can be reached"
_GRANT_CREATE = (
    "grant the role CREATE on the database, or let somebody who may create the schemas for it"
)
_CREATE_ROLE = (
    "roles are made by a login with CREATEROLE: ALTER ROLE … CREATEROLE, or let somebody who has "
    "it run the SQL of `rota migrate --roles --plan`"
)
_UNAVAILABLE = {
    "53100": "the server's disk is full; free some space",
    "53200": "the server is out of memory",
    "53300": "the server has no connection left; lower pool_size or raise max_connections",
    LOCKED: "another transaction held a lock for too long; look for one that stays open",
    "57014": "the server cancelled the statement; look at statement_timeout of this role",
    "57P01": "the server is shutting down or ended this connection",
    "57P02": "the server crashed and is starting again",
    "57P03": "the server is starting up or shutting down",
    "40001": "the transaction conflicted with others too often; try again",
    "40P01": "the transaction conflicted with others too often; try again",
}
# A failed connect has no code, only the server's words.
_NO_CONNECTION = {
    "too many clients": _UNAVAILABLE["53300"],
    "remaining connection slots": _UNAVAILABLE["53300"],
    "too many connections": _UNAVAILABLE["53300"],
    "authentication failed": "check user and password",
    "no password supplied": "put the password into the URL, PGPASSWORD or a password file",
    "no pg_hba.conf entry": "let this host and role in, in the server's pg_hba.conf",
    'role "': "check the name of the user: the server must have this role, with LOGIN",
    "does not exist": "check the name of the database, or make it with `createdb`",
    "could not translate host name": "check the name of the host",
    "failed to resolve host": "check the name of the host",
    "name or service not known": "check the name of the host",  # psycopg before 3.2.13
    "starting up": _UNAVAILABLE["57P03"],
    "shutting down": _UNAVAILABLE["57P03"],
}


def translate(fault: psycopg.Error, address: str, role: str, schema: str = "rota") -> RotaError:
    """`address` names host and database, never the password."""
    code, text = fault.sqlstate or "", _said(fault)
    if code in _UNAVAILABLE:
        away = Unavailable(f"{address}: {_UNAVAILABLE[code]} ({text})")
        away.locked = code == LOCKED
        return away
    match code:
        case "25006":
            return ReadOnly(
                f"{address} cannot be written ({text}); point `database` at the primary server"
            )
        case "3F000" | "42P01" | "42703" | "42883":
            return WrongSchema(f"{address} holds no Rota store ({text}); run `rota migrate`")
        case "42501":
            way = _privilege(text, role, schema)
            return StorageError(f"{address}: role {role!r} lacks a privilege ({text}); {way}")
    if code.startswith("08") or (not code and isinstance(fault, psycopg.OperationalError)):
        return Unavailable(f"{address} does not answer ({text}); {_hint(text)}")
    return StorageError(f"{address}: {text}")


def _privilege(text: str, role: str, schema: str) -> str:
    if "for database" in text:
        return _GRANT_CREATE
    if "create role" in text or "grant role" in text:
        return _CREATE_ROLE
    return (
        f'GRANT {schema}_worker TO "{role}" (`rota migrate --roles` makes that role), or run Rota '
        "as the owner of its schemas"
    )


def _hint(text: str) -> str:
    lowered = text.lower()
    return next((hint for words, hint in _NO_CONNECTION.items() if words in lowered), _AWAY)


def _said(fault: psycopg.Error) -> str:
    if fault.diag.message_primary:
        return fault.diag.message_primary
    # A failed connect tells of each address it tried, a line each; the last one is the reason.
    lines = [line.strip() for line in str(fault).splitlines()]
    told = [line for line in lines if line and not line.startswith("Is the server running")]
    return told[-1].removeprefix("connection failed: ") if told else type(fault).__name__
