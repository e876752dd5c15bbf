"""Migrate: any process may, at once and again; a store of another version says what to do."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from rota.errors import Invalid, ReadOnly, Unavailable, WrongSchema
from rota.model.retry import ONCE
from rota.model.sql_script import statements
from rota.storage import operations
from rota.storage.duckdb.transaction import DuckdbTransaction
from rota.storage.postgres.transaction import PostgresTransaction
from rota.storage.schema import FUNCTIONS, HASH, NUMBER, VIEWS
from rota.storage.sqlite.transaction import SqliteTransaction
from rota.storage.store import Store, open_store
from tests.conformance.conftest import ENGINES
from tests.conformance.support import (
    PLACE_TYPES,
    Place,
    SqlitePlace,
    VirtualClock,
    claim_one,
    enqueue,
    put_job,
    settle,
    together,
)
from tests.support.invented import InventedSchema
from tests.support.stores import STORE_FIXTURES, Stores

STORES = 6
MIGRATE = """
import json, sys
from rota.storage.sqlite import connect, engine
from rota.storage.store import open_store
connect.BUSY_SECONDS = engine.BUSY_SECONDS = 60.0  # a slow disk is nobody's fault
store = open_store(sys.argv[1])
sys.stdin.readline()
print(json.dumps(store.migrate()))
store.close()
"""
# Kills itself before the first statement of a first start, the next time further on, until
# it has come to the end. Prints how often.
KILLED = """
import os, signal, sys
from itertools import count
from rota.model.sql_script import statements
from rota.storage.duckdb.transaction import DuckdbTransaction
from rota.storage.postgres.transaction import PostgresTransaction
from rota.storage.sqlite.transaction import SqliteTransaction
from rota.storage.store import open_store

url, dialect, stride = sys.argv[1:]
left = 0

def step(point=""):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def split(whole):
    def script(tx, sql):
        for statement in statements(sql, dialect):
            step()
            whole(tx, sql[statement.start : statement.end])
    return script

for kind in (DuckdbTransaction, PostgresTransaction, SqliteTransaction):
    kind.script = split(kind.script)
for kills, number in enumerate(count(1, int(stride))):
    left = number
    child = os.fork()
    if child == 0:
        store = open_store(url, probe=step)
        store.migrate()
        store.check_schema()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0, number
        print(kills)
        break
