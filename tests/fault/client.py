"""A client that asks for runs of every kind, and writes down what was answered.

What is written down as acknowledged must never be lost. What got no answer may exist or not.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import duckdb
import psycopg

import rota
from rota.model.run import Enqueued
from rota.storage.sqlite.connect import path_from_url
from tests.fault.notes import Notebook

PAUSE_SECONDS = 0.06
KEYS = 3  # few, so that runs wait for each other
ONCE_KEYS_SECONDS = 0.5  # how long all clients of all processes name the same key


class Client:
    def __init__(
        self, app: rota.Rota, notebook: Notebook, luck: random.Random, *, pause: float = 0.0
    ) -> None:
        self.app, self.notebook, self.luck = app, notebook, luck
        self.pause = pause or float(os.environ.get("ROTA_TEST_PAUSE", PAUSE_SECONDS))
        self.once_for = float(os.environ.get("ROTA_TEST_ONCE_SECONDS", ONCE_KEYS_SECONDS))
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="client", daemon=True)
        self.wishes: list[Callable[[], None]] = [
            self.plain, self.plain, self.batch, self.quick, self.keyed, self.keyed, self.keyed,
            self.flaky, self.once, self.delayed, self.late, self.on_connection, self.cancelled,
            self.long,
        ]  # fmt: skip
        if wish := os.environ.get("ROTA_TEST_WISH"):
            self.wishes += [getattr(self, wish)] * len(self.wishes)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def monotonic(self) -> float:
        return time.monotonic()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.luck.choice(self.wishes)()
            self._stopping.wait(self.luck.uniform(0, 2 * self.pause))

    # Wishes

    def plain(self) -> None:
        self.ask("plain", {"seconds": self.luck.choice([0.0, 0.0, 0.02])})

    def long(self) -> None:
        """Longer than a third of a lease, so that it must be renewed."""
        if self.luck.random() < 0.2:
            self.ask("plain", {"seconds": 1.2})

    def batch(self) -> None:
        self.ask_many("plain", [{"seconds": 0.0}] * 3)

    def quick(self) -> None:
        self.ask("quick", {})

    def keyed(self) -> None:
        key = f"key-{self.luck.randrange(KEYS)}"
        args = {"key": key, "seconds": self.luck.choice([0.0, 0.01, 0.05])}
        self.ask("keyed", args, concurrency_key=key)

    def flaky(self) -> None:
        self.ask("flaky", {})

    def once(self) -> None:
        """All clients name the same key for a while: one of them makes the run."""
        self.ask("plain", {}, key=f"once-{int(time.time() / self.once_for)}")

    def delayed(self) -> None:
        self.ask("plain", {}, delay=self.luck.choice(["50ms", "300ms"]))

    def late(self) -> None:
        """In line for a key only when its time has come."""
        self.ask("keyed", {"key": "late"}, delay="50ms", concurrency_key="late")

    def on_connection(self) -> None:
        """A run that exists exactly if the client's own transaction commits."""

        def ask() -> list[Enqueued]:
            with closing(self._connect()) as connection:
                made = self.app.enqueue("plain", {}, connection=connection)
                if self.luck.random() < 0.3:
                    connection.rollback()
                    self.notebook.write("rolled back", run=made.id)
                    return []
                connection.commit()
                return [made]

        self._record(ask, job="plain")

    def _connect(self) -> Any:
        database = self.app.settings.database
        if database.startswith("sqlite"):
            connection = sqlite3.connect(path_from_url(database), timeout=10, isolation_level=None)
            connection.execute("BEGIN IMMEDIATE")
            return connection
        if database.startswith("duckdb"):
            return duckdb.connect(database.removeprefix("duckdb:///")).begin()
        return psycopg.connect(database, connect_timeout=10)

    def cancelled(self) -> None:
        """Asked to end before it starts, or while it runs."""
        if self.luck.random() < 0.5:
            asked = self.ask("plain", {"seconds": 0.05}, delay="100ms", doomed=True)
        else:
            asked = self.ask("plain", {"seconds": 0.5}, doomed=True)
            self._stopping.wait(0.05)
        for run_id in asked:
            try:
                self.app.control.cancel(run_id)
            except rota.Conflict:
                pass  # it has ended already
            except rota.Unavailable as fault:
                self.notebook.write("refused", error=str(fault))

    # Asking

    def ask(
        self, job: str, args: dict[str, Any], *, doomed: bool = False, **options: Any
    ) -> list[str]:
        return self._record(
            lambda: [self.app.enqueue(job, args, **options)], job=job, doomed=doomed, **options
        )

    def ask_many(self, job: str, payloads: Sequence[dict[str, Any]]) -> None:
        self._record(lambda: self.app._enqueue(job, payloads, {}, None, True), job=job)

    def _record(self, ask: Callable[[], Sequence[Enqueued]], **about: Any) -> list[str]:
        asked = self.monotonic()
        try:
            answers = ask()
        except rota.Unavailable as fault:
            self.notebook.write("refused", asked=asked, error=str(fault))
            return []
        except (sqlite3.OperationalError, psycopg.Error, duckdb.Error) as fault:
            # On the client's own connection: it must expect what its driver says.
            self.notebook.write("own connection", asked=asked, error=str(fault))
            return []
        except Exception as fault:  # nothing else may reach a user
            self.notebook.write("surprise", asked=asked, error=repr(fault))
            return []
        ids = [answer.id for answer in answers]
        for answer in answers:
            self.notebook.write(
                "acked", run=answer.id, created=answer.created, asked=asked, **about
            )
        return ids
