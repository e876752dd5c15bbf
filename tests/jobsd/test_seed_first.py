"""The first seed document, end to end: its own folder, unchanged, on DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest

from tests.executors.sql_support import NEVER_ENDS
from tests.jobsd.seeds import ASKING, AVERAGE, BUSY, FAILED, REGISTERED, Gate, Seed, kept_open
from tests.jobsd.support import SEED, wait_until

LOAD = "CREATE TABLE IF NOT EXISTS ledger (run VARCHAR, amount INTEGER, due VARCHAR)"
BOOK = "INSERT INTO ledger VALUES ('${ROTA_RUN_ID}', 5, '${ROTA_SCHEDULED_AT}')"
SUM = "SELECT sum(amount) AS total FROM ledger"


@pytest.fixture(params=["store", "target"])
def seed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Seed]:
    """DuckDB as the store, and as a target beside a store on SQLite."""
    warehouse = f"duckdb:///{tmp_path / 'warehouse.duckdb'}"
    if request.param == "store":
        made = Seed(tmp_path, warehouse)
    else:
        named = {"warehouse": warehouse, ASKING: f"duckdb:///{tmp_path / 'asking.duckdb'}"}
        database = f"sqlite:///{tmp_path / 'rota.db'}"
        made = Seed(tmp_path, database, targets=named, default_target="warehouse")
    made.prepare_to_ask()
    yield made
    made.stop()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


def test_the_folder_of_the_document_runs_unchanged(seed: Seed) -> None:
    seed.accounting(LOAD, BOOK, SUM)
    seed.start()
    job = next(one for one in seed.app.jobs() if one.name == "accounting")
    schedule = seed.app.control.schedule("accounting")
    assert (job.timeout, schedule.queue_max) == (timedelta(minutes=30), 3)
    assert (schedule.overlap, job.retry.max_attempts) == ("queue", 1)
    began_at = seed.clock.now
    for number in range(1, 4):
        seed.pass_time("15m")
        seed.until("accounting", ["succeeded"] * number)
    runs = seed.runs("accounting")
    due = [began_at + timedelta(minutes=15) * number for number in (1, 2, 3)]
    assert [run.occurrence for run in runs] == due
    assert [run.result for run in runs] == [
        f'{{"columns":["total"],"rows":[[{total}]],"more":false}}' for total in (5, 10, 15)
    ]
    for run in runs:
        names = ("01.sql", "02.sql", "03.sql")
        assert seed.steps(run) == [(name, "succeeded") for name in names]
    assert seed.rows("SELECT run, due FROM ledger ORDER BY due") == [
        (run.id, run.occurrence.isoformat()) for run in runs if run.occurrence
    ]


def test_a_failed_file_stops_the_run_and_the_next_occurrence_begins_anew(seed: Seed) -> None:
    seed.accounting(LOAD, BOOK, "SELECT * FROM nowhere")
    seed.start().pass_time("15m")
    seed.until("accounting", ["dead"])
    (dead,) = seed.runs("accounting")
    assert (dead.error or "").startswith("03.sql:1: Catalog Error: Table with name nowhere")
    assert seed.rows("SELECT count(*) FROM ledger") == [(1,)]  # earlier files are kept
    seed.accounting(LOAD, BOOK, SUM)
    seed.settle()
    seed.pass_time("15m")
    seed.until("accounting", ["dead", "succeeded"])


def test_all_registered_jobs(seed: Seed) -> None:
    seed.accounting(LOAD, BOOK, SUM)
    seed.jobs.sql("daily_sync", 'schedule = "0 3 * * *"\nenabled = false\n')
    seed.start()
    accounting, daily = sorted(seed.ask(REGISTERED), key=lambda row: str(row["name"]))
    assert accounting == {
        "name": "accounting", "schedule": "0 */15 * * * *", "enabled": True, "queue_max": 3,
        "timeout": "30m", "file_count": 3, "queued": 0, "running": False, "error": None,
    }  # fmt: skip
    assert daily == {
        "name": "daily_sync", "schedule": "0 3 * * *", "enabled": False, "queue_max": None,
        "timeout": None, "file_count": 1, "queued": 0, "running": False, "error": None,
    }  # fmt: skip


def test_the_questions_while_a_run_is_in_progress(seed: Seed, gate: Gate) -> None:
    seed.accounting(LOAD, BOOK, gate.sql)
    seed.jobs.sql("idle", 'every = "8h"')
    seed.start().pass_time("15m", times=3)
    seed.until_step(seed.runs("accounting")[0], "03.sql")
    assert seed.ask(BUSY) == [{"name": "accounting", "queued": 2, "running": True}]
    assert seed.ask(FAILED) == seed.ask(AVERAGE) == []
    shown = seed.ask(
        "SELECT job_name, file_name, status, finished_at IS NULL AS is_open "
        "FROM _rota.job_runs ORDER BY id"
    )
    assert [tuple(row.values())[1:] for row in shown] == [
        (None, "running", True),
        ("01.sql", "success", False),
        ("02.sql", "success", False),
        ("03.sql", "running", True),
    ]
    waits = "SELECT job_name, started_at IS NULL AS waits FROM _rota.job_queue ORDER BY 2"
    assert [row["waits"] for row in seed.ask(waits)] == [False, True, True]
    for number in (1, 2, 3):
        gate.open()
        seed.until_ended("accounting", number)
    assert seed.ask(BUSY) == []
    (average,) = seed.ask(AVERAGE)
    assert average["job_name"] == "accounting"
    assert average["avg_duration"] is not None


def test_failures_of_the_last_day(seed: Seed) -> None:
    seed.clock.set(seed.clock.now - timedelta(days=2))
    seed.accounting(LOAD, "SELECT 1 FROM nowhere")
    seed.jobs.sql("good", 'every = "8h"')
    seed.start()
    seed.run("accounting")
    seed.run("good")
    assert seed.ask(FAILED) == []  # two days ago
    seed.clock.advance("2d")
    dead = seed.run("accounting")
    seed.run("good")
    found = seed.ask(FAILED)
    assert {row["job_name"] for row in found} == {"accounting"}
    assert sorted(row["file_name"] or "" for row in found) == ["", "02.sql"]
    for row in found:
        assert row["error_message"] == dead.error
        assert "02.sql:1: Catalog Error" in row["error_message"]
    assert {row["job_name"] for row in seed.ask(AVERAGE)} == {"good"}


def test_a_job_may_ask_the_questions_itself(seed: Seed) -> None:
    """What the document means by alerting: a scheduled job that reads the history."""
    seed.accounting("SELECT 1 FROM nowhere")
    alert = f"CREATE TABLE alerts AS {FAILED}"
    seed.jobs.sql("alert", "schedule = false", **{"01": alert, "02": BUSY})
    seed.start()
    seed.run("accounting")
    told = seed.run("alert")
    assert seed.rows("SELECT DISTINCT job_name FROM alerts") == [("accounting",)]
    # It sees itself at work.
    assert told.result == (
        '{"columns":["name","queued","running"],"rows":[["alert",0,true]],"more":false}'
    )


def test_one_runs_three_wait_the_rest_is_dropped(seed: Seed, gate: Gate) -> None:
    seed.accounting(LOAD, gate.sql, BOOK)
    seed.start().pass_time("15m", times=11)  # ten intervals long
    seed.until("accounting", ["running", "held", "held", "held"])
    outcomes = seed.app.control.occurrences("accounting", limit=99)
    assert [row["outcome"] for row in reversed(outcomes)] == ["fired"] * 4 + ["dropped"] * 7
    assert seed.ask(BUSY) == [{"name": "accounting", "queued": 3, "running": True}]
    if seed.target.is_store:
        dropped = "SELECT outcome, count(*) FROM _rota.occurrences GROUP BY 1 ORDER BY 1"
        assert seed.rows(dropped) == [("dropped", 7), ("fired", 4)]
    for number in range(1, 5):
        gate.open()
        seed.until_ended("accounting", number)
    assert seed.states("accounting") == ["succeeded"] * 4
    booked = [run for (run,) in seed.rows("SELECT run FROM ledger ORDER BY rowid")]
    assert booked == [run.id for run in seed.runs("accounting")]  # first in, first out


def test_an_edit_leaves_the_queue(seed: Seed, gate: Gate) -> None:
    seed.accounting(LOAD, gate.sql, BOOK)
    seed.start().pass_time("15m", times=3)
    seed.until("accounting", ["running", "held", "held"])
    seed.until_step(seed.runs("accounting")[0], "02.sql")
    seed.accounting(LOAD, "SELECT 'no gate'", BOOK, toml=SEED.replace("*/15", "*/20"))
    seed.settle()
    assert seed.app.control.schedule("accounting").expr == "0 */20 * * * *"
    assert seed.states("accounting") == ["running", "held", "held"]
    gate.open()  # the one that runs has its text from before; the others find the new one
    seed.until("accounting", ["succeeded"] * 3)
    assert seed.rows("SELECT count(*) FROM ledger") == [(3,)]


def test_a_deleted_folder_clears_the_queue_and_the_running_one_ends(seed: Seed, gate: Gate) -> None:
    seed.accounting(LOAD, gate.sql, BOOK)
    seed.start().pass_time("15m", times=3)
    seed.until("accounting", ["running", "held", "held"])
    seed.until_step(seed.runs("accounting")[0], "02.sql")
    seed.jobs.remove("accounting")
    seed.settle()
    assert seed.states("accounting") == ["running", "cancelled", "cancelled"]
    gate.open()
    seed.until("accounting", ["succeeded", "cancelled", "cancelled"])
    assert seed.rows("SELECT count(*) FROM ledger") == [(1,)]
    seed.pass_time("15m", times=3)
    assert len(seed.runs("accounting")) == 3


ATTACH = "ATTACH '${SOURCE}' AS source;\nCOPY source.main.orders TO '${BUCKET}/orders.parquet';\n"


def test_attach_and_copy_three_times_in_a_row_once_failing(
    seed: Seed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with duckdb.connect(str(tmp_path / "source.duckdb")) as source:
        source.execute("CREATE TABLE orders AS SELECT 1 AS id, 'bread' AS what")
    (tmp_path / "bucket").mkdir()
    monkeypatch.setenv("SOURCE", str(tmp_path / "source.duckdb"))
    monkeypatch.setenv("BUCKET", str(tmp_path / "missing"))
    seed.jobs.sql("sync", "schedule = false", **{"01": ATTACH})
    seed.start()
    with kept_open(seed.target):
        before = seed.attached()
        dead = seed.run("sync")  # after the ATTACH: there is no such folder
        assert dead.state == "dead"
        assert "01.sql:2: IO Error" in (dead.error or "")
        assert seed.attached() == before
        monkeypatch.setenv("BUCKET", str(tmp_path / "bucket"))
        for _ in range(2):
            assert seed.run("sync").error is None
            assert seed.attached() == before
    found = duckdb.sql(f"SELECT * FROM '{tmp_path}/bucket/orders.parquet'").fetchall()
    assert found == [(1, "bread")]


def test_a_run_that_was_paused_goes_on_with_what_it_attached(
    seed: Seed, gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of the document; the value of its variable is read anew."""
    source, orders = tmp_path / "source.duckdb", tmp_path / "orders.parquet"
    duckdb.connect(str(source)).execute("CREATE TABLE orders AS SELECT 5 AS amount").close()
    monkeypatch.setenv("SOURCE", str(source))
    monkeypatch.setenv("S3_BUCKET", str(tmp_path))
    seed.accounting(
        "ATTACH '${SOURCE}' AS source (READ_ONLY);\n"
        "COPY source.main.orders TO '${S3_BUCKET}/orders.parquet';",
        gate.sql,
        "SELECT sum(amount) AS total FROM source.main.orders",
    )
    seed.start()
    seed.pass_time("15m")
    seed.until("accounting", ["running"])
    (run,) = seed.runs("accounting")
    seed.until_step(run, "02.sql")
    seed.app.control.pause_run(run.id, "lunch")
    written = orders.stat().st_mtime_ns
    gate.open()
    seed.until("accounting", ["paused"])
    assert "source" not in seed.attached()
    monkeypatch.setenv("SOURCE", str(source.rename(tmp_path / "moved.duckdb")))
    seed.app.control.resume_run(run.id)
    run = seed.ended(run.id)
    assert (run.state, run.error) == ("succeeded", None)
    assert run.result == '{"columns":["total"],"rows":[[5]],"more":false}'
    assert orders.stat().st_mtime_ns == written  # nothing else of 01.sql was done again
    assert "source" not in seed.attached()


