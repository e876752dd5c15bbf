"""What DuckDB said, as one of Rota's errors that names the way out."""

from __future__ import annotations

import duckdb

from rota.errors import ReadOnly, RotaError, StorageError, Unavailable, WrongSchema


def translate(fault: duckdb.Error, path: str) -> RotaError:
    """A message that names the case and the way out."""
    text = str(fault).splitlines()[0] if str(fault) else type(fault).__name__
    lowered = text.lower()
    if isinstance(fault, (duckdb.CatalogException, duckdb.BinderException)):
        if "does not exist" in lowered or "not found" in lowered:
            return WrongSchema(f"{path} holds no Rota store ({text}); run `rota migrate`")
        return StorageError(f"{path}: {text}")
    if "read-only" in lowered or "permission denied" in lowered:
        return ReadOnly(f"{path} cannot be written; check the permissions of it and its folder")
    if "no space left" in lowered or "disk full" in lowered:
        return Unavailable(f"the disk that holds {path} is full; free some space ({text})")
    if isinstance(fault, (duckdb.FatalException, duckdb.InternalException)):
        # DuckDB refuses everything from here on, until the process has opened the file anew.
        return Unavailable(f"DuckDB gave {path} up ({text}); start this process again")
    if isinstance(fault, duckdb.ConnectionException):
        return Unavailable(f"{path} was closed in this process ({text}); open it again")
    if isinstance(fault, duckdb.OutOfMemoryException):
        return Unavailable(f"{path}: DuckDB is out of memory ({text}); raise its memory_limit")
    if isinstance(fault, duckdb.TransactionException):
        return Unavailable(
            f"{path}: another transaction changed the same rows ({text}); leave Rota's own tables "
            "to Rota, and try again"
        )
    if isinstance(fault, duckdb.InterruptException):
        return Unavailable(f"{path}: a statement was interrupted; try again")
    return StorageError(f"{path}: {text}")
