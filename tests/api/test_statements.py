"""Statements do what they say, on every engine, in a time that the test owns."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

import rota
from rota.errors import Conflict, Invalid, Outdated, RotaError, Unknown
from rota.flow.control import Control
from rota.model.result import Result
from rota.model.run import ClaimedRun
from rota.model.schedule import Schedule
from rota.sql.execute import VIA, Statements
from rota.storage import operations
from rota.storage.operations.audit import Actor
from tests.api.support import Driven
from tests.conformance.support import settle
from tests.unit.test_sql_grammar import GOOD, mutated

ME = Actor(by="analyst", via=VIA)
Sql = Callable[[str], Any]


def statements(app: rota.Rota, **known: Any) -> Statements:
    return Statements(app.control_as(ME), **known)


@pytest.fixture
def sql(driven: Driven) -> Sql:
    """The records of the last statement of a text."""

    @driven.app.job(max_attempts=1)
    def work(fail: bool = False, api_token: str = "") -> None:
        if fail:
            raise RuntimeError("it should")

    driven.app.load()

    def run(text: str) -> list[dict[str, Any]]:
        return list(statements(driven.app).run(text))[-1].records()

    return run


def audit(driven: Driven) -> list[tuple[str, str, str]]:
    found = driven.control.audit()
    return [(one["action"], one["by"], one["thing"]) for one in found if one["via"] == VIA][::-1]


# Schedules


@pytest.mark.each_engine
def test_create_and_show_a_schedule(driven: Driven, sql: Sql) -> None:
    (made,) = sql("CREATE SCHEDULE nightly FOR JOB work RECURRING '0 3 * * *'")
    assert made["schedule_status"] == "ACTIVE"
    (shown,) = sql("SHOW SCHEDULE nightly")
    assert list(shown) == [
        "id", "label", "schedule_status", "next_run", "state", "recurrence", "jobsrunning",
        "owner", "created", "on_previous_running", "on_execution_failure", "command",
    ]  # fmt: skip
    assert shown["next_run"] == made["next_run"] == driven.clock.now.replace(hour=3)
    told = {name: shown[name] for name in ("label", "recurrence", "owner", "command")}
    assert told == {
        "label": "nightly", "recurrence": "0 3 * * *", "owner": "analyst",
        "command": "RUN JOB work",
    }  # fmt: skip
    assert (shown["on_previous_running"], shown["on_execution_failure"]) == ("WAIT", "RESCHEDULE")
    assert sql(f"SHOW SCHEDULE {shown['id']}") == [shown]
    assert sql("SHOW SCHEDULES") == [shown]
    assert audit(driven) == [("create_schedule", "analyst", "nightly")]


@pytest.mark.each_engine
def test_results_have_columns_with_types(driven: Driven, sql: Sql) -> None:
    sql("CREATE SCHEDULE s FOR JOB work EVERY '1h'")
    (found,) = statements(driven.app).run("SHOW SCHEDULES")
    types = {column.name: column.type for column in found.columns}
    assert (types["id"], types["label"], types["next_run"]) == ("integer", "text", "timestamp")


def test_create_refuses_a_name_that_is_taken(driven: Driven, sql: Sql) -> None:
    sql("CREATE SCHEDULE s FOR JOB work EVERY '1h'")
    with pytest.raises(Conflict, match="exists already; alter it"):
        sql("CREATE SCHEDULE s FOR JOB work EVERY '2h'")
    sql("CREATE SCHEDULE IF NOT EXISTS s FOR JOB work EVERY '2h'")
    assert driven.control.schedule("s").expr == "1h"


def test_create_refuses_what_other_surfaces_refuse(sql: Sql) -> None:
    for text, error in {
        "CREATE SCHEDULE s FOR JOB wrok EVERY '1h'": "job 'wrok' does not exist",
        "CREATE SCHEDULE s FOR JOB work EVERY 'soon'": "every 'soon' is not a duration",
        "CREATE SCHEDULE s FOR JOB work RECURRING '61 * * * *'": "61",
        "CREATE SCHEDULE s FOR JOB work AT 'tomorrow'": "tomorrow",
        "CREATE SCHEDULE s FOR JOB work EVERY '1h' WITH SCHEDULE OPTIONS args = '{\"x\": 1}'": "x",
        "CREATE SCHEDULE s FOR JOB work EVERY '1h' WITH SCHEDULE OPTIONS (overlap = no)":
        "overlap 'no' is unknown",
        "CREATE SCHEDULE s FOR JOB work EVERY '1h' WITH SCHEDULE OPTIONS (queue_max = -1)":
        "queue_max -1",
        "CREATE SCHEDULE s FOR JOB work EVERY '1h' WITH SCHEDULE OPTIONS (enabled = 3)": "enabled",
        "CREATE SCHEDULE s FOR JOB work EVERY '1h' WITH SCHEDULE OPTIONS (max_attempts = 0)":
        "max_attempts 0",
        "CREATE SCHEDULE s FOR JOB work EVERY '1h' WITH SCHEDULE OPTIONS (timezone = Mars/Base)":
        "Mars/Base",
    }.items():  # fmt: skip
        with pytest.raises(RotaError, match=error):
            sql(text)
    assert sql("SHOW SCHEDULES") == []


def test_first_run_now_fires_at_once(driven: Driven, sql: Sql) -> None:
    sql("CREATE SCHEDULE s FOR JOB work EVERY '1d' WITH SCHEDULE OPTIONS (first_run = 'now')")
    assert len(driven.drain()) == 1


def test_alter_changes_what_is_told_and_nothing_else(driven: Driven, sql: Sql) -> None:
    sql("CREATE SCHEDULE s FOR JOB work EVERY '1h' WITH SCHEDULE OPTIONS (queue_max = 3)")
    driven.clock.advance("10m")
    before = driven.control.schedule("s")
    sql("PAUSE SCHEDULE s REASON 'audit'")
    sql("ALTER SCHEDULE s SET on_previous_running = skip, on_execution_failure = pause")
    after = driven.control.schedule("s")
    assert (after.overlap, after.on_error, after.queue_max) == ("skip", "pause", 3)
    assert after.next_fire_at == before.next_fire_at, "the timing did not change"
    assert (after.paused, after.paused_reason) == (True, "audit")
    sql("ALTER SCHEDULE s SET EVERY '2h', queue_max = NULL")
    altered = driven.control.schedule("s")
    assert altered.next_fire_at == driven.clock.now + timedelta(hours=2)
    assert (altered.queue_max, altered.paused) == (None, True)


def test_alter_changes_retries_and_the_job(driven: Driven, sql: Sql) -> None:
    driven.app.job("other")(lambda: None)
    driven.app.load()
    sql("CREATE SCHEDULE s FOR JOB work EVERY '1h'; CREATE SCHEDULE u AS 'SELECT 1' EVERY '1h'")
    sql("ALTER SCHEDULE s SET max_attempts = 4, FOR JOB other")
    altered = driven.control.schedule("s")
    assert (altered.job, altered.retry.max_attempts) == ("other", 4)
    sql("ALTER SCHEDULE s SET max_attempts = NULL")
    assert driven.control.schedule("s").retry is None
    for text, error in {
        "ALTER SCHEDULE s SET FOR JOB nobody": "nobody",
        "ALTER SCHEDULE s SET timeout = '5m'": "was not made by CREATE SCHEDULE … AS",
        "ALTER SCHEDULE s SET AS $$ SELECT 1 $$": "was not made by CREATE SCHEDULE … AS",
        "ALTER SCHEDULE t SET EVERY '1h'": "schedule 't' does not exist",
        "ALTER SCHEDULE u SET FOR JOB other": "has SQL of its own; drop it",
    }.items():
        with pytest.raises(RotaError, match=error):
            sql(text)


def test_runs_of_a_dropped_schedule_are_shown(driven: Driven, sql: Sql) -> None:
    sql("CREATE SCHEDULE s FOR JOB work EVERY '1h'; CREATE SCHEDULE s2 FOR JOB work EVERY '1h'")
    (made,) = sql("EXECUTE SCHEDULE s")
    sql("DROP SCHEDULE s REASON 'not needed'")
    (run,) = sql("SHOW JOBS FOR SCHEDULE s")
    assert run["run_id"] == made["run_id"]
    for text in ("SHOW SCHEDULE s", "EXPLAIN SCHEDULE s", "PAUSE SCHEDULE s"):
        with pytest.raises(Unknown, match=r"schedule 's' was dropped by .*: not needed"):
            sql(text)
    assert sql("DROP SCHEDULE IF EXISTS s") == []
    with pytest.raises(Unknown, match="schedule 'never' does not exist"):
        sql("SHOW JOBS FOR SCHEDULE never")


def test_what_is_hidden_stays_as_it_was(driven: Driven, sql: Sql) -> None:
    create = "CREATE SCHEDULE s FOR JOB work EVERY '1h' WITH SCHEDULE OPTIONS (args = '{}')"
    with pytest.raises(Invalid, match=r"schedule 's': argument api_token is \[redacted\]"):
        sql(create.format('{"api_token": "[redacted]"}'))
    sql(create.format('{"api_token": "t0p"}'))
    (shown,) = sql("SHOW CREATE SCHEDULE s")
    told = re.findall(r"args = '(.*?)'", shown["create_statement"])[0]
    assert "t0p" not in told
    sql(f"ALTER SCHEDULE s SET args = '{told}', EVERY '2h'")
    altered = driven.store.read(operations.schedule_named, "s")
    assert (altered.args, altered.expr) == ({"api_token": "t0p"}, "2h")
    sql("""ALTER SCHEDULE s SET args = '{"api_token": "[redacted]", "fail": true}'""")
    assert driven.store.read(operations.schedule_named, "s").args == {
        "api_token": "t0p",
        "fail": True,
    }


def test_an_edit_undoes_nobody_elses(
    driven: Driven, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql("CREATE SCHEDULE s FOR JOB work EVERY '1h'")
    put = Control.put_schedule

    def put_second(self: Control, *args: Any, **more: Any) -> Schedule:
        other = replace(driven.control.schedule("s"), overlap="skip")
        put(driven.control, other)
        return put(self, *args, **more)

    monkeypatch.setattr(Control, "put_schedule", put_second)
    with pytest.raises(Outdated, match="was changed since you read it"):
        sql("ALTER SCHEDULE s SET EVERY '2h'")
    found = driven.control.schedule("s")
    assert (found.overlap, found.expr) == ("skip", "1h")


def test_an_edit_of_sql_undoes_nobody_elses(
    driven: Driven, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql("CREATE SCHEDULE u AS 'SELECT 1' EVERY '1h'")
    put = Control.put_schedule

    def faster(other: str, text: str) -> None:
        def put_second(self: Control, *args: Any, **more: Any) -> Schedule:
            monkeypatch.setattr(Control, "put_schedule", put)
            sql(other)
            return put(self, *args, **more)

        monkeypatch.setattr(Control, "put_schedule", put_second)
        sql(text)

    def told() -> tuple[str, timedelta | None, str]:
        job = driven.control.job("u")
        return job.spec["text"], job.timeout, driven.control.schedule("u").expr

    with pytest.raises(Outdated, match="the SQL job of schedule 'u' was changed since you read it"):
        faster("ALTER SCHEDULE u SET AS 'SELECT 2'", "ALTER SCHEDULE u SET timeout = '5m'")
    assert told() == ("SELECT 2", None, "1h")
    # What is not about its SQL leaves that alone.
    faster("ALTER SCHEDULE u SET AS 'SELECT 3'", "ALTER SCHEDULE u SET EVERY '2h'")
    assert told() == ("SELECT 3", None, "2h")
    sql("ALTER SCHEDULE u SET timeout = '5m'")
    assert told() == ("SELECT 3", timedelta(minutes=5), "2h")


def test_no_surface_takes_the_job_from_a_schedule_with_sql_of_its_own(
    driven: Driven, sql: Sql
) -> None:
    sql("CREATE SCHEDULE u AS 'SELECT 1' EVERY '1h'")
    with pytest.raises(Invalid, match="schedule 'u' has SQL of its own; drop it"):
        driven.control.put_schedule(replace(driven.control.schedule("u"), job="work"))
    assert driven.control.schedule("u").job == "u"


def test_pause_and_resume(driven: Driven, sql: Sql) -> None:
    sql("CREATE SCHEDULE s FOR JOB work EVERY '1h'")
    sql("CREATE SCHEDULE t FOR JOB work EVERY '1h'")
    (paused,) = sql("PAUSE SCHEDULE s REASON 'moving'")
    assert (paused["schedule_status"], paused["next_run"]) == ("PAUSED", None)
    assert [one["label"] for one in sql("SHOW PAUSED SCHEDULES")] == ["s"]
    assert [one["label"] for one in sql("SHOW RUNNING SCHEDULES")] == ["t"]
    assert driven.advance("90m") != []
    assert [run.schedule_id for run in driven.control.runs(schedule="s")] == []
    (resumed,) = sql("RESUME SCHEDULE s")
    assert (resumed["schedule_status"], resumed["next_run"] > driven.clock.now) == ("ACTIVE", True)
    assert ("resume_schedule", "analyst", "s") in audit(driven)


def test_resume_of_an_active_schedule_keeps_its_first_run(driven: Driven, sql: Sql) -> None:
    sql(
        "CREATE SCHEDULE s FOR JOB work EVERY '1h' "
        "WITH SCHEDULE OPTIONS (first_run = '2026-06-01T12:00:00Z')"
    )
    before = driven.control.schedule("s")
    sql("RESUME SCHEDULE s")
    assert driven.control.schedule("s") == before
    assert before.next_fire_at == before.first_run


def test_an_unknown_schedule_is_an_error_by_name_and_no_row_by_query(sql: Sql) -> None:
    for text in (
        "SHOW SCHEDULE x", "SHOW CREATE SCHEDULE x", "SHOW JOBS FOR SCHEDULE x", "PAUSE SCHEDULE x",
        "RESUME SCHEDULE x", "DROP SCHEDULE x", "PAUSE JOBS FOR SCHEDULE x", "EXECUTE SCHEDULE x",
        "RESUME JOBS FOR SCHEDULE x", "CANCEL JOBS FOR SCHEDULE x", "EXPLAIN SCHEDULE x",
        "PAUSE SCHEDULE 999", "SHOW SCHEDULE 99999999999999999999",
    ):  # fmt: skip
        with pytest.raises(Unknown):
            sql(text)
    for text in (
        "PAUSE SCHEDULES (SELECT 999)", "DROP SCHEDULES (SELECT 'x')", "DROP SCHEDULE IF EXISTS x",
        "RESUME SCHEDULES (SELECT id FROM schedules)", "CANCEL JOBS FOR SCHEDULES (SELECT 999)",
        "PAUSE SCHEDULES (SELECT NULL)",
    ):  # fmt: skip
        assert sql(text) == []
    with pytest.raises(Unknown):
        sql("SHOW RUNS FOR JOB x")
    with pytest.raises(Unknown):
        sql("RUN JOB x")


def test_ten_schedules_are_paused_resumed_and_dropped_by_a_query(driven: Driven, sql: Sql) -> None:
    for number in range(12):
        sql(f"CREATE SCHEDULE s{number:02} FOR JOB work EVERY '1h'")
    ten = "SELECT id FROM schedules WHERE name < 's10'"
    assert len(sql(f"PAUSE SCHEDULES ({ten}) REASON 'all'")) == 10
    assert len(sql("SHOW PAUSED SCHEDULES")) == 10
    assert driven.control.schedule("s03").paused_reason == "all"
    assert len(sql(f"RESUME SCHEDULES ({ten})")) == 10
    assert sql("SHOW PAUSED SCHEDULES") == []
    dropped = sql("DROP SCHEDULES (SELECT name FROM schedules WHERE name < 's10')")
    assert {one["schedule_status"] for one in dropped} == {"DROPPED"}
    assert [one["label"] for one in sql("SHOW SCHEDULES")] == ["s10", "s11"]
    with pytest.raises(Invalid, match="2 columns"):
        sql("PAUSE SCHEDULES (SELECT id, name FROM schedules)")


# What a schedule does while its last run goes on, and when one dies


@pytest.mark.parametrize(
    ("policy", "while_it_runs"),
    [
        ("wait", ["queued", "held"]),  # at most one more waits, later ones merge
        ("skip", ["queued"]),
        ("start", ["queued", "queued", "queued", "queued"]),
    ],
)
def test_on_previous_running(
    driven: Driven, sql: Sql, policy: str, while_it_runs: list[str]
) -> None:
    options = f"(on_previous_running = {policy}, catch_up = all)"
    sql(f"CREATE SCHEDULE s FOR JOB work EVERY '1m' WITH SCHEDULE OPTIONS {options}")
    for _ in range(4):
        driven.clock.advance("1m")
        fire(driven)
    runs = driven.control.runs(schedule="s")
    assert [run.state for run in reversed(runs)] == while_it_runs


@pytest.mark.parametrize(
    ("policy", "meanwhile", "after"),
    [
        ("wait", ["running", "held"], ["succeeded", "queued"]),
        ("skip", ["running"], ["succeeded"]),
        ("start", ["running", "queued"], ["succeeded", "queued"]),
    ],
)
def test_on_previous_running_while_a_worker_has_it(
    driven: Driven, sql: Sql, policy: str, meanwhile: list[str], after: list[str]
) -> None:
    sql(
        "CREATE SCHEDULE s FOR JOB work EVERY '1m' "
        f"WITH SCHEDULE OPTIONS (on_previous_running = {policy})"
    )

    def states() -> list[str]:
        return [run.state for run in reversed(driven.control.runs(schedule="s"))]

    driven.clock.advance("1m")
    fire(driven)
    run = claim_one(driven)
    driven.clock.advance("1m")
    fire(driven)
    assert states() == meanwhile
    outcomes = [one["outcome"] for one in driven.control.occurrences("s")]
    assert outcomes[0] == ("skipped" if policy == "skip" else "fired")
    settle(driven.store, run)
    assert states() == after, "what waited starts the moment the other ends"


def test_jobs_of_a_schedule_that_run_are_asked(driven: Driven, sql: Sql) -> None:
    sql("CREATE SCHEDULE s FOR JOB work EVERY '1h'")
    (made,) = sql("EXECUTE SCHEDULE s")
    run = claim_one(driven)
    assert sql("RESUME JOBS FOR SCHEDULE s")[0]["runs"] == 0
    assert sql("PAUSE JOBS FOR SCHEDULE s")[0]["runs"] == 1
    assert sql("CANCEL JOBS FOR SCHEDULE s REASON 'enough'")[0]["runs"] == 1
    asked = driven.control.run(made["run_id"])
    assert (asked.state, asked.reason) == ("running", "enough")
    assert None not in (asked.pause_requested_at, asked.cancel_requested_at)
    settle(driven.store, run, "failed")
    assert driven.states(made["run_id"]) == ["cancelled"]


def claim_one(driven: Driven) -> ClaimedRun:
    """A run in the hands of a worker."""
    (run,) = driven.store.write(
        operations.claim, "w", queues=(), jobs=["work"], limit=9, lease=timedelta(minutes=30)
    )
    return run


def fire(driven: Driven) -> None:
    """Occurrences become runs, and nobody works on them."""
    while driven.driver._fire.step() == 0.0:
        pass


@pytest.mark.parametrize(
    ("policy", "status", "runs"),
    [("reschedule", "ACTIVE", 1), ("retry", "ACTIVE", 3), ("pause", "PAUSED", 1)],
)
def test_on_execution_failure(
    driven: Driven, sql: Sql, policy: str, status: str, runs: int
) -> None:
    sql(
        "CREATE SCHEDULE s FOR JOB work EVERY '1h' WITH SCHEDULE OPTIONS "
        f"""(on_execution_failure = {policy}, args = '{{"fail": true}}', max_attempts = 1)"""
    )
    driven.advance("64m")  # an hour; and to try again after one minute, then two
    (shown,) = sql("SHOW SCHEDULES")
    assert shown["schedule_status"] == status
    found = sql("SHOW JOBS FOR SCHEDULE s")
    assert [one["state"] for one in found].count("dead") == runs


# Runs


def test_run_job_and_execute_schedule(driven: Driven, sql: Sql) -> None:
    sql("""CREATE SCHEDULE s FOR JOB work EVERY '1h'
             WITH SCHEDULE OPTIONS (args = '{"api_token": "t0p"}')""")
    (one,) = sql("EXECUTE SCHEDULE s")
    (two,) = sql("RUN JOB work WITH (fail = TRUE, api_token = 'secret-value')")
    assert {run.id for run in driven.drain()} == {one["run_id"], two["run_id"]}
    shown = {run["run_id"]: run for run in sql("SHOW RUNS FOR JOB work")}
    assert shown[one["run_id"]]["state"] == "succeeded"
    assert shown[two["run_id"]]["state"] == "dead"
    assert "it should" in shown[two["run_id"]]["error"]
    assert "secret-value" not in str(shown)
    assert [run["run_id"] for run in sql("SHOW JOBS FOR SCHEDULE s")] == [one["run_id"]]
    assert len(sql("SHOW RUNS")) == 2
    assert [action for action, _, _ in audit(driven)] == ["create_schedule", "trigger", "trigger"]
    with pytest.raises(Invalid, match="nonsense"):
        sql("RUN JOB work WITH (nonsense = 1)")


def test_jobs_of_a_schedule_are_paused_resumed_and_cancelled_where_that_is_legal(
    driven: Driven, sql: Sql
) -> None:
    sql("CREATE SCHEDULE s FOR JOB work EVERY '1h' WITH SCHEDULE OPTIONS (overlap = start)")
    sql("EXECUTE SCHEDULE s")
    ended = driven.drain()[0].id
    waiting = [sql("EXECUTE SCHEDULE s")[0]["run_id"] for _ in range(3)]
    alone = sql("RUN JOB work")[0]["run_id"]
    assert sql("PAUSE JOBS FOR SCHEDULE s REASON 'wait'")[0]["runs"] == 3
    assert driven.states(ended, *waiting, alone) == ["succeeded", *["paused"] * 3, "queued"]
    assert sql("PAUSE JOBS FOR SCHEDULE s")[0]["runs"] == 0
    assert sql("RESUME JOBS FOR SCHEDULES (SELECT 's')")[0]["runs"] == 3
    assert "paused" not in driven.states(*waiting)
    assert sql("CANCEL JOBS FOR SCHEDULE s")[0]["runs"] == 3
    assert driven.states(ended, *waiting, alone) == ["succeeded", *["cancelled"] * 3, "queued"]


def test_show_jobs_is_the_view(driven: Driven, sql: Sql) -> None:
    sql("CREATE SCHEDULE s FOR JOB work EVERY '1h'")
    sql("RUN JOB work")
    (shown,) = sql("SHOW JOBS")
    told = {name: shown[name] for name in ("name", "schedule", "enabled", "queued", "running")}
    assert told == {
        "name": "work", "schedule": "every 1h", "enabled": True, "queued": 1, "running": False,
    }  # fmt: skip


def test_dispatch(driven: Driven, sql: Sql) -> None:
    assert "full disk" in sql("PAUSE DISPATCH REASON 'full disk'")[0]["dispatch"]
    sql("RUN JOB work")
    assert driven.drain() == []
    assert sql("RESUME DISPATCH") == [{"dispatch": "on"}]
    assert len(driven.drain()) == 1


def test_explain(driven: Driven, sql: Sql) -> None:
    sql(
        "CREATE SCHEDULE s FOR JOB work RECURRING '30 2 * * *' "
        "WITH SCHEDULE OPTIONS (timezone = Europe/Berlin, starts_at = '2026-03-28T00:00:00Z')"
    )
    rows = sql("EXPLAIN SCHEDULE s COUNT 3")
    times = [row["local_time"] for row in rows if row["local_time"]]
    assert times == [
        "2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00",
    ]  # fmt: skip
    assert "02:30" in rows[0]["in_words"]
    assert rows[1]["note"], "the gap is explained"
    sql("PAUSE SCHEDULE s REASON 'why not'")
    assert "why not" in str(sql("EXPLAIN SCHEDULE s"))


@pytest.mark.each_engine
def test_select_reads_the_views(sql: Sql) -> None:
    sql("CREATE SCHEDULE s FOR JOB work EVERY '1h'")
    assert sql("SELECT name, status FROM schedules") == [{"name": "s", "status": "ACTIVE"}]
    assert sql("WITH s AS (SELECT 1 AS a) SELECT a, a FROM s;") == [{"a": 1, "a_2": 1}]


def test_a_text_with_a_mistake_does_nothing(sql: Sql) -> None:
    with pytest.raises(Invalid):
        sql("CREATE SCHEDULE s FOR JOB work EVERY '1h'; SHOW NONSENSE")
    assert sql("SHOW SCHEDULES") == []


# Creating again


RECREATED = (
    "FOR JOB work RECURRING '0 3 * * 1-5'",
    "FOR JOB work EVERY '90s'",
    "FOR JOB work AT '2031-01-01T00:00:00+01:00'",
    """FOR JOB work RECURRING '@daily' WITH SCHEDULE OPTIONS (timezone = 'Europe/Berlin',
       dst = literal, overlap = queue, queue_max = 0, on_error = retry, pause_after = 3,
       catch_up = all, catch_up_limit = 7, misfire_grace = 2m, jitter = 3s, spread = 1h,
       first_run = '2027-01-01T00:00:00Z', starts_at = '2026-12-01T00:00:00Z',
       ends_at = '2030-01-01T00:00:00Z', args = '{"fail": false}', priority = -5,
       owner = 'it''s me', enabled = FALSE, overlap_key = 'a key')""",
    "FOR JOB work EVERY '1m' WITH SCHEDULE OPTIONS (anchor = delay, max_attempts = 5, "
    "backoff = exponential, delay = 2s, max_delay = 1m, retry_jitter = 1s)",
    "AS $$ SELECT 'x' $$ EVERY '1m'",
    "AS $a$ SELECT '$$' || $sql1$;$sql1$ $a$ ON there EVERY '1m' WITH SCHEDULE OPTIONS "
    "(timeout = 5m, step_timeout = 1m, queue = reports, description = 'it''s', restart = true, "
    "run_as = 'Some One')",
)


@pytest.mark.parametrize("text", RECREATED, ids=range(len(RECREATED)))
def test_show_create_gives_a_statement_that_recreates_it(
    driven: Driven, sql: Sql, text: str
) -> None:
    sql(f"CREATE SCHEDULE first/one {text}")
    before = driven.control.schedule("first/one")
    job = driven.control.job(before.job)
    (shown,) = sql("SHOW CREATE SCHEDULE first/one")
    sql("DROP SCHEDULE first/one")
    sql(shown["create_statement"])
    after = driven.control.schedule("first/one")
    assert after.definition() == before.definition()
    assert replace(driven.control.job(after.job), version_at=None) == replace(job, version_at=None)
    assert sql("SHOW CREATE SCHEDULE first/one")[0]["create_statement"] == shown["create_statement"]


def test_show_create_hides_secrets(driven: Driven, sql: Sql) -> None:
    sql("""CREATE SCHEDULE s FOR JOB work EVERY '1h'
             WITH SCHEDULE OPTIONS (args = '{"api_token": "t0p"}')""")
    sql("CREATE SCHEDULE t AS $$ ATTACH 'postgresql://me:geheim@db/x' $$ EVERY '1h'")
    shown = str(sql("SHOW CREATE SCHEDULE s") + sql("SHOW CREATE SCHEDULE t"))
    shown += str(sql("SHOW SCHEDULES"))
    assert "t0p" not in shown
    assert "geheim" not in shown
    assert "[redacted]" in shown


# SQL of its own


def test_a_schedule_with_sql_makes_a_job_and_drops_it(driven: Driven, sql: Sql) -> None:
    sql("CREATE SCHEDULE s AS $$ SELECT 1 $$ ON store EVERY '1h'")
    job = driven.control.job("s")
    assert (job.executor, job.source, job.retry.max_attempts) == ("sql", "api", 1)
    assert job.spec == {"text": "SELECT 1", "target": "store"}
    assert sql("SHOW SCHEDULES")[0]["command"] == "SELECT 1"
    sql("ALTER SCHEDULE s SET AS $$ SELECT 2 $$, timeout = '5m', queue = reports")
    job = driven.control.job("s")
    assert (job.spec["text"], job.queue) == ("SELECT 2", "reports")
    sql("DROP SCHEDULE s REASON 'enough'")
    assert [one["name"] for one in sql("SHOW JOBS")] == ["work"]
    assert [one for one in audit(driven) if one[0].endswith("_job")] == [
        ("put_job", "analyst", "s"), ("put_job", "analyst", "s"), ("drop_job", "analyst", "s"),
    ]  # fmt: skip


def test_sql_of_its_own_never_takes_the_name_of_another_job(driven: Driven, sql: Sql) -> None:
    with pytest.raises(Conflict, match="job 'work' exists already"):
        sql("CREATE SCHEDULE work AS $$ SELECT 1 $$ EVERY '1h'")
    assert sql("SHOW SCHEDULES") == []
    sql("CREATE SCHEDULE s AS $$ SELECT 1 $$ EVERY '1h'")
    sql("CREATE SCHEDULE t FOR JOB s EVERY '1h'")
    sql("DROP SCHEDULE s")
    assert driven.control.job("s").spec["text"] == "SELECT 1", "t still makes runs of it"
    with pytest.raises(Conflict, match="used by schedule 't'"):
        sql("CREATE SCHEDULE s AS $$ SELECT 2 $$ EVERY '1h'")


def test_sql_of_its_own_is_checked(driven: Driven, sql: Sql) -> None:
    known = statements(driven.app, targets=["store", "warehouse"])
    with pytest.raises(Unknown, match="target 'wharehouse' is unknown; known are store, warehouse"):
        list(known.run("CREATE SCHEDULE s AS $$ SELECT 1 $$ ON wharehouse EVERY '1h'"))
    for text, error in {
        "CREATE SCHEDULE s AS $$  $$ EVERY '1h'": "no SQL between",
        "CREATE SCHEDULE s AS $$ SELECT 1 $$ EVERY '1h' WITH SCHEDULE OPTIONS (timeout = soon)":
        "timeout 'soon'",
        "CREATE SCHEDULE s AS $$ SELECT 1 $$ EVERY '1h' WITH SCHEDULE OPTIONS (step_timeout = x)":
        "step_timeout 'x'",
        "CREATE SCHEDULE s AS $$ SELECT 1 $$ EVERY '1h' WITH SCHEDULE OPTIONS (restart = 1)":
        "restart 1",
        "CREATE SCHEDULE s AS $$ SELECT 1 $$ EVERY '1h' WITH SCHEDULE OPTIONS (queue = 'a b')":
        "queue 'a b'",
    }.items():  # fmt: skip
        with pytest.raises(Invalid, match=error):
            sql(text)
    assert sql("SHOW SCHEDULES") == []
    assert [one["name"] for one in sql("SHOW JOBS")] == ["work"]


def test_a_dropped_job_stays_until_its_last_run_has_ended(driven: Driven, sql: Sql) -> None:
    sql("CREATE SCHEDULE s AS $$ SELECT 1 $$ EVERY '1h'")
    (run,) = sql("EXECUTE SCHEDULE s")
    sql("DROP SCHEDULE s")
    assert driven.control.job("s").retired
    assert [one["name"] for one in sql("SHOW JOBS")] == ["work"], "as every other list"
    assert [one["name"] for one in sql("SELECT name FROM jobs ORDER BY name")] == ["s", "work"]
    assert driven.store.write(operations.prune_shared_jobs, limit=10) == 0
    assert [one.name for one in driven.store.read(operations.shared_jobs, None)[1]] == ["s"]
    driven.control.cancel(run["run_id"])
    assert driven.store.write(operations.prune_shared_jobs, limit=10) == 1
    assert [one["name"] for one in sql("SHOW JOBS")] == ["work"]
    sql("CREATE SCHEDULE s AS $$ SELECT 2 $$ EVERY '1h'")
    assert not driven.control.job("s").retired


def test_news_of_shared_jobs_are_told_once(driven: Driven, sql: Sql) -> None:
    mark, jobs = driven.store.read(operations.shared_jobs, None)
    assert jobs == []
    assert driven.store.read(operations.shared_jobs, mark) is None
    sql("CREATE SCHEDULE s FOR JOB work EVERY '1h'")
    assert driven.store.read(operations.shared_jobs, mark) is None
    sql("CREATE SCHEDULE t AS $$ SELECT 1 $$ EVERY '1h'")
    after, (job,) = driven.store.read(operations.shared_jobs, mark)
    assert (after != mark, job.name) == (True, "t")


# Anything at all


def has_own_sql(driven: Driven, name: str) -> bool:
    schedules = {one.name: one for one in driven.control.schedules()}
    return name in schedules and schedules[name].job != "work"


def fuzz(driven: Driven, count: int, seed: int) -> None:
    luck, texts = random.Random(seed), [*GOOD, "SELECT * FROM runs WHERE job_name = 'work'"]
    known, done = statements(driven.app), 0
    for number in range(count):
        if number % 10 == 0:  # some are dropped on the way
            for name in ("s", "j", "x"):
                one = Schedule(name=name, job="work", kind="every", expr="1h")
                if has_own_sql(driven, name):  # it may not leave its own job behind
                    driven.control.drop(name)
                driven.control.put_schedule(one)
        text = mutated(luck, luck.choice(texts), texts, most=1)
        try:
            for result in known.run(text):
                assert isinstance(result, Result)
                done += 1
        except RotaError:
            pass
    assert done > count / 20, done


def test_mutated_statements_do_what_they_say_or_are_refused(driven: Driven, sql: Sql) -> None:
    fuzz(driven, 300, seed=3)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_many_mutated_statements_do_what_they_say_or_are_refused(driven: Driven, sql: Sql) -> None:
    fuzz(driven, 10_000, seed=4)
