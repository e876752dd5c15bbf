"""A session on SQLite and the other programs that use its file."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.executors.sql.sqlite import SqliteSession

# Holds the locks of a recovery, at the bytes where SQLite has them, over an index without a head.
RECOVERING = """
import fcntl, sys
WRITE, RECOVER, ALIVE = 120, 122, 128
with open(sys.argv[1] + "-shm", "r+b") as index:
    fcntl.lockf(index, fcntl.LOCK_SH, 1, ALIVE)
    fcntl.lockf(index, fcntl.LOCK_EX, 1, WRITE)
    fcntl.lockf(index, fcntl.LOCK_EX, 1, RECOVER)
    index.write(bytes(136))
    index.flush()
    print("recovering", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def recovering(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A file that another process recovers, as after a crash: nobody knows yet what is in it."""
    path = str(tmp_path / "data.db")
    first = sqlite3.connect(path, isolation_level=None)
    first.execute("PRAGMA journal_mode = wal")
    first.execute("CREATE TABLE t (i INTEGER)")
    with subprocess.Popen(
        [sys.executable, "-c", RECOVERING, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "recovering\n"
        yield path, other
        other.communicate()
    first.close()


def test_a_recovery_is_waited_for(recovering: tuple[str, subprocess.Popen[str]]) -> None:
    path, other = recovering
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA busy_timeout = 0")
    with pytest.raises(sqlite3.OperationalError) as met:
        connection.execute("BEGIN IMMEDIATE")
    assert met.value.sqlite_errorname == "SQLITE_BUSY_RECOVERY"
    looks = []

    def stopped() -> bool:
        looks.append("busy")
        if len(looks) == 1:
            other.communicate("enough\n")
        return False

    session = SqliteSession(connection)
    session.begin(stopped)
    assert looks == ["busy"]
    assert connection.execute("SELECT count(*) FROM t").fetchall() == [(0,)]
    session.close()
