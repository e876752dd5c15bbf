"""A store that is half gone, read-only or of another version, under processes that run."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

import rota
from rota.errors import ReadOnly, WrongSchema
from rota.storage import operations
from tests.fault.campaign import until

PATIENCE = 60.0
SHORT = 5.0  # where it is tried again


@pytest.fixture
def app(database: str) -> Iterator[rota.Rota]:
    made = rota.Rota(database, slots=2)

    @made.job()
    def work(ctx: rota.Context) -> str:
        return "done"

    made.schedule("often", job="work", every="500ms")
    made.start()
    yield made
    made.stop(grace="1s")


def execute(database: str, *statements: str) -> None:
    """As somebody else does."""
    if database.startswith("sqlite"):
        path = database.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as connection:
            for statement in statements:
                connection.execute(statement.format(prefix="_rota_", bare="_rota_"))
        return
    with psycopg.connect(database, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.format(prefix="rota_data.", bare="").encode())


def works(app: rota.Rota, seconds: float = PATIENCE) -> bool:
    """A run that is asked for now comes to its end."""
    try:
        run_id = app.enqueue("work").id
        until(
            lambda: app.storage.read(operations.get_run, run_id).state == "succeeded",
            "it ran",
            seconds,
        )
    except (rota.RotaError, AssertionError):
        return False
    return True


def is_red(app: rota.Rota, words: str) -> bool:
    return any(error is not None and words in error for error in app.health.values())


def all_green(app: rota.Rota) -> bool:
    return not any(app.health.values())


@pytest.mark.parametrize("table", ["runs", "schedules", "queues"])
def test_a_table_that_is_gone_is_named_and_work_goes_on_when_it_is_back(
    app: rota.Rota, database: str, table: str
) -> None:
    assert works(app)
    execute(database, f"ALTER TABLE {{prefix}}{table} RENAME TO {{bare}}{table}_gone")
    until(lambda: is_red(app, table), "health names the table", PATIENCE)
    assert is_red(app, "rota migrate")
    if table == "runs":
        with pytest.raises(WrongSchema, match="run `rota migrate`"):
            app.enqueue("work")
    execute(database, f"ALTER TABLE {{prefix}}{table}_gone RENAME TO {{bare}}{table}")
    until(lambda: works(app, SHORT), "work goes on", PATIENCE)
    until(lambda: all_green(app), "health is green", PATIENCE)


def test_a_server_that_became_read_only_is_named_and_work_goes_on_afterwards(
    postgres_url: str,
) -> None:
    name = psycopg.conninfo.conninfo_to_dict(postgres_url)["dbname"]
    for app in running(postgres_url):
        assert works(app)
        switch(postgres_url, f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        until(lambda app=app: is_red(app, "cannot be written"), "health says why", PATIENCE)
        with pytest.raises(ReadOnly, match="primary server"):
            app.enqueue("work")
        switch(postgres_url, f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        until(lambda app=app: works(app, SHORT), "work goes on", PATIENCE)


def running(database: str) -> Iterator[rota.Rota]:
    app = rota.Rota(database, slots=2)

    @app.job()
    def work(ctx: rota.Context) -> str:
        return "done"

    app.start()
    try:
        yield app
    finally:
        app.stop(grace="1s")


def switch(database: str, statement: str) -> None:
    """Sessions that are open keep what they began with: they are ended."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(statement.encode())
        connection.execute(
            """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid()"""
        )


def test_a_process_of_an_older_version_is_refused_and_one_that_runs_goes_on(
    app: rota.Rota, database: str
) -> None:
    """A newer Rota has migrated the store under an older one that runs."""
    assert works(app)
    execute(database, "UPDATE {prefix}meta SET value = '9999' WHERE key = 'schema_version'")
    late = rota.Rota(database)
    with pytest.raises(WrongSchema, match="newer"):
        late.start()
    late.close()
    assert works(app)


def test_two_processes_of_differing_definitions_each_do_what_they_know(
    database: str,
) -> None:
    """A rolling deploy: the newer one has a job more, and another idea of the one they share."""
    done: dict[str, set[str]] = {"old": set(), "new": set()}

    def make(name: str, *jobs: str, **options: Any) -> rota.Rota:
        app = rota.Rota(database, slots=2)
        for job in jobs:
            app.job(job, **options)(told(name, job))
        return app

    def told(name: str, job: str) -> Callable[[], str]:
        def handler() -> str:
            done[name].add(job)
            return name

        return handler

    old, new = make("old", "shared"), make("new", "shared", "added", max_attempts=5)
    for app in (old, new):
        app.start()
    try:
        ids = [new.enqueue("added").id for _ in range(10)]
        ids += [old.enqueue("shared").id for _ in range(10)]
        until(
            lambda: all(
                old.storage.read(operations.get_run, one).state == "succeeded" for one in ids
            ),
            "all",
            PATIENCE,
        )
        assert "added" not in done["old"]
        assert done["new"] >= {"added"}
        saved = old.storage.read(operations.jobs_named, ["shared", "added"])
        assert (saved["shared"].retry.max_attempts, saved["added"].retry.max_attempts) == (5, 5)
    finally:
        for app in (old, new):
            app.stop(grace="1s")
