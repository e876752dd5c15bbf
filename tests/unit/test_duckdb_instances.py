"""One DuckDB instance for each file of a process, however many open it."""

from __future__ import annotations

import builtins
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from rota.duckdb_instances import is_open, open_instance, path_from_url
from rota.errors import Invalid, MissingExtra, StorageError, Unavailable
from rota.extras import how_to_install

HOLD = """
import sys
from rota.duckdb_instances import open_instance
held = open_instance(sys.argv[1])
print("held", flush=True)
sys.stdin.readline()
"""


def test_handles_of_one_file_share_it_until_the_last_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    (tmp_path / "link.duckdb").symlink_to(path)
    first, second = open_instance(str(path)), open_instance(str(tmp_path / "link.duckdb"))
    assert first.write_lock is second.write_lock
    with first.cursor() as cursor:
        cursor.execute("CREATE TABLE t AS SELECT 1 AS one")
    first.close()
    first.close()
    with second.cursor() as cursor:
        assert cursor.execute("FROM t").fetchall() == [(1,)]
    with pytest.raises(Unavailable, match="closed"):
        first.cursor()
    assert is_open(str(path))
    second.close()
    assert not is_open(str(path))


def test_a_handlers_own_connection_finds_the_same_instance(tmp_path: Path) -> None:
    instance = open_instance(str(tmp_path / "a.duckdb"))
    with duckdb.connect(str(tmp_path / "a.duckdb")) as own, instance.cursor() as cursor:
        own.execute("CREATE TABLE t AS SELECT 1 AS one")
        assert cursor.execute("FROM t").fetchall() == [(1,)]
    instance.close()


def test_memory_is_a_world_of_its_own_unless_it_has_a_name() -> None:
    worlds = [open_instance(":memory:") for _ in range(2)]
    worlds[0].cursor().execute("CREATE TABLE t (i INTEGER)")
    with pytest.raises(duckdb.CatalogException):
        worlds[1].cursor().execute("FROM t")
    named = [open_instance(":memory:test_instances") for _ in range(2)]
    named[0].cursor().execute("CREATE TABLE t (i INTEGER)")
    assert named[1].cursor().execute("FROM t").fetchall() == []
    for instance in (*worlds, *named):
        instance.close()


def test_the_process_that_has_the_file_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "a.duckdb")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(Unavailable, match=rf"in use by process {holder.pid} \(.*stop it"):
            open_instance(path)
        assert not is_open(path)
        holder.communicate("\n")
    open_instance(path).close()


def test_a_child_of_the_process_that_has_the_file_is_told_the_way_out(tmp_path: Path) -> None:
    path = str(tmp_path / "a.duckdb")
    held = open_instance(path)
    answer = subprocess.run(
        [sys.executable, "-c", HOLD, path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    held.close()
    assert "the process that started this one has it open" in answer.stderr
    assert "use ctx.db" in answer.stderr


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello" * 1000)
    with pytest.raises(StorageError, match="not a DuckDB database"):
        open_instance(str(tmp_path / "text"))
    with pytest.raises(Unavailable, match="check that its folder exists"):
        open_instance(str(tmp_path / "nowhere" / "a.duckdb"))


def test_other_settings_in_this_process_are_named(tmp_path: Path) -> None:
    path = str(tmp_path / "a.duckdb")
    with (
        duckdb.connect(path, config={"access_mode": "READ_WRITE", "threads": 1}),
        pytest.raises(Unavailable, match="other settings"),
    ):
        open_instance(path)


@pytest.mark.parametrize("missing", ["duckdb", "pytz"])
def test_what_is_not_installed_is_named(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name == missing:
            raise ImportError(name=missing)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    command = re.escape(how_to_install("duckdb"))
    with pytest.raises(MissingExtra, match=rf"{missing} is not installed; {command}"):
        open_instance(str(tmp_path / "a.duckdb"))


def test_a_forked_child_does_not_use_its_parents_instance(tmp_path: Path) -> None:
    instance = open_instance(str(tmp_path / "a.duckdb"))
    child = os.fork()
    if child == 0:  # pragma: no cover  # nothing of pytest may run here
        try:
            instance.cursor()
        except Unavailable:
            os._exit(0 if not is_open(instance.path) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    instance.cursor().execute("SELECT 1")
    instance.close()


def test_urls_name_files() -> None:
    assert path_from_url("duckdb:///a/b.duckdb") == "a/b.duckdb"
    assert path_from_url("duckdb:////a/b.duckdb") == "/a/b.duckdb"
    assert path_from_url("duckdb:///:memory:") == ":memory:"
    with pytest.raises(Invalid, match="names no file"):
        path_from_url("duckdb:///")
