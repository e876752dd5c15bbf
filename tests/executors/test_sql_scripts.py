"""Scripts outside of jobs: startdb.d and initdb.d."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.duckdb_instances import is_open
from rota.errors import Invalid, RotaError, StorageError
from rota.executors.sql import run_script
from rota.executors.sql.scripts import close_instances
from rota.executors.targets import connect


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "postgres":
        yield request.getfixturevalue("postgres_url")
    else:
        yield f"{request.param}:///{tmp_path}/data.{request.param}"
    close_instances()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "10_setup.sql"


def rows(url: str, sql: str) -> list[object]:
    connection = connect(url)
    try:
        return list(connection.execute(sql).fetchall())
    finally:
        connection.close()


def test_a_script_runs_with_its_variables(url: str, script: Path) -> None:
    script.write_text("CREATE TABLE t (v VARCHAR(20)); INSERT INTO t VALUES ('${VALUE}')")
    run_script(url, script, {"VALUE": "it's"})
    assert rows(url, "SELECT v FROM t") == [("it's",)]


def test_a_script_that_fails_names_its_line_and_leaves_nothing(url: str, script: Path) -> None:
    script.write_text("CREATE TABLE t (i INTEGER);\nSELECT nope FROM t;")
    with pytest.raises(StorageError, match=r"10_setup.sql:2: .*nope"):
        run_script(url, script, {})
    script.write_text("CREATE TABLE t (i INTEGER)")
    run_script(url, script, {})


def test_a_script_that_is_refused_never_begins(url: str, script: Path) -> None:
    script.write_text("CREATE TABLE t (v VARCHAR(20)); SELECT '${NOT_SET}'")
    with pytest.raises(Invalid, match="NOT_SET"):
        run_script(url, script, {})
    script.write_text("COMMIT")
    with pytest.raises(Invalid, match=r"10_setup.sql:1: begins or ends a transaction"):
        run_script(url, script, {})


def test_a_script_without_a_target_is_an_error_of_ours(script: Path) -> None:
    script.write_text("SELECT 1")
    for away in ("postgresql://rota:secretpass@127.0.0.1:1/none", "sqlite:////no/such/x.db"):
        with pytest.raises(RotaError) as told:
            run_script(away, script, {})
        assert "secretpass" not in str(told.value)


def test_what_a_script_attaches_stays_until_the_end(tmp_path: Path, script: Path) -> None:
    path = tmp_path / "data.duckdb"
    url = f"duckdb:///{path}"
    script.write_text(
        f"ATTACH '{tmp_path}/other.duckdb' AS other; CREATE TABLE other.t AS SELECT 7"
    )
    run_script(url, script, {})
    assert rows(url, "SELECT * FROM other.t") == [(7,)]
    close_instances()
    assert not is_open(str(path))
