"""Migrate: everybody may, at once and again; a store that is not ours says what to do instead."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rota.errors import Invalid, ReadOnly, Unavailable, WrongSchema
from rota.storage.store import Store, open_store
from tests.conformance.conftest import ENGINES
from tests.conformance.support import (
    DuckdbPlace,
    Place,
    PostgresPlace,
    SqlitePlace,
    VirtualClock,
    claim_one,
    enqueue,
    put_job,
    settle,
    together,
)

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


@pytest.fixture(params=ENGINES)
def empty(request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock) -> Iterator[Place]:
    """A database that nobody has migrated."""
    if request.param == "sqlite":
        place: Place = SqlitePlace(f"sqlite:///{tmp_path}/rota.db", clock)
    elif request.param == "duckdb":
        place = DuckdbPlace(f"duckdb:///{tmp_path}/rota.duckdb", clock)
    else:
        place = PostgresPlace(request.getfixturevalue("postgres_url"), clock)
    yield place
    place.close()


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
    assert store.run(run_id).state == "succeeded"


def test_migrate_keeps_what_is_there(store: Store) -> None:
    run_id, meta = enqueue(store), store.meta()
    store.migrate()
    assert store.run(run_id).state == "queued"
    assert store.meta() == meta


def test_stores_that_migrate_at_once_apply_it_once(empty: Place) -> None:
    pending = [name for name, _ in empty.open().pending_migrations()]
    applied = together(*[lambda: empty.open().migrate()] * STORES)
    assert sorted(name for names in applied for name in names) == pending
    stores = [empty.open() for _ in range(2)]
    stores[0].check_schema()
    assert len({one.meta()["installation"] for one in stores}) == 1


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
        for _ in range(2)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    answers = [json.loads(child.communicate()[0]) for child in children]
    assert [child.returncode for child in children] == [0, 0]
    applied = [name for names in answers for name in names]
    assert len(applied) == len(set(applied)) > 0
    empty.open().check_schema()


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
        store.overview()


def test_an_older_store_is_refused(store: Store) -> None:
    newest = int(store.meta()["schema_version"])
    set_version(store, newest - 1)
    if newest == 1:  # before the first version there is no store
        pattern = "rota migrate"
    else:
        pattern = rf"schema {newest - 1}.*needs {newest}.*rota migrate"
    with pytest.raises(WrongSchema, match=pattern):
        store.check_schema()


def test_a_newer_store_is_refused_and_left_alone(store: Store) -> None:
    newest = int(store.meta()["schema_version"])
    set_version(store, newest + 1)
    with pytest.raises(WrongSchema, match=rf"schema {newest + 1}.*newer Rota.*upgrade Rota"):
        store.check_schema()
    assert store.pending_migrations() == []
    assert store.meta()["schema_version"] == str(newest + 1)


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
