"""Control rows: a client that knows nothing but SQL asks, and a process that runs answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import rota
from rota.errors import Unavailable
from rota.flow.answer import Answer
from rota.flow.events import RunEvent
from rota.model.control_row import UNEXPECTED, ControlRequest
from rota.sql.control_rows import ControlRows
from rota.storage import operations
from tests.api.support import Driven, Watch, plain, wait_until
from tests.api.test_sql_jobs import ended
from tests.conformance.support import CONTROL
from tests.support.operations import replace_operation
from tests.unit.test_sql_grammar import GOOD

MakeApp = Callable[..., rota.Rota]
Ask = Callable[[str], dict[str, Any]]
COLUMNS = "id, statement, requested_by, role, status, answered_at, rows, more, error"


def insert(database: str, engine: str, statement: str) -> int:
    """From a connection of a client's own; the number of the row."""
    mark = "%s" if engine == "postgres" else "?"
    with plain(database) as connection:
        found = connection.execute(
            f"INSERT INTO {CONTROL[engine]} (statement) VALUES ({mark}) RETURNING id", (statement,)
        ).fetchone()
        return int(found[0])


def read(database: str, engine: str, number: int) -> dict[str, Any]:
    with plain(database) as connection:
        row = connection.execute(
            f"SELECT {COLUMNS} FROM {CONTROL[engine]} WHERE id = {number}"
        ).fetchone()
    told = dict(zip(COLUMNS.split(", "), row, strict=True))
    if isinstance(told["rows"], str):
        told["rows"] = json.loads(told["rows"])
    return told


@pytest.fixture
def ask(app: rota.Rota, database: str, engine: str) -> Ask:
    """The row of a statement, once it is answered by an app that runs."""

    @app.job
    def work(fail: bool = False, api_token: str = "") -> None: ...

    app.schedule("s", job="work", every="1h")
    app.start()
    wait_until(lambda: bool(app.control.workers()), "its worker is known")

    def insert_and_wait(statement: str) -> dict[str, Any]:
        number = insert(database, engine, statement)
        wait_until(
            lambda: read(database, engine, number)["status"] != "asked", f"{statement} was answered"
        )
        return read(database, engine, number)

    return insert_and_wait


@pytest.mark.each_engine
def test_a_row_is_done_and_answered(app: rota.Rota, ask: Ask) -> None:
    row = ask("PAUSE SCHEDULE s REASON 'by row'")
    assert (row["status"], row["error"], bool(row["more"])) == ("done", None, False)
    assert row["answered_at"] is not None
    ((shown),) = row["rows"]
    assert (shown["label"], shown["schedule_status"]) == ("s", "PAUSED")
    schedule = app.control.schedule("s")
    assert (schedule.paused, schedule.paused_reason) == (True, "by row")
    (change, _) = app.control.changes("s")
    assert (change["action"], change["by"]) == ("pause", row["requested_by"] or "unknown")
    audit = next(one for one in app.control.audit() if one["action"] == "pause_schedule")
    assert (audit["via"], audit["by"]) == ("control", row["requested_by"] or "unknown")
    assert ask("RESUME SCHEDULE s")["rows"][0]["schedule_status"] == "ACTIVE"


def test_a_run_is_made_and_executed(app: rota.Rota, ask: Ask) -> None:
    row = ask("RUN JOB work WITH (api_token = 'hush''hush')")
    run = ended(app, row["rows"][0]["run_id"])
    assert run.state == "succeeded"
    assert row["statement"] == "RUN JOB work WITH (api_token = '[redacted]')"
    executed = ask("EXECUTE SCHEDULE s")
    assert (executed["status"], executed["error"]) == ("done", None)
    assert ended(app, executed["rows"][0]["run_id"]).state == "succeeded"
    created = ask("""CREATE SCHEDULE t FOR JOB work EVERY '1h'
                       WITH SCHEDULE OPTIONS (args = '{"api_token": "hush-hush"}')""")
    assert created["status"] == "done"
    assert "hush-hush" not in str(created)
    assert app.storage.read(operations.schedule_named, "t").args == {"api_token": "hush-hush"}


def test_what_cannot_be_done_is_answered_with_its_error(app: rota.Rota, ask: Ask) -> None:
    for statement, error in {
        "PAUSE SHEDULE s": "did you mean SCHEDULE?",
        "PAUSE SCHEDULE nobody": "schedule 'nobody' does not exist",
        "RUN JOB nobody": "job 'nobody' does not exist",
        "RUN JOB work WITH (nonsense = 1)": "'nonsense' is unknown",
        "SHOW JOBS; SHOW JOBS": "one statement is expected here, not 2",
        "": "one statement is expected here, not none",
        "SELECT * FROM runs": "query the views themselves",
        "PAUSE SCHEDULES (SELECT nothing FROM runs)": "nothing",
        "DROP TABLE runs": "got 'TABLE'",
    }.items():
        row = ask(statement)
        assert (row["status"], row["rows"]) == ("failed", None), statement
        assert error in row["error"], statement
    assert app.health["answer"] is None


def test_what_looks_is_answered_too(ask: Ask) -> None:
    assert [one["label"] for one in ask("SHOW SCHEDULES")["rows"]] == ["s"]
    assert len(ask("EXPLAIN SCHEDULE s COUNT 3")["rows"]) == 3
    assert "CREATE SCHEDULE" in ask("SHOW CREATE SCHEDULE s")["rows"][0]["create_statement"]


