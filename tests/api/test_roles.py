"""Roles of PostgreSQL: a viewer looks, an operator operates, a worker works; nobody does more."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import psycopg
import pytest
from psycopg import errors

import rota
from rota.errors import Invalid, StorageError
from rota.model.views import VIEWS
from rota.storage.postgres import engine
from rota.storage.store import open_store
from tests.api.support import wait_until
from tests.api.test_sql_jobs import ended
from tests.support.invented import InventedSchema

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


def test_a_migration_renews_the_grants(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its own transaction: no process finds a table or view that it may not use."""
    later = InventedSchema(tmp_path / "later", monkeypatch)
    later.add_migration(2, "later", "CREATE TABLE {prefix}later (id INTEGER);")
    later.replace("views.sql", "-- Queues, with", LATER_VIEW + "-- Queues, with")
    store = open_store(place.url, schema=place.schema)
    monkeypatch.setattr(engine.PostgresEngine, "grant_roles", lambda self: None)
    assert store.migrate() == ["0002_later", "views", "functions"]
    store.close()
    with place.connect("viewer") as viewer:
        assert viewer.execute(f"SELECT number FROM {place.schema}.later").fetchall() == [(1,)]
    with place.connect("worker") as worker:
        worker.execute(f"INSERT INTO {place.schema}_data.later VALUES (7)")


LATER_VIEW = "CREATE OR REPLACE VIEW {views}later AS SELECT 1 AS number;\n"
GREET = """CREATE OR REPLACE FUNCTION {{views}}greet({parameters}) RETURNS {result} LANGUAGE sql
    SET search_path = pg_catalog, pg_temp AS $$ SELECT {answer} $$;
REVOKE ALL ON FUNCTION {{views}}greet FROM PUBLIC;

REVOKE ALL ON FUNCTION {{prefix}}ask"""


def test_a_function_that_takes_something_else_is_made_anew(place: Place, tmp_path: Path) -> None:
    first = GREET.format(parameters="name text", result="text", answer="'hello ' || name")
    second = GREET.format(parameters="name text, times integer", result="integer", answer="times")
    drop = "DROP FUNCTION IF EXISTS {views}greet(text);\n"
    for number, text in enumerate((first, drop + second), 2):
        with pytest.MonkeyPatch.context() as patch:
            later = InventedSchema(tmp_path / str(number), patch)
            later.replace("postgres/functions.sql", "-- number: 1\n", f"-- number: {number}\n")
            later.replace("postgres/functions.sql", "REVOKE ALL ON FUNCTION {prefix}ask", text)
            store = open_store(place.url, schema=place.schema)
            assert store.migrate() == ["functions"]
            store.close()
    older = open_store(place.url, schema=place.schema)
    assert older.migrate() == [], "an older Rota leaves them alone"
    older.close()
    with psycopg.connect(place.url, autocommit=True) as owner:
        made = owner.execute(
            "SELECT oid::regprocedure::text FROM pg_proc WHERE proname = 'greet'"
        ).fetchall()
        assert made == [(f"{place.schema}.greet(text,integer)",)]
        assert owner.execute(f"SELECT {place.schema}.greet('a', 2)").fetchone() == (2,)
    for role in ("viewer", "worker"):
        with place.connect(role) as connection:
            refused(connection, f"SELECT {place.schema}.greet('a', 2)")
    with place.connect("operator") as operator:  # its grants are renewed
        call = f"SELECT {place.schema}.pause_schedule('nowhere')"
        with pytest.raises(errors.NoDataFound):
            operator.execute(call)


def test_grants_to_others_survive_new_functions(place: Place, tmp_path: Path) -> None:
    signature = f"{place.schema}.trigger_job(text, jsonb, boolean, boolean)"
    with psycopg.connect(place.url, autocommit=True) as owner:
        owner.execute(f"GRANT EXECUTE ON FUNCTION {signature} TO {place.login('viewer')}".encode())
    with pytest.MonkeyPatch.context() as patch:
        later = InventedSchema(tmp_path / "later", patch)
        later.replace("postgres/functions.sql", "PERFORM {prefix}record('trigger',", CHANGED)
        store = open_store(place.url, schema=place.schema)
        assert store.migrate() == ["functions"]
        store.close()
    with psycopg.connect(place.url) as owner:
        asked = "SELECT has_function_privilege(%s, %s, 'EXECUTE')"
        for login, may in ((place.login("viewer"), True), (place.login("worker"), False)):
            assert owner.execute(asked, (login, signature)).fetchone() == (may,)


CHANGED = "PERFORM 1; PERFORM {prefix}record('trigger',"


def test_the_owner_migrates_also_where_another_role_made_the_roles(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may grant on what it owns, and may not grant roles."""
    owner = place.login("owner")
    with psycopg.connect(place.url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {owner} LOGIN PASSWORD '{place.password}'".encode())
        admin.execute(OWN_ALL.format(schema=place.schema, owner=owner).encode())
    try:
        later = InventedSchema(tmp_path / "later", monkeypatch)
        later.add_migration(2, "later", "CREATE TABLE {prefix}later (id INTEGER);")
        store = open_store(place.url_of("owner"), schema=place.schema)
        assert store.migrate()[0] == "0002_later"
        store.close()
        with place.connect("worker") as worker:
            worker.execute(f"INSERT INTO {place.schema}_data.later VALUES (7)")
    finally:
        with psycopg.connect(place.url, autocommit=True) as admin:
            admin.execute(f"REASSIGN OWNED BY {owner} TO CURRENT_USER".encode())
            admin.execute(f"DROP OWNED BY {owner}; DROP ROLE {owner}".encode())


OWN_ALL = """DO $$ DECLARE called text; BEGIN
    FOR called IN SELECT format('SCHEMA %I', nspname) FROM pg_namespace
                   WHERE nspname IN ('{schema}', '{schema}_data')
            UNION ALL
            SELECT format(CASE relkind WHEN 'r' THEN 'TABLE %s' ELSE 'VIEW %s' END, oid::regclass)
              FROM pg_class WHERE relkind IN ('r', 'v')
               AND relnamespace::regnamespace::text IN ('{schema}', '{schema}_data')
            UNION ALL SELECT format('FUNCTION %s', oid::regprocedure) FROM pg_proc
             WHERE pronamespace::regnamespace::text IN ('{schema}', '{schema}_data') LOOP
        EXECUTE format('ALTER %s OWNER TO {owner}', called);
    END LOOP;
END $$"""


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
