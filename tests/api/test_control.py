"""Control: the effect of every call an operator can make, and the trace each write leaves."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

import rota
from rota.flow import look
from rota.flow.control import Control
from rota.flow.enqueue import Options
from rota.flow.follow import Follow
from rota.model import secrets
from rota.model.job import Job
from rota.model.schedule import Schedule
from rota.model.secrets import NO_SECRETS, know
from rota.storage import operations
from rota.storage.operations.audit import Actor
from tests.api.support import Driven, Gate, Watch, wait_until
from tests.conformance.support import claim, settle

NOWHERE = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
def note(driven: Driven) -> Any:
    @driven.app.job()
    def note(ctx: rota.Context, n: int = 0) -> int:
        ctx.logger.info("n is %d", n)
        return n

    driven.app.load()
    return note


# Reading


@pytest.mark.each_engine
def test_overview_counts_and_tells_the_switches(driven: Driven, note: Any) -> None:
    driven.app.schedule("hourly", job="note", every="1h")
    driven.app.schedule("daily", job="note", every="1d")
    note.enqueue_many([{"n": n} for n in range(3)])
    driven.drain()
    note.enqueue(delay="1h")
    driven.control.pause("daily")
    told = driven.control.overview()
    assert told["runs"] == {"succeeded": 3, "waiting": 1}
    assert told["schedules"]["schedules"] == 2
    assert told["schedules"]["paused"] == 1
    assert (told["dispatch"], told["now_at"]) == ("on", driven.clock.now)
    driven.control.pause_dispatch("deploy")
    assert driven.control.overview()["dispatch"].endswith(": deploy")


def test_jobs_are_listed_with_their_policies(driven: Driven) -> None:
    @driven.app.job(queue="mail", timeout="10m", max_attempts=5, isolation="thread")
    async def send(to: str) -> None:
        """Send a letter."""

    (job,) = driven.control.jobs()
    assert (job["name"], job["queue"], job["executor"]) == ("send", "mail", "python")
    assert (job["timeout"], job["max_attempts"]) == (timedelta(minutes=10), 5)
    assert job["description"] == "Send a letter."
    assert [parameter["name"] for parameter in job["args"]["parameters"]] == ["to"]
    assert (job["enabled"], job["error"], job["source"]) == (True, None, "code")


def test_runs_are_found_by_job_schedule_state_and_queue(driven: Driven, note: Any) -> None:
    @driven.app.job(queue="mail")
    def send() -> None: ...

    driven.app.schedule("hourly", job="note", every="1h")
    driven.app.load()
    first, second = note.enqueue(n=1), note.enqueue(n=2)
    driven.drain()
    third = send.enqueue()
    driven.clock.advance("1h")
    driven.driver._fire.step()
    control = driven.control

    def ids(**which: Any) -> list[str]:
        return [run.id for run in control.runs(**which)]

    (scheduled,) = ids(schedule="hourly")
    assert ids() == [scheduled, third.id, second.id, first.id]
    assert ids(job="note") == [scheduled, second.id, first.id]
    assert ids(job="send") == [third.id]
    assert ids(state="succeeded") == [second.id, first.id]
    assert ids(queue="mail") == [third.id]
    assert ids(job="note", state="queued") == [scheduled]
    page = control.runs(limit=2)
    assert [run.id for run in control.runs(before=page[-1].seq, limit=2)] == [second.id, first.id]


def test_what_is_shown_of_a_run_holds_no_secret(driven: Driven) -> None:
    @driven.app.job(max_attempts=1)
    def connect(ctx: rota.Context, url: str, password: str) -> None:
        ctx.logger.info("connecting to %s", url)
        raise ValueError(f"cannot connect to {url}")

    secret = "hunter2"
    made = connect.enqueue(url=f"postgresql://me:{secret}@db/x", password=secret)
    driven.app.schedule("nightly", job="connect", every="1d", args={"url": "x", "password": secret})
    driven.drain()
    driven.control.pause("nightly")
    control = driven.control
    shown = [
        control.run(made.id),
        control.runs(),
        control.attempts(made.id),
        control.logs(made.id),
        control.events(made.id),
        control.audit(),
        control.changes("nightly"),
        control.cancel(connect.enqueue(url="y", password=secret).id),
    ]
    assert secret not in repr(shown)
    assert "[redacted]" in repr(shown)
    assert secret in driven.store.read(operations.get_run, made.id).args


def test_no_schedule_leaves_with_its_secrets(driven: Driven) -> None:
    @driven.app.job()
    def send(to: str, password: str = "", tries: int = 1) -> None: ...

    control, secret = driven.control, "hunter2222"
    told = {"to": f"smtp://me:{secret}@mail", "password": secret}
    driven.app.schedule("nightly", job="send", every="1h", args=told)
    driven.app.load()
    shown: dict[str, Callable[[], Any]] = {
        "schedule": lambda: control.schedule("nightly"),
        "schedules": lambda: control.schedules(),
        "find_schedules": lambda: control.find_schedules(),
        "schedules_of": lambda: control.schedules_of(control.find_jobs()),
        "explain": lambda: control.explain("nightly"),
        "put_schedule": lambda: control.put_schedule(
            driven.store.read(operations.schedule_named, "nightly")
        ),
        "pause": lambda: control.pause("nightly"),
        "resume": lambda: control.resume("nightly"),
    }
    giving = {
        name
        for name, method in inspect.getmembers(Control, inspect.isfunction)
        if {"Schedule", "Explanation"} & set(re.findall(r"\w+", method.__annotations__["return"]))
        and not name.startswith("_")
    }
    assert giving == set(shown)
    for name, ask in shown.items():
        told_of = repr(ask())
        assert "[redacted]" in told_of, name
        assert secret not in told_of, name
    assert control.schedule("nightly").operator_changes() == {}, "what is hidden is no edit"
    assert driven.store.read(operations.schedule_named, "nightly").args == told


def test_who_edits_what_was_shown_keeps_the_secrets(driven: Driven) -> None:
    @driven.app.job()
    def send(to: str, password: str = "") -> None: ...

    control, store = driven.control, driven.store
    driven.app.schedule("nightly", job="send", every="1h", args={"to": "a", "password": "old"})
    driven.app.load()
    seen = control.schedule("nightly")
    control.put_schedule(replace(seen, expr="2h"), version=seen.version)
    assert store.read(operations.schedule_named, "nightly").args == {"to": "a", "password": "old"}
    with pytest.raises(rota.Conflict, match="was changed since you read it"):
        control.put_schedule(replace(seen, expr="3h"), version=seen.version)
    # Whoever changes a secret meanwhile changes nothing that the other one saw or sends.
    seen = control.schedule("nightly")
    control.put_schedule(replace(seen, args={"to": "a", "password": "new"}), version=seen.version)
    saved = control.put_schedule(replace(seen, expr="3h"), version=seen.version)
    assert (saved.expr, saved.args) == ("3h", {"to": "a", "password": "[redacted]"})
    assert store.read(operations.schedule_named, "nightly").args == {"to": "a", "password": "new"}
    with pytest.raises(rota.Invalid, match=r"'copy': argument password is \[redacted\]"):
        control.put_schedule(replace(seen, name="copy"))


def test_of_a_secret_that_stands_where_an_error_is_cut_nothing_is_shown(
    driven: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was nobody's secret when the error was stored, so that only who shows it can hide it."""
    monkeypatch.setattr(secrets, "_known", secrets._Known({}, NO_SECRETS))
    error = "".join("x" * (length - 6) + "geheim-geheim" for length in (280, 200))
    told: list[dict[str, Any]] = []
    follow = Follow(lambda: driven.store, lambda name, event: told.append(dict(event)))
    follow.step()

    @driven.app.job(max_attempts=1)
    def fail() -> None:
        raise RuntimeError(error)

    driven.app.load()
    driven.store.write(operations.put_jobs, [Job(name="broken", error=f"RuntimeError: {error}")])
    driven.app.enqueue("fail")
    driven.drain()
    driven.control.enqueue("broken", {}, Options())
    know(["geheim-geheim"])
    follow.step()
    shown = {
        "problems": driven.control.problems(),
        "groups": driven.control.dead_groups(),
        "doctor": driven.control.doctor(),
        "runs": driven.control.runs(),
        "events": told,
    }
    for what, text in shown.items():
        assert "xxx" in str(text), what
        assert "geh" not in str(text), what


