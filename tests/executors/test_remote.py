"""`ctx.db` in a child process whose target is a DuckDB file: asked of the worker, which has it."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rota.duckdb_instances import is_open, open_instance
from rota.executors import remote
from rota.executors.messages import LONGEST
from rota.executors.python import PythonExecutor
from rota.executors.remote import ROWS, ConnectionServer, pack
from rota.model.outcome import Outcome
from tests.executors.conftest import make_context

pytest.importorskip("duckdb")

LONG = "SELECT count(*) FROM range(10_000_000) a, range(10_000_000) b"


def run(executor: PythonExecutor, folder: Path, body: str, **options: Any) -> Outcome:
    path = folder / "job.py"
    lines = "\n    ".join(body.splitlines())
    path.write_text(f"def run(ctx):\n    {lines}\n")
    context = make_context(job="remote", spec={"file": str(path)}, **options)
    context._targets = f"duckdb:///{folder / 'w.duckdb'}"
    return executor.run(context)


def within_time(*args: Any) -> Outcome:
    """The same, for what might never end."""
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(run(*args)), daemon=True)
    thread.start()
    thread.join(30)
    assert outcomes, "it does not end"
    return outcomes[0]


def result(outcome: Outcome) -> Any:
    assert outcome.kind == "succeeded", outcome.error
    return json.loads(outcome.result or "null")


def test_a_child_uses_the_file_that_its_worker_has_open(
    executor: PythonExecutor, tmp_path: Path
) -> None:
    instance = open_instance(str(tmp_path / "w.duckdb"))
    try:
        told = run(
            executor,
            tmp_path,
            "ctx.db.execute('CREATE TABLE t (a INTEGER, b VARCHAR)')\n"
            "ctx.db.executemany('INSERT INTO t VALUES (?, ?)', [(1, 'x'), (2, None)])\n"
            "ctx.db.begin().execute('DELETE FROM t')\n"
            "ctx.db.rollback()\n"
            "names = [column[0] for column in ctx.db.execute('FROM t').description]\n"
            "return [names, [list(row) for row in ctx.db.execute('FROM t ORDER BY a')],"
            " ctx.db.execute('SELECT $a + 1', {'a': 4}).fetchone()[0]]",
        )
        assert result(told) == [["a", "b"], [[1, "x"], [2, None]], 5]
        assert instance.cursor().execute("SELECT count(*) FROM t").fetchall() == [(2,)]
    finally:
        instance.close()


@pytest.mark.parametrize("count", [0, 1, ROWS, 2 * ROWS + 1])
def test_rows_come_in_pages(executor: PythonExecutor, tmp_path: Path, count: int) -> None:
    told = run(
        executor,
        tmp_path,
        f"db = ctx.db.execute('FROM range({count})')\n"
        "return [len(db.fetchmany(3)), len(db.fetchall()), db.fetchone()]",
    )
    assert result(told) == [min(3, count), max(0, count - 3), None]


@pytest.mark.parametrize("size", [40_000, 5_000_000])
def test_a_page_of_long_rows_is_shorter(
    executor: PythonExecutor, tmp_path: Path, size: int
) -> None:
    """All rows of a page in one message would be more than a message may be."""
    count = LONGEST // size + 10
    told = within_time(
        executor,
        tmp_path,
        f"db = ctx.db.execute(\"SELECT repeat('x', {size}) FROM range({count})\")\n"
        "return [sum(len(text) for text, in db.fetchall()), db.fetchone()]",
    )
    assert result(told) == [count * size, None]


@pytest.mark.parametrize(
    "statement",
    [
        f"ctx.db.execute(\"SELECT repeat('x', {LONGEST})\").fetchone()",
        f"ctx.db.execute('SELECT ?', ['x' * {LONGEST}])",
        f"ctx.db.executemany('INSERT INTO t VALUES (?)', [['x' * 1000]] * {LONGEST // 1000})",
    ],
    ids=["row", "parameter", "rows"],
)
def test_what_no_message_can_carry_is_refused(
    executor: PythonExecutor, tmp_path: Path, statement: str
) -> None:
    told = within_time(
        executor,
        tmp_path,
        "from rota.errors import Invalid\n"
        "ctx.db.execute('CREATE TABLE t (a VARCHAR)')\n"
        f"try:\n    {statement}\n"
        "except Invalid as fault:\n    refused = str(fault)\n"
        "return [refused, ctx.db.execute('SELECT count(*) FROM t').fetchone()[0]]",
    )
    refused, count = result(told)
    assert "is the most; " in refused
    assert "isolation='thread'" in refused
    assert count == 0


def test_no_rows_come_after_one_that_is_refused(executor: PythonExecutor, tmp_path: Path) -> None:
    """Those before it in its page are lost: to go on would leave a gap that nobody sees."""
    told = run(
        executor,
        tmp_path,
        f"text = \"repeat('x', if(range = 2, {LONGEST}, 1))\"\n"
        "db = ctx.db.execute(f'SELECT {text} FROM range(9)')\n"
        "try:\n    db.fetchone()\n"
        "except ValueError as fault:\n    return [str(fault)[:10], db.fetchall()]",
    )
    assert result(told) == ["a row of 1", []]


def test_a_fault_has_its_own_name_in_the_child(executor: PythonExecutor, tmp_path: Path) -> None:
    told = run(
        executor,
        tmp_path,
        "import duckdb\n"
        "try:\n    ctx.db.execute('FROM nothing')\n"
        "except duckdb.CatalogException as fault:\n    caught = str(fault)\n"
        "return [caught, ctx.db.execute('SELECT 1').fetchone()[0]]",
    )
    caught, one = result(told)
    assert "nothing does not exist" in caught
    assert one == 1


def test_what_cannot_be_asked_for_says_the_way_out(
    executor: PythonExecutor, tmp_path: Path
) -> None:
    error = run(executor, tmp_path, "ctx.db.execute('SELECT 1').df()").error
    assert "ctx.db has no 'df' in a child process" in str(error)
    assert "isolation='thread'" in str(error)


def test_a_statement_ends_with_its_attempt(executor: PythonExecutor, tmp_path: Path) -> None:
    """The worker's own thread runs it: a stop must reach it there."""
    path = tmp_path / "job.py"
    path.write_text(
        "def run(ctx):\n    ctx.db.execute('SELECT 1')\n    ctx.progress(1)\n"
        f"    ctx.db.execute('{LONG}')\n"
    )
    context = make_context(job="long", spec={"file": str(path)}, timeout=timedelta(seconds=1))
    context._targets = f"duckdb:///{tmp_path / 'w.duckdb'}"
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(executor.run(context)))
    thread.start()
    assert context.port.shown.wait(20)  # type: ignore[attr-defined]
    context.stop("timed_out")
    thread.join(20)
    assert [outcome.kind for outcome in outcomes] == ["timed_out"]
    context.close()