"""
TABLES = "SELECT table_schema, table_name FROM information_schema.tables"


@pytest.fixture(params=ENGINES)
def empty(request: pytest.FixtureRequest, clock: VirtualClock) -> Iterator[Place]:
    """A database without a store, which other processes can open."""
    stores: Stores = request.getfixturevalue(STORE_FIXTURES[request.param])
    with stores.fresh() as url, closing(PLACE_TYPES[request.param](url, clock)) as place:
        yield place


def test_migrate_applies_what_is_pending_and_nothing_twice(empty: Place) -> None:
    store = empty.open()
    pending = store.pending_migrations()
    assert pending
    assert all(name and sql for name, sql in pending)
    assert store.migrate() == [name for name, _ in pending]
    assert store.migrate() == store.pending_migrations() == []
    store.check_schema()


def test_a_migrated_store_works(empty: Place) -> None:
    store = empty.open()
    store.migrate()
    put_job(store)
    run_id = enqueue(store)
    settle(store, claim_one(store))
    assert store.read(operations.get_run, run_id).state == "succeeded"


def test_migrate_keeps_what_is_there(store: Store) -> None:
    run_id, meta = enqueue(store), store.read(operations.meta)
    store.migrate()
    assert store.read(operations.get_run, run_id).state == "queued"
    assert store.read(operations.meta) == meta


def test_stores_that_migrate_at_once_apply_it_once(empty: Place) -> None:
    pending = [name for name, _ in empty.open().pending_migrations()]
    applied = together(*[lambda: empty.open().migrate()] * STORES)
    assert sorted(name for names in applied for name in names) == sorted(pending)
    stores = [empty.open() for _ in range(2)]
    stores[0].check_schema()
    assert len({one.read(operations.meta)["installation"] for one in stores}) == 1


def test_processes_that_migrate_at_once_apply_it_once(empty: Place) -> None:
    if empty.engine == "duckdb":
        pytest.skip("one process has the file; what the other is told is in test_duckdb.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", MIGRATE, empty.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        for _ in range(STORES)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    answers = [json.loads(child.communicate()[0]) for child in children]
    assert [child.returncode for child in children] == [0] * STORES
    applied = [name for names in answers for name in names]
    assert len(applied) == len(set(applied)) > 0
    empty.open().check_schema()


# A later version of Rota


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InventedSchema:
    """The SQL that a test changes, as a later version would."""
    return InventedSchema(tmp_path / "later", monkeypatch)


ADD_COLOUR = """
ALTER TABLE {prefix}jobs ADD COLUMN colour VARCHAR(9);
CREATE TABLE {prefix}colours (name VARCHAR(9) NOT NULL, meaning VARCHAR(99));
INSERT INTO {prefix}colours SELECT 'red', name FROM {prefix}jobs;
"""
ON_SQLITE = [("VARCHAR(9)", "TEXT"), ("VARCHAR(99)", "TEXT")]


def add_colour(later: InventedSchema, number: int = 2) -> str:
    name = later.add_migration(number, "colour", ADD_COLOUR)
    for old, new in ON_SQLITE:
        file = later.folder / "sqlite" / "migrations" / f"{name}.sql"
        file.write_text(file.read_text().replace(old, new))
    return name


def made_by(store: Store) -> dict[str, str]:
    """What `meta` says of the scripts."""
    meta = store.read(operations.meta)
    return {key: meta[key] for key in (NUMBER, HASH, VIEWS, FUNCTIONS) if key in meta}


def test_a_migration_keeps_what_is_there(place: Place, later: InventedSchema) -> None:
    before = place.open()
    put_job(before)
    run_id = enqueue(before)
    name = add_colour(later)
    store = place.open()
    with pytest.raises(WrongSchema, match=r"schema 1, this Rota needs 2; run `rota migrate`"):
        store.check_schema()
    plan = store.pending_migrations()
    assert plan[0][0] == name
    assert "ADD COLUMN colour" in plan[0][1]
    assert "{" not in plan[0][1]
    assert [step for step, _ in plan] == store.migrate()
    store.check_schema()
    assert store.migrate() == store.pending_migrations() == []
    assert place.execute(f"SELECT * FROM {place.table('colours')}") == [("red", "job")]
    assert place.execute(f"SELECT name, colour FROM {place.table('jobs')}") == [("job", None)]
    settle(store, claim_one(store))
    assert store.read(operations.get_run, run_id).state == "succeeded"
    assert (
        store.read(operations.meta)["installation"] == before.read(operations.meta)["installation"]
    )


def test_a_new_store_has_all_migrations(empty: Place, later: InventedSchema) -> None:
    name = add_colour(later)
    store = empty.open()
    assert store.migrate()[:3] == ["0001_schema", name, "views"]
    assert empty.execute(f"SELECT * FROM {empty.table('colours')}") == []
    store.check_schema()


def test_stores_that_migrate_a_store_at_once_apply_it_once(
    place: Place, later: InventedSchema
) -> None:
    add_colour(later)
    later.add_migration(3, "more", "CREATE TABLE {prefix}more (id INTEGER);")
    pending = [name for name, _ in place.open().pending_migrations()]
    applied = together(*[lambda: place.open().migrate()] * STORES)
    assert sorted(name for names in applied for name in names) == sorted(pending)
    place.open().check_schema()


class Died(BaseException):
    """The process ends here."""


def test_a_migration_that_is_cut_off_leaves_the_store_as_it_was(
    place: Place, later: InventedSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each of its statements; those before it are kept."""
    add_colour(later)
    later.add_migration(3, "more", "CREATE TABLE {prefix}more (id INTEGER);")
    store = place.open()
    reached: list[int] = []
    for number in count(1):
        made = made_by(store)
        with monkeypatch.context() as patch:
            counter = count(1)
            before_each_statement(patch, lambda n=number, c=counter: die(n, c))  # type: ignore[misc]
            with suppress(Died):
                store.migrate()
                break
        # Either as it was, or with the whole first migration and nothing of the second.
        reached.append(int(made_by(store)[NUMBER]))
        if reached[-1] == 1:
            assert made_by(store) == made
            assert not has_table(place, "colours")
        assert not has_table(place, "more")
        with pytest.raises(WrongSchema, match="run `rota migrate`"):
            store.check_schema()
    assert sorted(set(reached)) == [1, 2]
    store.check_schema()