def test_attempts_are_told_also_when_there_was_only_one(driven: Driven, note: Any) -> None:
    made = note.enqueue()
    assert driven.control.attempts(made.id) == []
    driven.drain()
    (one,) = driven.control.attempts(made.id)
    assert (one["number"], one["outcome"], one["error"]) == (1, "succeeded", None)
    assert one["worker_id"] == "test"


def test_the_events_of_a_run_are_those_of_the_view(driven: Driven) -> None:
    @driven.app.job(max_attempts=3, delay="1m")
    def shaky(ctx: rota.Context) -> None:
        if ctx.attempt < 3:
            raise RuntimeError(f"try {ctx.attempt}, password=hunter2222")

    driven.app.job("plain")(lambda: None)
    ids = [shaky.enqueue().id, driven.app.enqueue("plain").id]
    ids.append(driven.app.enqueue("plain", delay="1h").id)
    driven.control.cancel(ids[2], "not now")
    driven.advance("5 minutes")
    for run_id in ids:
        found = driven.control.events(run_id)
        assert [one["id"] for one in found] == list(range(len(found), 0, -1))
        view = driven.control.select(
            f"SELECT kind, name, attempt, detail FROM events WHERE run_id = '{run_id}'"
        ).rows
        told = [(one["kind"], one["name"], one["attempt"], one["detail"]) for one in found]
        # The view does not know which attempt was the first that began.
        assert sorted(map(str, told)) == sorted(
            map(str, [*view, *(one for one in told if one[0] == "job.started")])
        )
    found = driven.control.events(ids[0])
    assert [one["kind"] for one in reversed(found)] == [
        "run.created", "job.started",
        "attempt.started", "attempt.failed", "attempt.started", "attempt.failed",
        "attempt.started", "attempt.succeeded", "job.completed",
    ]  # fmt: skip
    assert "hunter2222" not in str(found)
    page = driven.control.events(ids[0], limit=4)
    rest = driven.control.events(ids[0], before=page[-1]["id"])
    assert page + rest == found
    cancelled, _ = driven.control.events(ids[2])
    assert (cancelled["kind"], cancelled["detail"]) == ("job.cancelled", "not now")
    assert driven.control.events() == []
    with pytest.raises(rota.Unknown):
        driven.control.events(NOWHERE)


