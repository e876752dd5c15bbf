"""Where the door is: a Unix socket beside the store, for its owner alone.

Only the process that has the DuckDB file open makes one, and DuckDB lets one process do so: what
another left behind after a crash can be replaced. A path that is too long for a socket gets a link
there, to a socket in a folder of its own.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
import time
from contextlib import suppress
from pathlib import Path

# Linux takes 107 bytes, others fewer.
LONGEST_PATH = 100
BACKLOG = 256  # commands that may wait to be let in
QUEUE_LOOK_SECONDS = 0.01

_FOLDER, _SOCKET = "rota-door-", "socket"


def door_of(store: str | Path, schema: str) -> Path:
    """Beside the file itself, whatever links lead there; an installation has its own."""
    return Path(f"{os.path.realpath(store)}.{schema}.sock")


def store_of(place: Path) -> Path:
    """The file whose door this is."""
    return place.with_name(place.stem.rpartition(".")[0])


class Listening:
    """A socket that listens, and the names it has in the file system."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._folder: str | None = None
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            clear(place)
            self._bind()
            # Nobody can connect before this, so nobody came while the mode was another one.
            self.socket.listen(BACKLOG)
            self._mark = _mark(place)
        except BaseException:
            self.socket.close()
            self._remove_folder()
            raise

    def _bind(self) -> None:
        path = _short(self.place)
        if path is not None:
            self.socket.bind(path)
            # By the whole path: a handler may move the process to another folder meanwhile.
            os.chmod(self.place, 0o600)
            return
        from tempfile import mkdtemp  # rarely needed, and commands shall be quick

        self._folder = mkdtemp(prefix=_FOLDER)
        path = os.path.join(self._folder, _SOCKET)
        self.socket.bind(path)
        os.chmod(path, 0o600)
        os.symlink(path, self.place)

    def remove(self) -> None:
        """Take the names away, unless somebody else has put something there."""
        with suppress(OSError):
            if _mark(self.place) == self._mark:
                os.unlink(self.place)
        self._remove_folder()

    def _remove_folder(self) -> None:
        if self._folder is not None:
            with suppress(OSError):
                os.unlink(os.path.join(self._folder, _SOCKET))
            with suppress(OSError):
                os.rmdir(self._folder)


def connect(place: Path, seconds: float) -> socket.socket | None:
    """None where nobody listens. PermissionError where somebody does, and it is not for us."""
    until = time.monotonic() + seconds
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.settimeout(seconds)
    try:
        while True:
            try:
                made.connect(_short(place) or os.readlink(place))
                return made
            except BlockingIOError:  # as many as may wait do; a timeout makes it say so at once
                if time.monotonic() > until:
                    raise
            time.sleep(QUEUE_LOOK_SECONDS)
    except PermissionError:
        made.close()
        raise
    except OSError:
        made.close()
        return None  # nothing there, no socket, nobody behind it, or one who takes nobody


def clear(place: Path) -> None:
    """Remove a door that leads nowhere. The caller has made sure that it does."""
    try:
        mode = os.lstat(place).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        _remove_ours(os.readlink(place))
    elif not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "something else has this name", str(place))
    os.unlink(place)


def _remove_ours(target: str) -> None:
    """What a link of ours led to; the link may be anybody's."""
    folder = os.path.dirname(target)
    if os.path.basename(target) != _SOCKET or not os.path.basename(folder).startswith(_FOLDER):
        return
    with suppress(OSError):
        if os.lstat(folder).st_uid == os.geteuid():
            os.unlink(target)
            os.rmdir(folder)


def peer(sock: socket.socket) -> tuple[int, int] | None:
    """Process and user at the other end, from the kernel; None where it does not tell."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    process, user, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, option, 12))
    return process, user


def _short(place: Path) -> str | None:
    """A path to it that a socket takes: from the root, or from here."""
    with suppress(OSError, ValueError):
        for path in (str(place), os.path.relpath(place)):
            if len(os.fsencode(path)) <= LONGEST_PATH:
                return path
    return None


def _mark(place: Path) -> tuple[int, int]:
    found = os.lstat(place)
    return found.st_dev, found.st_ino