class Interrupted:
    """A DuckDB connection that tells of the first interrupt, and runs statements after it."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.first = threading.Event()

    def execute(self, sql: str, args: Any) -> None:
        assert self.first.wait(20)
        self.connection.execute(sql, args)

    def interrupt(self) -> None:
        self.connection.interrupt()
        self.first.set()


@pytest.mark.parametrize("too_early", [True, False])
def test_no_statement_outlives_its_attempt(
    too_early: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt that comes too early ends nothing; what begins after the stop has its time."""
    monkeypatch.setattr(remote, "CLEANUP_SECONDS", 2.0)
    context = make_context(job="long")
    context._targets = f"duckdb:///{tmp_path / 'w.duckdb'}"
    server = ConnectionServer(context)

    def execute(sql: str) -> Any:
        return server.do({"do": "execute", "sql": sql, "args": pack([])})

    assert execute("SELECT 1")["columns"]
    if too_early:
        context._db = Interrupted(context.db)
    else:
        context.stop("cancelled")
        assert execute("SELECT 1")["columns"], "it may clean up"
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(execute(LONG)))
    thread.start()
    with server._changed:
        assert server._changed.wait_for(lambda: server._running, 20)
    context.stop("timed_out")
    thread.join(20)
    assert [answer["fault"][0] for answer in answers] == ["InterruptException"]
    server.end()
    context.close()


def test_the_file_is_let_go_at_the_end(executor: PythonExecutor, tmp_path: Path) -> None:
    body = "ctx.db.execute('CREATE TABLE t (a INTEGER)')\nraise ValueError"
    assert run(executor, tmp_path, body).kind == "failed"
    assert not is_open(str(tmp_path / "w.duckdb"))