def test_logs_belong_to_their_run(driven: Driven, note: Any) -> None:
    one, other = note.enqueue(n=1), note.enqueue(n=2)
    driven.drain()
    assert [line["text"] for line in driven.control.logs(one.id)] == ["n is 1"]
    assert [line["text"] for line in driven.control.logs(other.id)] == ["n is 2"]


def test_workers_are_those_that_are_alive(app: rota.Rota, watch: Watch) -> None:
    @app.job(queue="mail")
    def send() -> None: ...

    assert app.control.workers() == []
    app.start()
    wait_until(app.control.workers, "a worker")
    (worker,) = app.control.workers()
    assert (worker["jobs"], worker["queues"], worker["slots"]) == (["send"], [], 10)
    assert (worker["stuck"], worker["running"]) == (0, 0)
    app.stop()
    assert app.control.workers() == []


def test_queues_tell_how_much_waits(driven: Driven, note: Any) -> None:
    note.enqueue_many([{}, {}])
    driven.clock.advance("5m")
    (queue,) = driven.control.queues()
    assert (queue["name"], queue["paused"], queue["queued"]) == ("default", False, 2)
    assert queue["oldest_at"] == driven.ago(timedelta(minutes=5))


def test_the_timeline_has_what_ran_in_it_whenever_that_ended(driven: Driven, note: Any) -> None:
    begin = driven.clock.now
    never = note.enqueue(delay="1h").id
    driven.control.cancel(never)
    told = driven.control.timeline(begin - timedelta(hours=1), begin + timedelta(hours=1))
    assert [(one["id"], one["started_at"]) for one in told["runs"]] == [(never, None)]
    assert told["more_runs"] is False
    long = note.enqueue().id
    (claimed,) = claim(driven.store, 1, jobs=["note"])
    driven.clock.advance("3h")
    settle(driven.store, claimed, ran_seconds=3 * 3600)
    window = begin + timedelta(hours=1), begin + timedelta(hours=2)
    assert [one["id"] for one in driven.control.timeline(*window)["runs"]] == [long]


def test_what_ended_after_a_stretch_does_not_make_it_full(
    driven: Driven, note: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, "TIMELINE_LOOKED", 2)
    monkeypatch.setattr(look, "TIMELINE_RUNS", 2)
    begin = driven.clock.now
    hours: list[list[str]] = []
    for many in (2, 3):
        hours.append([made.id for made in note.enqueue_many([{}] * many)])
        driven.drain()
        driven.clock.advance("1h")

    def told(hour: int) -> tuple[set[str], bool, bool]:
        found = driven.control.timeline(
            begin + timedelta(hours=hour), begin + timedelta(hours=hour + 1)
        )
        return {one["id"] for one in found["runs"]}, found["more_runs"], found["more_across"]

    assert told(0) == (set(hours[0]), False, True)
    runs, more_runs, more_across = told(1)
    assert runs < set(hours[1])
    assert (more_runs, more_across) == (True, False)


