"""The target of a run: its session, opened on first use, and its clean-up.

On DuckDB, runs on the same file run one at a time. At the end of a run, in any case, databases that
it attached are detached and its temporary secrets are dropped: other users of the instance could
use them, and they would collide with those of the next run.
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

POLL_SECONDS = 0.1
_VIEWS = re.compile(r"\b_rota\b", re.I)


class RunTarget:
    """The target of a run, with its session."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._session: Session | None = None

    def session(self) -> Session:
        """The session of the run, shared by its files."""
        if self._session is None:
            self._session = session_on(self.target.kind, self._connect())
        return self._session

    def extra_session(self) -> Session | None:
        """A second session that can restore the state of a DuckDB instance; else None."""
        return None

    def _connect(self) -> Any:
        try:
            return connect(self.target.url)
        except RotaError:
            raise
        except Exception as fault:
            raise Unavailable(f"target {self.target.name!r} does not answer: {fault}") from fault

    def provide_views(self, script: str, steps: Steps) -> None:
        """Copy Rota's views to a DuckDB target if the script uses them."""

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


class DuckRunTarget(RunTarget):
    def __init__(self, target: Target, instance: Instance, makes_secrets: bool) -> None:
        super().__init__(target)
        self._instance, self._makes_secrets = instance, makes_secrets
        self._attached_before, self._secrets_before = self._attached(), self._temporary_secrets()

    def extra_session(self) -> Session:
        return session_on(self.target.kind, self._instance.cursor())

    def _connect(self) -> Any:
        return self._instance.cursor()

    def provide_views(self, script: str, steps: Steps) -> None:
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

    def _temporary_secrets(self) -> set[str]:
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
                detach(cursor, self._attached() - self._attached_before)
            finally:
                drop_secrets(cursor, self._temporary_secrets() - self._secrets_before)


@contextmanager
def open_target(context: Context, target: Target, *, makes_secrets: bool) -> Iterator[RunTarget]:
    """Open the target of a run; `makes_secrets` if its SQL creates temporary secrets."""
    if target.kind != "duckdb" or (target.is_store and ":memory:" in target.path):
        yield from _until_closed(RunTarget(target))
        return
    instance = open_instance(target.path)
    try:
        with _run_lock(context, instance):
            yield from _until_closed(DuckRunTarget(target, instance, makes_secrets))
    finally:
        instance.close()


@contextmanager
def _run_lock(context: Context, instance: Instance) -> Iterator[None]:
    """Hold the run lock of a file; waits without limit, as other runs have timeouts."""
    if not instance.run_lock.acquire(blocking=False):
        runner, file = instance.runner or "another run", os.path.basename(instance.path)
        context.logger.info("waits for its turn: %s writes %s", runner, file)
        with context.waiting():
            while not instance.run_lock.acquire(timeout=POLL_SECONDS):
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


def _until_closed(run_target: RunTarget) -> Iterator[RunTarget]:
    try:
        yield run_target
    finally:
        try:
            run_target.close()
        except Exception as fault:  # the outcome of the run stays as it is
            name = run_target.target.name
            log.warning("target %s could not be left as it was: %s", name, fault)


def session_on(kind: str, connection: Any) -> Session:
    """A session on an open connection of a driver."""
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