def die(number: int, counter: Iterator[int]) -> None:
    if next(counter) == number:
        raise Died


def before_each_statement(patch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Call `act` before each statement of a script, and before the commit behind them."""
    for kind, dialect in (
        (SqliteTransaction, "sqlite"),
        (PostgresTransaction, "postgres"),
        (DuckdbTransaction, "duckdb"),
    ):
        whole = kind.script

        def script(
            tx: Any, sql: str, whole: Callable[[Any, str], None] = whole, dialect: str = dialect
        ) -> None:
            for statement in statements(sql, dialect):
                act()
                whole(tx, sql[statement.start : statement.end])

        patch.setattr(kind, "script", script)


def has_table(place: Place, name: str) -> bool:
    connection = place.autocommit()
    try:
        connection.execute(f"SELECT * FROM {place.table(name)} LIMIT 1")
    except (sqlite3.Error, psycopg.Error, duckdb.Error):
        return False
    finally:
        connection.close()
    return True


# Every so many statements: a kill on PostgreSQL costs a connection, and a file of DuckDB threads.
STRIDES = {"sqlite": 1, "duckdb": 4, "postgres": 9}


def test_a_first_start_that_is_killed_at_any_statement_leaves_nothing(empty: Place) -> None:
    """Else the next one would find its tables there and fail."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    if empty.engine == "duckdb":
        empty.close()  # the file is the other process's
    stride = str(STRIDES[empty.engine])
    command = [sys.executable, "-c", KILLED, empty.url, empty.engine, stride]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    kills = json.loads(answer.stdout)
    assert kills > 10
    store = open_store(empty.url, clock=empty.clock)
    store.check_schema()
    put_job(store)
    settle_one(store)
    store.close()


def settle_one(store: Store) -> None:
    run_id = enqueue(store)
    settle(store, claim_one(store))
    assert store.read(operations.get_run, run_id).state == "succeeded"


# Views: no migration, but replaced where their text is another one


def change_views(later: InventedSchema, number: int) -> None:
    """One more column in a view, at its end."""
    later.replace("views.sql", "-- number: 1\n", f"-- number: {number}\n")
    later.replace(
        "views.sql",
        "       error\n  FROM {runs} WHERE state = 'dead';",
        "       error,\n       priority\n  FROM {runs} WHERE state = 'dead';",
    )


def columns(place: Place, view: str) -> list[str]:
    connection = place.autocommit()
    cursor = connection.execute(f"SELECT * FROM {place.view(view)} LIMIT 0")
    names = [column[0] for column in cursor.description]
    connection.close()
    return names


def test_views_of_another_text_are_replaced_and_what_people_built_on_them_stays(
    place: Place, later: InventedSchema
) -> None:
    dead = place.view("dead")
    place.execute(f"CREATE VIEW theirs AS SELECT run_id, error FROM {dead}")
    if place.engine == "postgres":
        place.execute("CREATE ROLE reader_of_dead")
        place.execute(f"GRANT SELECT ON {dead} TO reader_of_dead")
    try:
        change_views(later, 2)
        store = place.open()
        store.check_schema()  # the tables are the same: nothing has to stop for it
        assert [name for name, _ in store.pending_migrations()] == ["views"]
        assert store.migrate() == ["views"]
        assert columns(place, "dead")[-2:] == ["error", "priority"]
        put_job(store)
        enqueue(store)
        settle(store, claim_one(store), "failed", error="no", retry=ONCE)
        assert [row[1] for row in place.execute("SELECT * FROM theirs")] == ["no"]
        if place.engine == "postgres":
            asked = f"SELECT has_table_privilege('reader_of_dead', '{dead}', 'SELECT')"
            assert place.execute(asked) == [(True,)]
    finally:
        if place.engine == "postgres":
            place.execute(f"REVOKE ALL ON {dead} FROM reader_of_dead")
            place.execute("DROP ROLE reader_of_dead")


def test_an_older_rota_never_replaces_the_views_of_a_newer_one(
    place: Place, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as newer:
        change_views(InventedSchema(tmp_path / "newer", newer), 2)
        assert place.open().migrate() == ["views"]
    older = place.open()
    older.check_schema()
    assert older.pending_migrations() == older.migrate() == []
    assert columns(place, "dead")[-1] == "priority"


def test_a_process_that_only_opens_a_store_changes_nothing(
    place: Place, later: InventedSchema
) -> None:
    put_job(place.open())
    made = made_by(place.open())
    change_views(later, 2)
    store = place.open()
    store.check_schema()
    settle_one(store)
    assert made_by(store) == made
    assert columns(place, "dead")[-1] == "error"


def test_a_comment_is_no_change(place: Place, later: InventedSchema) -> None:
    later.replace("views.sql", "-- Schedules as they are now.\n", "-- As  they are.\n\n")
    later.replace(f"{place.engine}/schema.sql", "-- Log lines of attempts.", "-- Logs.")
    store = place.open()
    store.check_schema()
    assert store.migrate() == store.pending_migrations() == []


# The wrong version


def set_version(store: Store, version: int) -> None:
    value = str(version)
    store.engine.write("set", lambda tx: tx.all("set_meta", key="schema_version", value=value))


def test_a_store_that_is_not_there_yet_is_refused(empty: Place) -> None:
    store = empty.open()
    with pytest.raises(WrongSchema, match=r"holds no Rota store.*rota migrate"):
        store.check_schema()
    with pytest.raises(WrongSchema, match="rota migrate"):
        enqueue(store)
    with pytest.raises(WrongSchema, match="rota migrate"):
        store.read(operations.overview)


def test_a_newer_store_is_refused_and_left_alone(store: Store) -> None:
    newest = int(store.read(operations.meta)["schema_version"])
    set_version(store, newest + 1)
    before = store.read(operations.meta)
    with pytest.raises(WrongSchema, match=rf"schema {newest + 1}.*newer Rota.*upgrade Rota"):
        store.check_schema()
    assert store.migrate() == store.pending_migrations() == []
    assert store.read(operations.meta) == before


ANEW = {
    "sqlite": "move the file away, or set `schema` to another name",
    "postgres": "drop the schemas rota and rota_data with all in them",
    "duckdb": "drop the schemas _rota and _rota_data with all in them",
}


def is_refused(place: Place) -> None:
    """As one that another development version made; and nothing is written."""
    before = snapshot(place)
    store = place.open()
    for use in (store.check_schema, store.migrate, store.pending_migrations):
        with pytest.raises(WrongSchema) as caught:
            use()
        message = str(caught.value)
        assert message.startswith("the store in "), message
        assert message.endswith(
            " was made by another development version of Rota; create it anew: "
            f"{ANEW[place.engine]}, and run `rota migrate`"
        )
        assert "\n" not in message
    assert snapshot(place) == before


def snapshot(place: Place) -> object:
    rows = sorted(place.execute(f"SELECT * FROM {place.table('meta')}"))
    if isinstance(place, SqlitePlace):
        return rows, place.path.read_bytes()
    return rows, sorted(place.execute(TABLES))


def test_a_store_of_another_development_version_is_refused(
    place: Place, later: InventedSchema
) -> None:
    later.replace(f"{place.engine}/schema.sql", "    spec        ", "    body        ")
    is_refused(place)


def test_a_store_whose_last_migration_was_another_one_is_refused(
    place: Place, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as first:
        invented = InventedSchema(tmp_path / "first", first)
        invented.add_migration(2, "one", "CREATE TABLE {prefix}one (id INTEGER);")
        place.open().migrate()
    with pytest.MonkeyPatch.context() as second:
        invented = InventedSchema(tmp_path / "second", second)
        invented.add_migration(2, "two", "CREATE TABLE {prefix}two (id INTEGER);")
        is_refused(place)


def test_a_store_that_began_otherwise_is_refused_also_with_the_same_last_migration(
    empty: Place, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as first:
        invented = InventedSchema(tmp_path / "first", first)
        add_colour(invented)
        file = f"{empty.engine}/schema.sql"
        invented.replace(
            file,
            "CREATE TABLE {prefix}meta (",
            "CREATE TABLE {prefix}x (n INTEGER);\nCREATE TABLE {prefix}meta (",
        )
        empty.open().migrate()
    with pytest.MonkeyPatch.context() as second:
        add_colour(InventedSchema(tmp_path / "second", second))
        is_refused(empty)


# `meta` as the first development versions wrote it, whose migrations had these numbers at the end.
OLD_NUMBERS = {"sqlite": 11, "postgres": 14, "duckdb": 10}


@pytest.mark.parametrize("number", [1, "last"])
def test_a_store_of_the_first_development_versions_is_refused(
    empty: Place, number: int | str
) -> None:
    if empty.engine != "sqlite":
        empty.execute(f"CREATE SCHEMA {empty.table('x').partition('.')[0]}")
    last = OLD_NUMBERS[empty.engine] if number == "last" else number
    meta = empty.table("meta")
    empty.execute(f"CREATE TABLE {meta} (key VARCHAR(99) PRIMARY KEY, value VARCHAR(99) NOT NULL)")
    empty.execute(f"INSERT INTO {meta} VALUES ('schema_version', '{last}')")
    empty.execute(f"INSERT INTO {meta} VALUES ('installation', 'x'), ('dispatch', 'on')")
    is_refused(empty)


# Places where no store can be


@pytest.mark.parametrize(
    "url",
    [
        "",
        "rota.db",
        "mysql://localhost/x",
        "sqlite://",
        "sqlite:///",
        "sqlite:///a.db?x=1",
        "duckdb:///",
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match=r"use (sqlite:///rota\.db|duckdb:///w)"):
        open_store(url)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rota.db").write_bytes(b"To whom it may concern:\n" * 200)
    with pytest.raises(WrongSchema, match="not a SQLite database"):
        open_store(f"sqlite:///{tmp_path}/rota.db").migrate()


def test_a_database_of_somebody_else_can_hold_a_store_too(empty: Place) -> None:
    empty.execute("CREATE TABLE theirs (id INTEGER)")
    empty.execute("INSERT INTO theirs VALUES (7)")
    empty.open().migrate()
    assert empty.execute("SELECT id FROM theirs") == [(7,)]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"the folder .*nowhere exists"):
        open_store(f"sqlite:///{tmp_path}/nowhere/rota.db").migrate()


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be opened"):
        open_store(f"sqlite:///{tmp_path}").migrate()


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Permissions mean nothing to root: be nobody for a while."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65_534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user can reach; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="rota-test-"))
    folder.chmod(0o777)
    yield folder
    folder.chmod(0o777)
    shutil.rmtree(folder)


def test_a_file_that_cannot_be_written_is_named(open_folder: Path) -> None:
    path = open_folder / "rota.db"
    store = open_store(f"sqlite:///{path}")
    store.migrate()
    store.close()
    path.chmod(0o444)
    open_folder.chmod(0o555)
    with ordinary_user(), pytest.raises((ReadOnly, Unavailable), match=r"permissions|may be writ"):
        enqueue(open_store(f"sqlite:///{path}"))


def test_a_folder_that_cannot_be_written_is_named(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    with ordinary_user(), pytest.raises(Unavailable, match="exists and may be written"):
        open_store(f"sqlite:///{open_folder}/rota.db").migrate()


def test_a_server_that_is_not_there_is_named() -> None:
    url = "postgresql://nobody@127.0.0.1:1/nowhere"
    with pytest.raises(Unavailable):
        open_store(url).migrate()


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    """It will hold arguments. One that is there keeps the mode it has."""
    path = tmp_path / "rota.db"
    store = open_store(f"sqlite:///{path}")
    store.migrate()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    log = path.with_name("rota.db-wal")
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    store.close()
    path.chmod(0o640)
    again = open_store(f"sqlite:///{path}")
    again.migrate()
    again.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