@pytest.mark.each_engine
def test_every_list_is_paged(driven: Driven, note: Any) -> None:
    made = note.enqueue()
    driven.app.schedule("hourly", job="note", every="1h")
    control = driven.control
    lists: list[Callable[..., Any]] = [
        control.jobs, control.runs, control.events, control.audit, control.schedules,
        partial(control.logs, made.id), partial(control.occurrences, "hourly"),
        partial(control.changes, "hourly"),
    ]  # fmt: skip
    for found in lists:
        found(limit=1)
        found(limit=500)
        for limit in (0, 501, "5", None, True):
            with pytest.raises(rota.Invalid, match=r"^limit .* a whole number from 1 to 500$"):
                found(limit=limit)


def test_a_state_that_is_none_is_refused(driven: Driven) -> None:
    with pytest.raises(rota.Invalid, match="state 'done' is unknown; use waiting, held, queued"):
        driven.control.runs(state="done")


# Runs


def test_enqueue_by_control(driven: Driven, note: Any) -> None:
    made = driven.control.enqueue("note", {"n": 5}, Options(priority=3))
    driven.drain()
    run = driven.control.run(made.id)
    assert (run.result, run.priority) == ("5", 3)


def test_pause_run_holds_it_back_until_it_is_resumed(driven: Driven, note: Any) -> None:
    made = note.enqueue()
    told = driven.control.pause_run(made.id, "wait for the data")
    assert (told.state, told.reason) == ("paused", "wait for the data")
    driven.advance("1 day")
    assert driven.states(made.id) == ["paused"]
    assert driven.control.resume_run(made.id).state == "waiting"
    driven.drain()
    assert driven.states(made.id) == ["succeeded"]
    assert driven.audit() == [("pause_run", made.id), ("resume_run", made.id)]


def test_a_running_python_run_ends_although_it_was_paused(app: rota.Rota, watch: Watch) -> None:
    gate = Gate()

    @app.job(max_attempts=3, backoff="none")
    def work(ctx: rota.Context, fails: bool) -> str:
        if ctx.attempt == 1:
            gate()
            if fails:
                raise ValueError("no")
        return "done"

    app.start()
    works, fails = work.enqueue(fails=False), work.enqueue(fails=True)
    wait_until(lambda: len(app.control.runs(state="running")) == 2)
    for made in (works, fails):
        assert app.control.pause_run(made.id).state == "running"
    gate.open()
    assert watch.end(works.id).state == "succeeded"
    # What would be tried again is paused instead.
    watch.wait("attempt.failed", fails.id)
    assert app.storage.read(operations.get_run, fails.id).state == "paused"
    app.control.resume_run(fails.id)
    assert watch.end(fails.id).state == "succeeded"


def test_delete_removes_a_run_with_all_that_is_its_own(driven: Driven, note: Any) -> None:
    made = note.enqueue(n=1, key="k")
    driven.drain()
    driven.control.delete(made.id, "test data")
    for call in (driven.control.run, driven.control.logs, driven.control.attempts):
        with pytest.raises(rota.Unknown, match=f"run '{made.id}' does not exist"):
            call(made.id)
    assert driven.audit() == [("delete_run", made.id)]


def test_a_running_run_cannot_be_deleted(app: rota.Rota, watch: Watch) -> None:
    gate = Gate()

    @app.job()
    def work() -> None:
        gate()

    app.start()
    made = work.enqueue()
    gate.wait()
    with pytest.raises(rota.Conflict, match="is running; cancel it first, then delete it"):
        app.control.delete(made.id)
    gate.open()
    watch.end(made.id)
    app.control.delete(made.id)