def test_many_schedules_are_changed_or_none(app: rota.Rota, ask: Ask) -> None:
    for number in range(3):
        app.schedule(f"t{number}", job="work", every="1h")
    row = ask("DROP SCHEDULES (SELECT id FROM schedules WHERE name <> 's')")
    assert sorted(one["label"] for one in row["rows"]) == ["t0", "t1", "t2"]
    assert [one.name for one in app.control.schedules()] == ["s"]
    run = app.enqueue("work", delay="1h")
    assert ask("CANCEL JOBS FOR SCHEDULE s")["rows"][0]["runs"] == 0
    assert app.control.run(run.id).state == "waiting"


@pytest.mark.each_engine
def test_listeners_hear_of_a_cancel_once_it_is_committed(
    app: rota.Rota, watch: Watch, ask: Ask, database: str, engine: str
) -> None:
    seen: list[tuple[str, str]] = []

    @app.on("job.cancelled")
    def heard(event: RunEvent) -> None:
        with plain(database) as connection:
            views = {"sqlite": "rota_", "postgres": "rota.", "duckdb": "_rota."}[engine]
            sql = f"SELECT state FROM {views}runs WHERE run_id = '{event.run_id}'"
            seen.append((event.run_id, connection.execute(sql).fetchone()[0]))

    app.control.pause_dispatch("so that it waits")
    run_id = app.control.trigger("s").id
    assert ask("CANCEL JOBS FOR SCHEDULE s")["rows"][0]["runs"] == 1
    watch.wait("job.cancelled", run_id)
    wait_until(lambda: seen == [(run_id, "cancelled")], "what was heard is true")


def test_of_several_processes_one_answers(make_app: MakeApp, database: str, engine: str) -> None:
    apps = [make_app() for _ in range(3)]
    for app in apps:
        app.job("work")(lambda: None)
        app.start()
    numbers = [insert(database, engine, "RUN JOB work") for _ in range(10)]
    left = f"SELECT count(*) FROM {CONTROL[engine]} WHERE status <> 'done'"
    with plain(database) as connection:
        wait_until(lambda: connection.execute(left).fetchone()[0] == 0, "every row was answered")
    made = [read(database, engine, number)["rows"][0]["run_id"] for number in numbers]
    assert sorted(run.id for run in apps[0].control.runs(job="work")) == sorted(made)


@pytest.mark.each_engine
def test_a_process_that_starts_later_does_what_waits(
    app: rota.Rota, make_app: MakeApp, database: str, engine: str
) -> None:
    app.job("work")(lambda: None)
    app.load()
    number = insert(database, engine, "PAUSE DISPATCH REASON 'early'")
    later = make_app()
    later.start(only=["scheduler"])
    wait_until(lambda: read(database, engine, number)["status"] == "done", "it was answered")
    assert "early" in str(app.control.overview()["dispatch"])


# One row at a time


@pytest.mark.each_engine
def test_polling_alone_finds_a_row(driven: Driven, database: str, engine: str) -> None:
    loop = Answer(driven.store, planner=driven.app._planner, interval=1.0)
    assert 0 < loop.step() <= 0.5
    number = insert(database, engine, "PAUSE DISPATCH")
    loop.step()
    assert read(database, engine, number)["status"] == "done"


@pytest.mark.each_engine
def test_every_good_statement_is_answered(driven: Driven, database: str, engine: str) -> None:
    loop = Answer(driven.store, planner=driven.app._planner, interval=1.0)
    numbers = [insert(database, engine, text) for text in GOOD]
    while loop.step() == 0.0:
        pass
    answers = [read(database, engine, number) for number in numbers]
    assert {row["status"] for row in answers} == {"done", "failed"}
    assert [row["statement"] for row in answers if row["error"] == UNEXPECTED] == []


@pytest.mark.each_engine
def test_a_defect_is_an_answer_and_the_next_row_is_done(
    driven: Driven, database: str, engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    rows = ControlRows(driven.app)

    def plan(asked: ControlRequest) -> Any:
        if asked.statement == "one":
            raise RecursionError("too deep")
        made = rows.plan(asked)
        if asked.statement == "SHOW JOBS":
            made.do = lambda storage: 1 / 0
        return made

    loop = Answer(driven.store, planner=lambda: plan, interval=1.0)
    numbers = [insert(database, engine, text) for text in ("one", "SHOW JOBS", "PAUSE DISPATCH")]
    loop.step()
    errors = [read(database, engine, number)["error"] for number in numbers]
    assert errors == [UNEXPECTED, UNEXPECTED, None]
    assert "cannot be read" in caplog.text
    assert "cannot be done" in caplog.text


@pytest.mark.each_engine
def test_a_row_waits_while_the_database_is_away(
    driven: Driven, database: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Answer(driven.store, planner=driven.app._planner, interval=1.0)
    number = insert(database, engine, "PAUSE DISPATCH")

    def away(*_: object) -> None:
        raise Unavailable("no answer to a commit")

    with monkeypatch.context() as patched:
        replace_operation(patched, driven.store, operations.answer, away)
        with pytest.raises(Unavailable):
            loop.step()
    assert read(database, engine, number)["status"] == "asked"
    loop.step()
    assert read(database, engine, number)["status"] == "done"
