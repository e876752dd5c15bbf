"""The first token: made when a store has none, and written where its owner finds it.

The file comes before the row. If the process dies in between, or the store was removed, the next
start finds the file and makes its token known: nobody is locked out, and there are never two.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from contextlib import suppress
from pathlib import Path

from rota.app import Rota
from rota.errors import Conflict
from rota.flow.tokens import new_text
from rota.model.roles import ADMIN
from rota.model.token import read_token
from rota.storage import operations
from rota.storage.operations.audit import Actor

log = logging.getLogger("rota.web")

TOKEN_FILE = ".rota/token"
FIRST = "first"
FILE_BYTES = 1_024


def ensure_token(app: Rota, path: Path) -> Path | None:
    """The file with an admin token, if this is where the first one was or is written."""
    if app.storage.read(operations.tokens_there)[0]:
        return path if path.exists() else None
    try:
        text = _read(path) or _write(path)
    except OSError as fault:
        log.warning("no token was written to %s (%s); `rota token create` makes one", path, fault)
        return None
    control = app.control_as(Actor(by="rota", via="first start"))
    with suppress(Conflict):  # another process was faster, with the same file or with its own
        control.adopt_token(FIRST, ADMIN, text)
    return path


def _read(path: Path) -> str | None:
    """What an earlier start wrote. A file that others can read is not trusted with more, and one
    that others wrote not at all: they would know the token of an admin."""
    try:
        _check_folder(path.parent)
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as fault:
        if fault.errno == errno.ELOOP:  # a link: replaced, not followed
            return None
        raise
    with open(handle, "rb") as file:
        told = os.fstat(handle)
        ours = stat.S_ISREG(told.st_mode) and told.st_uid == os.geteuid()
        if not ours or told.st_mode & 0o077:
            return None
        text = file.read(FILE_BYTES).decode("utf-8", "replace").strip()
    return text if read_token(text) is not None else None


def _check_folder(folder: Path) -> None:
    told = folder.lstat()
    if not stat.S_ISDIR(told.st_mode) or told.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "it is not a folder of the user who runs this")


def _write(path: Path) -> str:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    _check_folder(path.parent)
    ignore = path.parent / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
    text = new_text()
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(handle, 0o600)
        os.write(handle, f"{text}\n".encode())
    finally:
        os.close(handle)
    os.replace(fresh, path)
    return text