@pytest.mark.each_engine
def test_each_write_to_a_run_is_audited(driven: Driven, note: Any) -> None:
    made = note.enqueue(delay="1h")
    operator = driven.app.control_as(Actor(by="ada", via="test"))
    operator.pause_run(made.id, "one")
    operator.resume_run(made.id, "two")
    operator.cancel(made.id, "three")
    operator.redo(made.id, "four")
    operator.delete(made.id, "five")
    rows = [row for row in reversed(driven.control.audit()) if row["via"] == "test"]
    assert [(row["by"], row["action"], row["thing"], row["reason"]) for row in rows] == [
        ("ada", "pause_run", made.id, "one"),
        ("ada", "resume_run", made.id, "two"),
        ("ada", "cancel_run", made.id, "three"),
        ("ada", "redo_run", made.id, "four"),
        ("ada", "delete_run", made.id, "five"),
    ]
    assert [row["before"] for row in rows] == [
        "waiting", "paused", "waiting", "cancelled", "waiting",
    ]  # fmt: skip
    assert all(row["at"] == driven.clock.now for row in rows)


def test_audit_is_read_in_pages(driven: Driven, note: Any) -> None:
    for _ in range(3):
        driven.control.pause_queue("default")
    newest = driven.control.audit(limit=2)
    (oldest,) = driven.control.audit(before=newest[-1]["id"], limit=2)
    assert oldest["id"] < newest[-1]["id"] < newest[0]["id"]


# Trigger


def test_a_triggered_job_runs_now_in_its_overlap_line(driven: Driven, note: Any) -> None:
    first, second = driven.control.trigger("note"), driven.control.trigger("note")
    forced = driven.control.trigger("note", force=True)
    assert driven.states(first.id, second.id, forced.id) == ["queued", "held", "queued"]
    assert driven.store.read(operations.get_run, first.id).overlap_key == "job note"
    assert driven.store.read(operations.get_run, forced.id).overlap_key is None
    driven.drain()
    assert driven.states(first.id, second.id, forced.id) == ["succeeded"] * 3


def test_a_triggered_schedule_uses_its_arguments_and_leaves_its_cursor(
    driven: Driven, note: Any
) -> None:
    driven.app.schedule("hourly", job="note", every="1h", args={"n": 7})
    before = driven.control.schedule("hourly")
    made = driven.control.trigger("hourly")
    driven.drain()
    run = driven.control.run(made.id)
    assert (run.result, run.schedule_id, run.occurrence) == ("7", before.id, None)
    assert run.overlap_key == f"schedule {before.id}"
    assert driven.control.schedule("hourly") == before
    assert driven.control.occurrences("hourly") == []
    assert [found.id for found in driven.control.runs(schedule="hourly")] == [made.id]


def test_a_triggered_schedule_waits_for_the_run_before_it_unless_forced(
    driven: Driven, note: Any
) -> None:
    driven.app.schedule("hourly", job="note", every="1h")
    first = driven.control.trigger("hourly")
    second = driven.control.trigger("hourly")
    forced = driven.control.trigger("hourly", force=True)
    assert driven.states(first.id, second.id, forced.id) == ["queued", "held", "queued"]


def test_a_paused_schedule_can_be_triggered(driven: Driven, note: Any) -> None:
    driven.app.schedule("hourly", job="note", every="1h")
    driven.control.pause("hourly")
    made = driven.control.trigger("hourly")
    driven.drain()
    assert driven.states(made.id) == ["succeeded"]


# Schedules


def test_pause_stops_fires_and_resume_records_what_was_missed(driven: Driven, note: Any) -> None:
    driven.app.schedule("hourly", job="note", every="1h")
    paused = driven.control.pause("hourly", "incident")
    assert (paused.paused, paused.paused_reason) == (True, "incident")
    assert paused.paused_by
    driven.advance("3 hours")
    assert driven.app.runs("note") == []
    resumed = driven.control.resume("hourly", "over")
    assert (resumed.paused, resumed.paused_reason) == (False, None)
    assert resumed.next_fire_at == driven.clock.now + timedelta(hours=1)
    driven.drain()
    assert driven.app.runs("note") == []
    (missed,) = driven.control.occurrences("hourly")
    assert (missed["outcome"], missed["count"]) == ("missed", 3)
    driven.advance("1 hour")
    assert len(driven.app.runs("note")) == 1
    changes = driven.control.changes("hourly")
    assert [(row["action"], row["reason"]) for row in reversed(changes)] == [
        ("create", None), ("pause", "incident"), ("resume", "over"),
    ]  # fmt: skip
    assert driven.audit() == [("pause_schedule", "hourly"), ("resume_schedule", "hourly")]


