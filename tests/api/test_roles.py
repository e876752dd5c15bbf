"""Roles of PostgreSQL: a viewer looks, an operator operates, a worker works; nobody does more."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import psycopg
import pytest
from psycopg import errors

import rota
from rota.errors import Invalid, StorageError
from rota.model.views import VIEWS
from rota.storage.postgres import engine
from rota.storage.statements import load_migrations
from rota.storage.store import open_store
from tests.api.support import wait_until
from tests.api.test_sql_jobs import ended

Connection = psycopg.Connection[Any]
DENIED = errors.InsufficientPrivilege


@dataclass
class Place:
    """A store whose schema, and so whose roles, are the test's own: roles are the server's."""

    url: str
    schema: str
    password: str

    def login(self, role: str | None) -> str:
        """The name of somebody who has that role, or none."""
        return f"{self.schema}_a_{role or 'nobody'}"

    def url_of(self, role: str | None) -> str:
        parts = urlsplit(self.url)
        address = parts.netloc.rpartition("@")[2]
        who = f"{quote(self.login(role))}:{quote(self.password)}"
        return parts._replace(netloc=f"{who}@{address}").geturl()

    def connect(self, role: str | None) -> Connection:
        return psycopg.connect(self.url_of(role), autocommit=True)

    def app(self, role: str | None = None) -> rota.Rota:
        """An app of the owner, or of somebody with a role."""
        return rota.Rota(self.url if role is None else self.url_of(role), schema=self.schema)


ROLES = ("viewer", "operator", "worker")


@pytest.fixture
def place(postgres_url: str) -> Iterator[Place]:
    place = Place(postgres_url, f"t{secrets.token_hex(4)}", secrets.token_urlsafe(12))
    store = open_store(postgres_url, schema=place.schema)
    store.migrate()
    store.grant_roles()
    store.grant_roles()  # what is there is no fault
    store.close()
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        for role in (*ROLES, None):
            name = place.login(role)
            admin.execute(f"CREATE ROLE \"{name}\" LOGIN PASSWORD '{place.password}'")
            if role is not None:
                admin.execute(f'GRANT "{place.schema}_{role}" TO "{name}"')
    yield place
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        for name in (*map(place.login, (*ROLES, None)), *(f"{place.schema}_{r}" for r in ROLES)):
            admin.execute(f'DROP OWNED BY "{name}"')
            admin.execute(f'DROP ROLE "{name}"')


@pytest.fixture
def app(place: Place) -> Iterator[rota.Rota]:
    """The owner's, with a job, a schedule, and runs that know a secret."""
    app = place.app()

    @app.job
    def work(note: str = "") -> None:
        if note == "fail":
            raise RuntimeError("told to")

    app.schedule("s", job="work", every="1h", args={"note": "hush-hush"})
    app.load()
    app.enqueue("work", {"note": "hush-hush"})
    yield app
    app.stop(grace="0s")


def refused(connection: Connection, *statements: str) -> None:
    for statement in statements:
        with pytest.raises(DENIED):
            connection.execute(statement)


def functions(schema: str) -> list[str]:
    return [
        f"SELECT {schema}.enqueue('work')", f"SELECT {schema}.trigger_job('work')",
        f"SELECT {schema}.pause_schedule('s')", f"SELECT {schema}.resume_schedule('s')",
        f"SELECT {schema}.cancel_run((SELECT run_id FROM {schema}.runs LIMIT 1))",
    ]  # fmt: skip


def private(schema: str) -> list[str]:
    return [
        f"SELECT * FROM {schema}_data.runs", f"SELECT * FROM {schema}_data.meta",
        f"INSERT INTO {schema}_data.meta VALUES ('a', 'b')", f"DELETE FROM {schema}_data.runs",
        f"UPDATE {schema}.schedules SET paused = true", f"DELETE FROM {schema}.schedules",
        f"CREATE TABLE {schema}.mine (id int)", f"CREATE TABLE {schema}_data.mine (id int)",
        f"SELECT {schema}_data.record('a', 'b', 'c', 'd', 'e')",
    ]  # fmt: skip


def test_nobody_may_do_anything(place: Place, app: rota.Rota) -> None:
    schema = place.schema
    with place.connect(None) as nobody:
        refused(nobody, *private(schema), *functions(schema))
        refused(nobody, *(f"SELECT * FROM {schema}.{view}" for view in VIEWS))
        refused(nobody, f"INSERT INTO {schema}.control (statement) VALUES ('SHOW JOBS')")


def test_who_lacks_a_privilege_is_told_which_role_has_it(place: Place, app: rota.Rota) -> None:
    app.load()
    way = f'GRANT {place.schema}_worker TO "{place.login(None)}" (`rota migrate --roles` makes'
    stranger = rota.Rota(place.url_of(None), schema=place.schema)
    with pytest.raises(StorageError) as told:
        stranger.enqueue("work", {"note": "x"})
    assert way in str(told.value)
    stranger.close()
    with psycopg.connect(place.url_of(None)) as theirs, pytest.raises(StorageError) as told:
        app.enqueue("work", {"note": "x"}, connection=theirs)
    assert way in str(told.value)


