"""What SQLite said, as one of Rota's errors that names the way out."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rota.errors import ReadOnly, RotaError, StorageError, Unavailable, WrongSchema

BUSY_SECONDS = 10.0  # how long a connection waits before it says so


def is_busy(fault: sqlite3.Error) -> bool:
    """Somebody else has the file for now; the name says more while a crash is recovered from."""
    return fault.sqlite_errorname.startswith("SQLITE_BUSY")


@contextmanager
def translated(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as fault:
        raise translate(fault, path) from fault


def translate(fault: sqlite3.Error, path: str) -> RotaError:
    """A message that names the case and the way out."""
    text = str(fault)
    if "locked" in text or "busy" in text:
        return Unavailable(
            f"{path} was locked by another process for {BUSY_SECONDS:.0f} s; "
            "look for a long transaction in another program"
        )
    if "readonly" in text:
        return ReadOnly(f"{path} cannot be written; check the permissions of it and its folder")
    if "unable to open" in text:
        return Unavailable(
            f"{path} cannot be opened; check that the folder {Path(path).parent} exists "
            "and may be written"
        )
    if "full" in text:
        return Unavailable(f"the disk that holds {path} is full; free some space")
    if "not a database" in text:
        return WrongSchema(f"{path} is not a SQLite database; point `database` elsewhere")
    if "no such table" in text:
        return WrongSchema(f"{path} holds no Rota store ({text}); run `rota migrate`")
    return StorageError(f"{path}: {text}")