@pytest.mark.parametrize(("catch_up", "runs"), [("one", 1), ("all", 3), ("none", 0), (None, 0)])
def test_resume_makes_up_for_what_was_missed_only_if_asked(
    driven: Driven, note: Any, catch_up: str | None, runs: int
) -> None:
    driven.app.schedule("hourly", job="note", every="1h", overlap="allow")
    driven.control.pause("hourly")
    driven.clock.advance("3h")
    driven.control.resume("hourly", catch_up=catch_up)
    driven.drain()
    assert len(driven.app.runs("note")) == runs
    driven.advance("1 hour")
    assert len(driven.app.runs("note")) == runs + 1


def test_pause_never_touches_runs_already_made(driven: Driven, note: Any) -> None:
    driven.app.schedule("hourly", job="note", every="1h")
    driven.app.load()
    driven.clock.advance("1h")
    driven.driver._fire.step()
    driven.control.pause("hourly")
    driven.drain()
    assert [run.state for run in driven.app.runs("note")] == ["succeeded"]


def test_to_pause_twice_or_resume_what_runs_changes_nothing(driven: Driven, note: Any) -> None:
    driven.app.schedule("hourly", job="note", every="1h")
    before = driven.control.schedule("hourly")
    assert driven.control.resume("hourly") == before
    paused = driven.control.pause("hourly", "first")
    assert driven.control.pause("hourly", "second") == paused
    assert len(driven.control.changes("hourly")) == 2


def test_drop_removes_a_schedule_and_keeps_its_runs(driven: Driven, note: Any) -> None:
    driven.app.schedule("hourly", job="note", every="1h")
    driven.app.load()
    driven.advance("1 hour")
    driven.control.drop("hourly", "not needed")
    assert driven.control.schedules() == []
    with pytest.raises(rota.Unknown, match=r"'hourly' was dropped by .* at 20.*: not needed; `ro"):
        driven.control.schedule("hourly")
    with pytest.raises(rota.Unknown, match="schedule 'never' does not exist; `rota schedules`"):
        driven.control.schedule("never")
    driven.advance("1 day")
    assert len(driven.app.runs("note")) == 1
    assert ("drop_schedule", "hourly") in driven.audit()


def test_the_history_of_a_dropped_schedule_is_found_by_its_name(driven: Driven, note: Any) -> None:
    control = driven.control
    driven.app.schedule("hourly", job="note", every="1h")
    driven.app.schedule("hourly2", job="note", every="1d")
    driven.app.load()
    driven.advance("2 hours")
    at = control.occurrences("hourly")[0]["occurrence"]
    assert control.dropped("hourly") is None
    control.drop("hourly", "not needed")
    dropped = control.dropped("hourly")
    assert (dropped["action"], dropped["reason"], dropped["at"]) == (
        "drop", "not needed", driven.clock.now,
    )  # fmt: skip
    assert len(control.runs(schedule="hourly")) == len(control.occurrences("hourly")) == 2
    assert control.count_runs("succeeded", schedule="hourly") == 2
    assert len(control.durations("hourly")["runs"]) == 2
    assert [row["action"] for row in control.changes("hourly")] == ["drop", "create"]
    assert "fired, run " in control.why("hourly", at)
    assert "was dropped by" in control.why("hourly", driven.clock.now)
    assert control.bulk("delete", "succeeded", schedule="hourly").done == 2
    # One that has its name now is another one.
    control.put_schedule(Schedule(name="hourly", job="note", kind="every", expr="1h"))
    assert control.dropped("hourly") is None
    assert control.occurrences("hourly") == []
    assert [row["action"] for row in control.changes("hourly")] == ["create"]
    with pytest.raises(rota.Unknown, match="schedule 'never' does not exist"):
        control.runs(schedule="never")


def test_put_schedule_creates_and_edits(driven: Driven, note: Any) -> None:
    made = driven.control.put_schedule(
        Schedule(name="mine", job="note", kind="every", expr="1h", args={"n": 1})
    )
    assert made.next_fire_at == driven.clock.now + timedelta(hours=1)
    edited = driven.control.put_schedule(
        Schedule(name="mine", job="note", kind="every", expr="2h", args={"n": 1})
    )
    assert (edited.id, edited.expr) == (made.id, "2h")
    (alter, create) = driven.control.changes("mine")
    assert (create["action"], alter["action"]) == ("create", "alter")
    assert json.loads(alter["before"])["expr"] == "1h"
    assert json.loads(alter["after"])["expr"] == "2h"
    assert driven.audit() == [("create_schedule", "mine"), ("alter_schedule", "mine")]


