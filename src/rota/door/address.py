"""The address of the local socket: a Unix socket beside the store, for its owner only.

Only the process that has the DuckDB file open creates it, and DuckDB lets one process do so.
Therefore a socket that is left from a crash can be replaced. If the path is too long for a socket,
it is a link to a socket in a temporary folder.
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

# Linux allows 107 bytes, other systems fewer.
LONGEST_PATH = 100
BACKLOG = 256  # connections that may wait for accept()
BACKLOG_POLL_SECONDS = 0.01

_FOLDER, _SOCKET = "rota-door-", "socket"


def socket_path(store: str | Path, schema: str) -> Path:
    """The socket of a store: beside the real file, one per installation (schema)."""
    return Path(f"{os.path.realpath(store)}.{schema}.sock")


def store_path(path: Path) -> Path:
    """The store file that a socket path belongs to."""
    return path.with_name(path.stem.rpartition(".")[0])


class ListeningSocket:
    """A listening socket, and its names in the file system."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._folder: str | None = None
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            clear(path)
            self._bind()
            # Clients can connect only after listen(), when the mode is 0600 already.
            self.socket.listen(BACKLOG)
            self._identity = _identity(path)
        except BaseException:
            self.socket.close()
            self._remove_folder()
            raise

    def _bind(self) -> None:
        address = _short_path(self.path)
        if address is not None:
            self.socket.bind(address)
            # By the absolute path: a handler may change the working directory meanwhile.
            os.chmod(self.path, 0o600)
            return
        from tempfile import mkdtemp  # rarely needed; commands start faster without it

        self._folder = mkdtemp(prefix=_FOLDER)
        address = os.path.join(self._folder, _SOCKET)
        self.socket.bind(address)
        os.chmod(address, 0o600)
        os.symlink(address, self.path)

    def remove(self) -> None:
        """Remove the names, unless the path is another file by now."""
        with suppress(OSError):
            if _identity(self.path) == self._identity:
                os.unlink(self.path)
        self._remove_folder()

    def _remove_folder(self) -> None:
        if self._folder is not None:
            with suppress(OSError):
                os.unlink(os.path.join(self._folder, _SOCKET))
            with suppress(OSError):
                os.rmdir(self._folder)


def open_socket(path: Path, seconds: float) -> socket.socket | None:
    """A connected socket, or None if no process listens; PermissionError if it refuses us."""
    until = time.monotonic() + seconds
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(seconds)
    try:
        while True:
            try:
                sock.connect(_short_path(path) or os.readlink(path))
                return sock
            except BlockingIOError:  # the backlog is full; with a timeout set it fails at once
                if time.monotonic() > until:
                    raise
            time.sleep(BACKLOG_POLL_SECONDS)
    except PermissionError:
        sock.close()
        raise
    except OSError:
        sock.close()
        return None  # no file, no socket, no listener, or no connection in time


def clear(path: Path) -> None:
    """Remove a stale socket. The caller has checked that no process listens there."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        _remove_temporary(os.readlink(path))
    elif not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "something else has this name", str(path))
    os.unlink(path)


def _remove_temporary(target: str) -> None:
    """Remove the temporary socket that a link points to, if the folder is ours.

    Any user may have made the link, so its target is checked."""
    folder = os.path.dirname(target)
    if os.path.basename(target) != _SOCKET or not os.path.basename(folder).startswith(_FOLDER):
        return
    with suppress(OSError):
        if os.lstat(folder).st_uid == os.geteuid():
            os.unlink(target)
            os.rmdir(folder)


def peer(sock: socket.socket) -> tuple[int, int] | None:
    """Process id and user id of the peer, from the kernel; None where that is not supported."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    process, user, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, option, 12))
    return process, user


def _short_path(path: Path) -> str | None:
    """The path, absolute or relative, if it is short enough for a socket."""
    with suppress(OSError, ValueError):
        for candidate in (str(path), os.path.relpath(path)):
            if len(os.fsencode(candidate)) <= LONGEST_PATH:
                return candidate
    return None


def _identity(path: Path) -> tuple[int, int]:
    status = os.lstat(path)
    return status.st_dev, status.st_ino