def test_who_may_not_make_roles_is_told_how(place: Place) -> None:
    owner = f"{place.schema}_owner"
    with psycopg.connect(place.url, autocommit=True) as admin:
        database = admin.info.dbname
        admin.execute(f"CREATE ROLE \"{owner}\" LOGIN PASSWORD '{place.password}'")
        admin.execute(f'GRANT CREATE ON DATABASE "{database}" TO "{owner}"')
        try:
            parts = urlsplit(place.url)
            who = f"{owner}:{quote(place.password)}@{parts.netloc.rpartition('@')[2]}"
            store = open_store(parts._replace(netloc=who).geturl(), schema=f"{place.schema}_x")
            store.migrate()
            with pytest.raises(StorageError) as told:
                store.grant_roles()
            store.close()
        finally:
            admin.execute(f'DROP OWNED BY "{owner}" CASCADE')
            admin.execute(f'DROP ROLE "{owner}"')
    assert f"role {owner!r} lacks a privilege" in str(told.value)
    assert "CREATEROLE" in str(told.value)
    assert "`rota migrate --roles --plan`" in str(told.value)


def test_a_viewer_reads_the_views_and_nothing_else(place: Place, app: rota.Rota) -> None:
    schema = place.schema
    app.start()
    run_id = app.enqueue("work", {"note": "hush-hush"}).id
    assert ended(app, run_id).state == "succeeded"
    wait_until(app.control.workers, "the row of the worker")
    with place.connect("viewer") as viewer:
        for view in VIEWS:
            rows = viewer.execute(f"SELECT * FROM {schema}.{view}").fetchall()
            assert rows or view in ("job_queue", "occurrences", "steps", "dead"), view
            assert "hush-hush" not in str(rows), view
        refused(viewer, *private(schema), *functions(schema))
        refused(
            viewer,
            f"SELECT * FROM {schema}.control",
            f"INSERT INTO {schema}.control (statement) VALUES ('PAUSE SCHEDULE s')",
        )


def test_an_operator_pauses_resumes_cancels_and_runs(place: Place, app: rota.Rota) -> None:
    schema = place.schema
    with place.connect("operator") as operator:
        for view in VIEWS:
            operator.execute(f"SELECT * FROM {schema}.{view}")
        for call in functions(schema)[:4]:
            operator.execute(call)
        (made,) = operator.execute(f"SELECT {schema}.enqueue('work', delay => '1h')").fetchall()
        cancelled = operator.execute(f"SELECT {schema}.cancel_run(%s)", made).fetchone()
        assert cancelled == ("cancelled",)
        refused(operator, *private(schema))
    by = {one["by"] for one in app.control.audit() if one["via"] == "function"}
    assert by == {place.login("operator")}


def ask(connection: Connection, schema: str, statement: str) -> tuple[Any, ...]:
    """The answer: status, who asked, what went wrong."""
    told = connection.execute(
        f"INSERT INTO {schema}.control (statement) VALUES (%s) RETURNING id", (statement,)
    ).fetchone()
    found: list[tuple[Any, ...]] = []

    def answered() -> bool:
        row = connection.execute(
            f"SELECT status, requested_by, error FROM {schema}.control WHERE id = %s", told
        ).fetchone()
        assert row is not None
        found[:] = [row]
        return bool(row[0] != "asked")

    wait_until(answered, f"{statement} was answered")
    return found[0]


def test_an_operators_rows_are_his_own_and_do_not_say_which_sql_runs(
    place: Place, app: rota.Rota
) -> None:
    schema, me = place.schema, place.login("operator")
    app.start()
    with (
        place.connect("operator") as operator,
        psycopg.connect(place.url, autocommit=True) as owner,
    ):
        assert ask(operator, schema, "PAUSE SCHEDULE s") == ("done", me, None)
        assert app.control.schedule("s").paused_by == me
        assert ask(operator, schema, "RUN JOB work")[0] == "done"
        created = "CREATE SCHEDULE t FOR JOB work EVERY '1h'"
        assert ask(operator, schema, created)[0] == "done"
        body = "CREATE SCHEDULE q AS $$ SELECT 1 $$ EVERY '1h'"
        status, _, error = ask(operator, schema, body)
        assert status == "failed"
        assert f"{me} may not say which SQL runs" in error
        own = owner.execute("SELECT current_user").fetchone()
        assert own is not None
        assert ask(owner, schema, body) == ("done", own[0], None)
        for told in ("AS $$ SELECT 2 $$", "ON elsewhere", "run_as = 'somebody'"):
            assert ask(operator, schema, f"ALTER SCHEDULE q SET {told}")[0] == "failed", told
        assert ask(operator, schema, "ALTER SCHEDULE q SET EVERY '2h'")[0] == "done"
        seen = operator.execute(f"SELECT DISTINCT requested_by FROM {schema}.control").fetchall()
        assert seen == [(me,)]
        refused(
            operator,
            f"INSERT INTO {schema}.control (statement, requested_by) VALUES ('SHOW JOBS', 'root')",
            f"INSERT INTO {schema}.control (statement, role) VALUES ('SHOW JOBS', 'admin')",
            f"UPDATE {schema}.control SET status = 'asked'",
            f"UPDATE {schema}.control SET requested_by = 'root'",
            f"DELETE FROM {schema}.control",
        )