def test_put_schedule_refuses_what_could_not_run(driven: Driven, note: Any) -> None:
    @driven.app.job()
    def anything(**more: Any) -> None: ...

    bad: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"job": "nope"}, rota.Unknown, "job 'nope' does not exist"),
        ({"args": {"m": 1}}, rota.BadArguments, "job 'note': 'm' is unknown"),
        (
            {"job": "anything", "args": {"m": "x" * 300_000}}, rota.Invalid,
            "job 'anything': args takes 300,.* the limit is 262,144",
        ),
    ]  # fmt: skip
    for told, error, message in bad:
        wanted = Schedule(**{"name": "mine", "job": "note", "kind": "every", "expr": "1h", **told})
        with pytest.raises(error, match=message):
            driven.control.put_schedule(wanted)
    assert driven.control.schedules() == []


def test_schedules_are_listed_by_name_and_job(driven: Driven, note: Any) -> None:
    @driven.app.job(every="1h")
    def other() -> None: ...

    driven.app.schedule("a", job="note", every="1h")
    driven.app.schedule("b", job="note", every="1h")
    names = [schedule.name for schedule in driven.control.schedules()]
    assert names == ["a", "b", "other"]
    assert [found.name for found in driven.control.schedules(job="note")] == ["a", "b"]
    assert [found.name for found in driven.control.schedules(after="a", limit=1)] == ["b"]


def test_the_ledger_answers_why_something_did_not_run(driven: Driven, note: Any) -> None:
    driven.app.schedule("hourly", job="note", every="1h", overlap="skip")
    driven.app.load()
    held_back = driven.control.trigger("hourly")
    driven.control.pause_dispatch()
    due = driven.clock.now + timedelta(hours=1)
    driven.advance("1 hour")
    (row,) = driven.control.occurrences("hourly")
    assert (row["outcome"], row["occurrence"], row["run_id"]) == ("skipped", due, None)
    assert "had not ended" in row["reason"]
    told = driven.control.why("hourly", due)
    assert told.endswith(": skipped: the run before it had not ended (overlap = skip)")
    assert driven.states(held_back.id) == ["queued"]


def test_explain_tells_the_next_times(driven: Driven, note: Any) -> None:
    driven.app.schedule("daily", job="note", cron="0 3 * * *", timezone="Europe/Berlin")
    told = driven.control.explain("daily", count=3)
    assert len(told.coming) == 3


def test_runs_of_a_schedule_are_paused_resumed_and_cancelled_together(
    driven: Driven, note: Any
) -> None:
    driven.app.schedule("hourly", job="note", every="1h", overlap="queue")
    mine = [driven.control.trigger("hourly").id for _ in range(3)]
    other = note.enqueue(delay="1h")
    assert driven.control.pause_runs("hourly", "wait") == 3
    assert driven.states(*mine, other.id) == ["paused"] * 3 + ["waiting"]
    assert driven.control.resume_runs("hourly") == 3
    assert driven.states(*mine) == ["waiting"] * 3
    assert driven.control.cancel_runs("hourly", "enough") == 3
    assert driven.states(*mine, other.id) == ["cancelled"] * 3 + ["waiting"]
    assert driven.control.cancel_runs("hourly") == 0


# Queues and dispatch


def test_a_paused_queue_is_not_claimed_from(driven: Driven, note: Any) -> None:
    @driven.app.job(queue="mail")
    def send() -> None: ...

    driven.control.pause_queue("mail", "smtp is down")
    mail, other = send.enqueue(), note.enqueue()
    driven.drain()
    assert driven.states(mail.id, other.id) == ["queued", "succeeded"]
    paused = {queue["name"]: queue for queue in driven.control.queues()}["mail"]
    assert (paused["paused"], paused["reason"]) == (True, "smtp is down")
    assert paused["paused_at"] == driven.clock.now
    driven.control.resume_queue("mail")
    driven.drain()
    assert driven.states(mail.id) == ["succeeded"]
    assert driven.audit() == [("pause_queue", "mail"), ("resume_queue", "mail")]


def test_a_queue_is_paused_before_its_first_run(driven: Driven, note: Any) -> None:
    driven.control.pause_queue("coming")
    made = driven.app.enqueue("note", queue="coming")
    driven.drain()
    assert driven.states(made.id) == ["queued"]


