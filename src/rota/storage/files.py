"""The file of a store that has one."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from rota.storage.engine import Row


def make_private(path: str) -> None:
    """A file that is not there yet is made for its owner alone: it will hold arguments. What keeps
    it from being made is said by the database, which tries again."""
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def file_facts(path: str, wal: str) -> Row:
    """Size, log, modes, and the room that is left."""
    folder = os.path.dirname(os.path.abspath(path))
    found, around = os.stat(path), os.stat(folder)
    disk = os.statvfs(folder)
    return {
        "file": path,
        "bytes": found.st_size,
        "wal_bytes": os.stat(wal).st_size if os.path.exists(wal) else 0,
        "mode": stat.S_IMODE(found.st_mode),
        "folder_mode": stat.S_IMODE(around.st_mode),
        "disk_free_bytes": disk.f_bavail * disk.f_frsize,
        "disk_total_bytes": disk.f_blocks * disk.f_frsize,
    }
