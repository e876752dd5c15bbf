"""Every error Rota raises on purpose. Each message names the thing and the way out.

RotaError
├── Invalid              a value breaks a rule: bad cron, duration, name, payload, option
│   └── BadArguments     arguments do not fit the job's signature
├── Unknown              no such job, run, schedule, queue or lock
├── Conflict             the thing exists, but its state forbids the request
│   └── Outdated         somebody else has changed it since it was read
├── LockNotHeld          a lock was lost, or is already held
├── LeaseLost            an attempt is no longer this worker's: another one goes on with the run
├── MissingExtra         an optional part of Rota is not installed
└── StorageError         the database refused or did not answer
    ├── Unavailable      away or busy for now; trying again later may work
    ├── ReadOnly         the store cannot be written
    ├── WrongSchema      the store was made by another version of Rota
    ├── WrongConnection  a caller's connection that cannot carry an enqueue
    └── StaleSnapshot    a caller's SQLite transaction began before another one wrote
"""

from __future__ import annotations


class RotaError(Exception):
    """Base of all errors below."""


class Invalid(RotaError, ValueError):
    """A value breaks a rule; the message names the field and what is allowed."""


class BadArguments(Invalid):
    """Arguments do not fit the job's signature."""


class Unknown(RotaError, LookupError):
    """No such job, run, schedule, queue or lock."""


class Conflict(RotaError):
    """The thing exists, but its state forbids the request."""


class Outdated(Conflict):
    """Somebody else has changed the thing since it was read; read it again."""


class LockNotHeld(RotaError):
    """A lock was lost, or is already held."""


class LeaseLost(RotaError):
    """An attempt is no longer this worker's: another one goes on with the run."""


class MissingExtra(RotaError, ImportError):
    """An optional part of Rota is not installed."""


class StorageError(RotaError):
    """The database refused or did not answer."""


class Unavailable(StorageError):
    """The database is away or busy for now."""

    # True when the connection was lost while COMMIT was under way: only reading can tell.
    maybe_committed: bool = False
    # True when another process has a DuckDB file open, perhaps for a moment only.
    in_use: bool = False
    # True when another transaction held what was waited for; the database itself answers.
    locked: bool = False


class ReadOnly(StorageError):
    """The store cannot be written."""


class WrongSchema(StorageError):
    """The store was made by another version of Rota."""


class WrongConnection(StorageError, ValueError):
    """A caller's connection that cannot carry an enqueue."""


class StaleSnapshot(StorageError):
    """A caller's SQLite transaction began before another one wrote; begin with BEGIN IMMEDIATE."""