def test_paused_dispatch_stops_claims_and_not_fires(driven: Driven, note: Any) -> None:
    driven.app.schedule("hourly", job="note", every="1h", overlap="allow")
    driven.control.pause_dispatch("deploy")
    made = note.enqueue()
    driven.advance("2 hours")
    assert len(driven.app.runs("note")) == 3
    assert set(driven.states(*(run.id for run in driven.app.runs("note")))) == {"queued"}
    driven.control.resume_dispatch()
    driven.drain()
    assert driven.states(made.id) == ["succeeded"]
    assert driven.audit() == [("pause_dispatch", "dispatch"), ("resume_dispatch", "dispatch")]


def test_resumed_dispatch_wakes_a_running_app(app: rota.Rota, watch: Watch) -> None:
    @app.job()
    def note() -> None: ...

    app.control.pause_dispatch()
    app.start()
    made = note.enqueue()
    app.control.resume_dispatch()
    assert watch.end(made.id).state == "succeeded"


# Prune


def test_prune_deletes_what_is_old_and_not_among_the_last(
    database: str, driven: Driven, note: Any
) -> None:
    app = rota.Rota(database, storage=driven.store, keep_last=2, retention={"succeeded": "1d"})
    old = [note.enqueue(n=n).id for n in range(5)]
    driven.drain()
    driven.advance("2 days")
    young = note.enqueue(n=9).id
    driven.drain()
    app.control.prune()
    left = [run.id for run in driven.app.runs("note")]
    assert left == [young, old[4]]
    with pytest.raises(rota.Unknown):
        app.control.logs(old[0])
    app.control.prune()
    assert [run.id for run in driven.app.runs("note")] == left


# Who asks


def test_control_acts_in_the_name_of_who_asks(driven: Driven, note: Any) -> None:
    driven.app.schedule("hourly", job="note", every="1h")
    by_code = driven.control
    by_ada = by_code.as_actor(Actor(by="ada", via="http"))
    assert isinstance(by_ada, Control)
    assert by_ada.pause("hourly").paused_by == "ada"
    made = by_ada.trigger("hourly", force=True)
    assert driven.store.read(operations.get_run, made.id).created_by == "ada"
    told = [row for row in driven.control.audit() if row["via"] == "http"]
    assert [(row["by"], row["action"]) for row in told] == [
        ("ada", "trigger"),
        ("ada", "pause_schedule"),
    ]


# What is not there


OF_RUNS = ("run", "attempts", "logs", "cancel", "redo", "pause_run", "resume_run", "delete")
OF_SCHEDULES = (
    "schedule", "pause", "resume", "drop", "occurrences", "changes", "explain", "pause_runs",
    "resume_runs", "cancel_runs", "trigger",
)  # fmt: skip


def test_a_run_that_is_not_there_is_named(driven: Driven) -> None:
    for call in OF_RUNS:
        for run_id in (NOWHERE, "nonsense", ""):
            with pytest.raises(rota.Unknown) as caught:
                getattr(driven.control, call)(run_id)
            assert str(caught.value) == f"run {run_id!r} does not exist; `rota runs` lists them"
    assert driven.audit() == []


def test_a_schedule_that_is_not_there_is_named(driven: Driven) -> None:
    for call in OF_SCHEDULES:
        with pytest.raises(rota.Unknown, match=r"'nope' does not exist; `rota \w+` lists them"):
            getattr(driven.control, call)("nope")
    assert driven.audit() == []


def test_other_things_that_are_not_there_are_named(driven: Driven) -> None:
    with pytest.raises(rota.Unknown, match="queue 'nope' does not exist; `rota queues` lists"):
        driven.control.resume_queue("nope")
    with pytest.raises(rota.Unknown, match="schedule 'nope' does not exist"):
        driven.control.runs(schedule="nope")
    assert driven.audit() == []


def test_what_a_state_forbids_changes_nothing_and_says_what_is_possible(
    driven: Driven, note: Any
) -> None:
    done = note.enqueue()
    driven.drain()
    queued = note.enqueue()
    for call, made in (
        ("redo", queued), ("resume_run", queued), ("pause_run", done), ("cancel", done),
    ):  # fmt: skip
        before = driven.store.read(operations.get_run, made.id)
        with pytest.raises(rota.Conflict, match=r"is .*; .* is not possible then \(possible: "):
            getattr(driven.control, call)(made.id)
        assert driven.store.read(operations.get_run, made.id) == before
    assert driven.audit() == []


def test_a_trigger_is_audited_like_every_write(driven: Driven, note: Any) -> None:
    driven.control.trigger("note")
    assert [action for action, _ in driven.audit()] == ["trigger"]
