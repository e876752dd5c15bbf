"""Where the files of a run are executed: a session on its target, opened when it is needed.

On DuckDB the runs of one file come one after the other. What a run attached is detached when it
ends, however it ended, and the secrets that it made are dropped: others would find them, and the
next run in its way.
"""

from __future__ import annotations

import logging
import os.path
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rota.duckdb_instances import Instance, open_instance
from rota.errors import RotaError, Unavailable
from rota.executors.context import Context
from rota.executors.sql.session import Interrupted, Session
from rota.executors.targets import Target, connect
from rota.model.steps import Steps

log = logging.getLogger("rota.sql")

LOOK_SECONDS = 0.1
_VIEWS = re.compile(r"\b_rota\b", re.I)


class Place:
    """The target of one run."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._session: Session | None = None

    def session(self) -> Session:
        """One for the whole run: what a file sets for its session, the next one finds."""
        if self._session is None:
            self._session = session_on(self.target.kind, self._connect())
        return self._session

    def aside(self) -> Session | None:
        """One beside that of the run, of which what is the instance's own stays; None where
        nothing would."""
        return None

    def _connect(self) -> Any:
        try:
            return connect(self.target.url)
        except RotaError:
            raise
        except Exception as fault:
            raise Unavailable(f"target {self.target.name!r} does not answer: {fault}") from fault

    def show_views(self, script: str, steps: Steps) -> None:
        """Let the script read Rota's views, where they are in another database."""

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


class DuckPlace(Place):
    def __init__(self, target: Target, instance: Instance, makes_secrets: bool) -> None:
        super().__init__(target)
        self._instance, self._makes_secrets = instance, makes_secrets
        self._before, self._secrets = self._attached(), self._made_secrets()

    def aside(self) -> Session:
        return session_on(self.target.kind, self._instance.cursor())

    def _connect(self) -> Any:
        return self._instance.cursor()

    def show_views(self, script: str, steps: Steps) -> None:
        from rota.executors.sql.snapshot import fill, is_free

        if self.target.is_store or not _VIEWS.search(script):
            return
        with self._instance.cursor() as cursor:
            if is_free(cursor):
                fill(cursor, steps)

    def _attached(self) -> set[str]:
        from rota.executors.sql.duckdb import attached

        with self._instance.cursor() as cursor:
            return attached(cursor)

    def _made_secrets(self) -> set[str]:
        from rota.executors.sql.duckdb import temporary_secrets

        if not self._makes_secrets:
            return set()
        with self._instance.cursor() as cursor:
            return temporary_secrets(cursor)

    def close(self) -> None:
        from rota.executors.sql.duckdb import detach, drop_secrets

        super().close()
        with self._instance.cursor() as cursor:
            try:
                detach(cursor, self._attached() - self._before)
            finally:
                drop_secrets(cursor, self._made_secrets() - self._secrets)


@contextmanager
def open_place(context: Context, target: Target, *, makes_secrets: bool) -> Iterator[Place]:
    """The target, until the run ends. `makes_secrets`: its SQL makes some that are not kept."""
    if target.kind != "duckdb" or (target.is_store and ":memory:" in target.path):
        yield from _until_closed(Place(target))
        return
    instance = open_instance(target.path)
    try:
        with _turn(context, instance):
            yield from _until_closed(DuckPlace(target, instance, makes_secrets))
    finally:
        instance.close()


@contextmanager
def _turn(context: Context, instance: Instance) -> Iterator[None]:
    """One run at a time. It waits as long as it takes: the others have timeouts of their own."""
    if not instance.run_lock.acquire(blocking=False):
        runner, file = instance.runner or "another run", os.path.basename(instance.path)
        context.logger.info("waits for its turn: %s writes %s", runner, file)
        with context.waiting():
            while not instance.run_lock.acquire(timeout=LOOK_SECONDS):
                if context.stop_reason is not None:
                    raise Interrupted
    try:
        instance.runner = f"run {context.run_id} of {context.job}"
        if context.waited:
            context.logger.info("its turn came after %.1f s", context.waited)
        yield
    finally:
        instance.runner = ""
        instance.run_lock.release()


def _until_closed(place: Place) -> Iterator[Place]:
    try:
        yield place
    finally:
        try:
            place.close()
        except Exception as fault:  # what the run did stands
            log.warning("target %s could not be left as it was: %s", place.target.name, fault)


def session_on(kind: str, connection: Any) -> Session:
    """A session over an open connection of a driver."""
    match kind:
        case "sqlite":
            from rota.executors.sql.sqlite import SqliteSession

            return SqliteSession(connection)
        case "postgres":
            from rota.executors.sql.postgres import PostgresSession

            return PostgresSession(connection)
        case _:
            from rota.executors.sql.duckdb import DuckSession

            return DuckSession(connection)
