"""Facts about the file of a store that has one."""

from __future__ import annotations

import os
import shutil
import stat

from rota.storage.engine import Row


def file_facts(path: str, wal: str) -> Row:
    """Size, log, modes, and the room that is left. Of Windows' rights a mode says nothing."""
    folder = os.path.dirname(os.path.abspath(path))
    found, around = os.stat(path), os.stat(folder)
    disk = shutil.disk_usage(folder)
    return {
        "file": path,
        "bytes": found.st_size,
        "wal_bytes": os.stat(wal).st_size if os.path.exists(wal) else 0,
        "mode": stat.S_IMODE(found.st_mode),
        "folder_mode": stat.S_IMODE(around.st_mode),
        "private_modes": os.name == "posix",
        "disk_free_bytes": disk.free,
        "disk_total_bytes": disk.total,
    }