def test_who_asks_cannot_be_written_by_anybody(place: Place, app: rota.Rota) -> None:
    with psycopg.connect(place.url, autocommit=True) as owner:
        found = owner.execute(
            f"INSERT INTO {place.schema}.control (statement, requested_by, requested_at, role, "
            "status, rows, error) VALUES ('SHOW JOBS', 'somebody', '2000-01-01Z', 'operator', "
            "'done', '[]', 'x') RETURNING requested_by, requested_at > '2020-01-01Z', role, "
            "status, rows, error"
        ).fetchone()
        assert found == (owner.info.user, True, "admin", "asked", None, None)


def test_a_process_works_as_worker(place: Place, app: rota.Rota) -> None:
    schema = place.schema
    worker = place.app("worker")

    @worker.job
    def work(note: str = "") -> None:
        if note == "fail":
            raise RuntimeError("told to")

    worker.start()
    try:
        assert worker.storage.migrate() == []
        good, bad = (
            app.enqueue("work", {"note": note}, max_attempts=1).id for note in ("", "fail")
        )
        assert ended(app, good).state == "succeeded"
        assert "told to" in str(ended(app, bad).error)
        worker.schedule("often", job="work", every="1h", first_run=app.control.now())
        wait_until(lambda: app.control.runs(schedule="often"), "its schedule fired")
        with place.connect("operator") as operator:
            assert ask(operator, schema, "PAUSE SCHEDULE often")[0] == "done"
            assert ask(operator, schema, "SHOW SCHEDULES")[0] == "done"
        assert set(worker.health.values()) == {None}
    finally:
        worker.stop(grace="5s")
    with place.connect("worker") as connection:
        refused(connection, *functions(schema))
        refused(connection, f"CREATE TABLE {schema}_data.mine (id int)")
        refused(connection, f"ALTER TABLE {schema}_data.runs ADD COLUMN mine int")
        refused(connection, f"INSERT INTO {schema}.control (statement) VALUES ('SHOW JOBS')")


def test_python_enqueues_as_worker_and_sql_as_operator(place: Place, app: rota.Rota) -> None:
    worker, operator = place.app("worker"), place.app("operator")
    with psycopg.connect(place.url_of("worker")) as connection:
        made = worker.enqueue("work", connection=connection)
    assert app.control.run(made.id).state == "queued"
    with pytest.raises(rota.RotaError):
        operator.enqueue("work")
    with place.connect("operator") as connection:
        asked = connection.execute(f"SELECT {place.schema}.enqueue('work')").fetchone()
    assert asked is not None
    assert app.control.run(str(asked[0])).state == "queued"
    worker.close()
    operator.close()


# Making them


def test_a_migration_renews_the_grants(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_more(*asked: Any) -> list[tuple[int, str, str]]:
        found = load_migrations(*asked)
        later = f"CREATE VIEW {place.schema}.later AS SELECT 1 AS one"
        return [*found, (found[-1][0] + 1, "later", later)]

    monkeypatch.setattr(engine, "load_migrations", one_more)
    store = open_store(place.url, schema=place.schema)
    assert [name.partition("_")[2] for name in store.migrate()] == ["later"]
    store.close()
    with place.connect("viewer") as viewer:
        assert viewer.execute(f"SELECT one FROM {place.schema}.later").fetchall() == [(1,)]


def test_a_worker_may_write_ids_also_if_the_migration_was_cut_off_before_its_grants(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = f"t{secrets.token_hex(4)}"
    whole = engine.load_migrations

    def older(name: str, substitutions: dict[str, str]) -> list[tuple[int, str, str]]:
        return [one for one in whole(name, substitutions) if one[0] <= 12]

    store = open_store(postgres_url, schema=schema)
    with monkeypatch.context() as before:
        before.setattr(engine, "load_migrations", older)
        store.migrate()
    store.grant_roles()
    with monkeypatch.context() as dies:
        dies.setattr(engine.PostgresEngine, "grant_roles", lambda self: None)
        assert store.migrate() == ["0013_ids", "0014_late_ids"]
    store.close()
    with psycopg.connect(postgres_url) as admin:
        for right in ("SELECT", "INSERT", "DELETE"):
            asked = (f"{schema}_worker", f"{schema}_data.run_ids", right)
            told = admin.execute("SELECT has_table_privilege(%s, %s, %s)", asked).fetchone()
            assert told == (True,)


def test_the_roles_have_the_name_of_the_schema(postgres_database: str) -> None:
    store = open_store(postgres_database)
    for role in ROLES:
        assert f"'rota_{role}'" in store.roles_sql
    assert "CREATE ROLE" in store.roles_sql
    store.close()


@pytest.mark.parametrize("url", ["sqlite:///:memory:", "duckdb:///:memory:"])
def test_a_file_has_no_roles(url: str) -> None:
    store = open_store(url)
    with pytest.raises(Invalid, match="a file has no roles"):
        store.grant_roles()
    store.close()