def test_a_step_that_writes_to_an_attached_database(seed: Seed, tmp_path: Path) -> None:
    """It cannot commit together with its record: it is recorded after, and says so."""
    other = tmp_path / "other.duckdb"
    write = (
        f"ATTACH '{other}' AS other;\nCREATE TABLE IF NOT EXISTS other.main.copied (n INTEGER);\n"
        "INSERT INTO other.main.copied SELECT amount FROM ledger;\n"
    )
    seed.accounting(LOAD, BOOK, write, SUM)
    seed.start()
    ended = seed.run("accounting")
    assert (ended.state, ended.error) == ("succeeded", None)
    notes = {one["name"]: one["note"] for one in seed.app.control.steps(ended.id)}
    assert notes["03.sql"] == "at least once"
    assert notes["02.sql"] == (None if seed.target.is_store else "at least once")
    with duckdb.connect(str(other)) as connection:
        assert connection.execute("SELECT n FROM copied").fetchall() == [(5,)]


def test_a_missing_variable_fails_with_a_clear_error(seed: Seed) -> None:
    seed.accounting(LOAD, ATTACH, BOOK)
    seed.start()
    dead = seed.run("accounting")
    assert dead.state == "dead"
    assert "SOURCE" in (dead.error or "")
    assert "BUCKET" in (dead.error or "")
    assert seed.rows("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'ledger'") == [(0,)]


@pytest.mark.parametrize("seed", ["target"], indirect=True)
def test_a_run_that_waits_for_another_says_so_and_does_not_time_out(seed: Seed, gate: Gate) -> None:
    """As long as the timeout of all of them: a run on a file of its own is ended by it."""
    limited = 'schedule = false\ntimeout = "5s"\n'
    seed.accounting(gate.sql)
    seed.jobs.sql("waits", limited, **{"01": "SELECT 1"})
    seed.jobs.sql("late", limited + f'target = "{ASKING}"\n', **{"01": NEVER_ENDS["duckdb"]})
    seed.start()
    first = seed.app.control.trigger("accounting")
    seed.until_step(first, "01.sql")
    second = seed.app.control.trigger("waits")
    told = f"waits for its turn: run {first.id} of accounting writes warehouse.duckdb"
    wait_until(lambda: told in seed.log(second), "what it waits for")
    assert seed.run("late").error == "timed out after 5s"
    assert seed.app.control.run(second.id).state == "running"
    gate.open()
    wait_until(lambda: seed.steps(second), "its turn")
