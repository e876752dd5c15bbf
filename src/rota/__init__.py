"""Rota runs SQL and Python on a timetable, inside the database you already have."""

from __future__ import annotations

from rota.app import Rota
from rota.errors import (
    BadArguments,
    Conflict,
    Invalid,
    LockNotHeld,
    MissingExtra,
    ReadOnly,
    RotaError,
    StaleSnapshot,
    StorageError,
    Unavailable,
    Unknown,
    WrongConnection,
    WrongSchema,
)
from rota.executors.context import Context
from rota.model.verdicts import Cancel, Retry, Snooze
from rota.task import Task
from rota.version import VERSION

__version__ = VERSION

__all__ = [
    "BadArguments",
    "Cancel",
    "Conflict",
    "Context",
    "Invalid",
    "LockNotHeld",
    "MissingExtra",
    "ReadOnly",
    "Retry",
    "Rota",
    "RotaError",
    "Snooze",
    "StaleSnapshot",
    "StorageError",
    "Task",
    "Unavailable",
    "Unknown",
    "WrongConnection",
    "WrongSchema",
]
