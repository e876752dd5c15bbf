"""Rota runs SQL and Python on a timetable, inside the database you already have.

Names are loaded when they are first used, so that a command pays only for what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rota.version import VERSION

if TYPE_CHECKING:
    from rota.app import Rota
    from rota.errors import (
        BadArguments,
        Conflict,
        Invalid,
        LeaseLost,
        LockNotHeld,
        MissingExtra,
        Outdated,
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
    from rota.model.files import KeptFile
    from rota.model.verdicts import Cancel, Retry, Snooze
    from rota.task import ContextTask, Task

__all__ = [
    "BadArguments",
    "Cancel",
    "Conflict",
    "Context",
    "ContextTask",
    "Invalid",
    "KeptFile",
    "LeaseLost",
    "LockNotHeld",
    "MissingExtra",
    "Outdated",
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
    "__version__",
]

__version__ = VERSION

_HOMES = {
    "Rota": "rota.app",
    "Context": "rota.executors.context",
    "ContextTask": "rota.task",
    "KeptFile": "rota.model.files",
    "Cancel": "rota.model.verdicts",
    "Retry": "rota.model.verdicts",
    "Snooze": "rota.model.verdicts",
    "Task": "rota.task",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'rota' has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "rota.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
