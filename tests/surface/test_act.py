"""Commands that change something: each leaves the effect, the answer and the name of who asked."""

from __future__ import annotations

import getpass
import io
import sys
import threading
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import rota
from rota.cli import enqueue as enqueue_command
from rota.flow.control import Control
from rota.life import open_local_socket
from rota.model.job import Job
from rota.model.outcome import Outcome
from rota.storage import operations
from tests.surface.conftest import Cli, Ends, shop


@pytest.mark.each_engine
def test_enqueue_reads_arguments(cli: Cli, store: Control) -> None:
    first = cli("enqueue", "greet", "--arg", "name=007", "--arg", "copies=2", "--json").json
    assert first["created"] is True
    assert store.run(first["id"]).args == '{"name": "007", "copies": 2}'
    both = cli("enqueue", "greet", "--args", '{"name": "A", "copies": 3}', "--arg", "name=B=C")
    assert both.code == 0
    assert store.runs()[0].args == '{"name": "B=C", "copies": 3}'
    assert store.runs()[0].created_by == getpass.getuser()


def test_enqueue_options(cli: Cli, store: Control) -> None:
    made = cli(
        "enqueue", "broken", "--delay", "1h", "--key", "k", "--key-ttl", "1d", "--priority", "-5",
        "--queue", "other", "--concurrency-key", "till", "--concurrency-limit", "2",
        "--max-attempts", "4", "--timeout", "90s", "--json",
    ).json  # fmt: skip
    run = store.run(made["id"])
    assert (run.state, run.priority, run.queue, run.max_attempts) == ("waiting", -5, "other", 4)
    assert (run.concurrency_key, run.concurrency_limit) == ("till", 2)
    assert run.timeout == timedelta(seconds=90)
    again = cli("enqueue", "broken", "--key", "k")
    assert again.out == f"run {run.id} has this key already; nothing was enqueued\n"
    at = cli("enqueue", "broken", "--at", "2030-01-01T00:00:00+01:00", "--json").json
    assert store.run(at["id"]).due_at == datetime.fromisoformat("2029-12-31T23:00:00Z")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nope"], "job 'nope' does not exist; `rota jobs` lists them"),
        (["greet"], "job 'greet': 'name' is missing"),
        (["greet", "--arg", "nam=A"], "'nam' is unknown, did you mean 'name'?"),
        (["greet", "--arg", "name"], "--arg 'name' has no value; use --arg name=value"),
        (["greet", "--args", "{"], "--args is not JSON"),
        (["greet", "--args", "[]"], "--args must be a JSON object"),
        (["broken", "--delay", "soon"], "delay 'soon' is not a duration"),
        (["broken", "--at", "2030-01-01"], "has no offset"),
        (["broken", "--delay", "1h", "--at", "2030-01-01T00:00Z"], "give delay or at, not both"),
        (["broken", "--priority", "9999999"], "priority 9999999 must be a whole number"),
    ],
)
def test_what_cannot_be_enqueued_exits_2(
    cli: Cli, store: Control, args: list[str], message: str
) -> None:
    answer = cli("enqueue", *args)
    assert answer.code == 2
    assert message in answer.error
    assert store.runs() == []


@pytest.mark.each_engine
def test_run_takes_its_turn_unless_forced(cli: Cli, store: Control) -> None:
    states = [
        store.run(cli("run", "nightly", *flags, "--json").json["id"]).state
        for flags in ([], [], ["--force"])
    ]
    assert states == ["queued", "held", "queued"]
    assert cli("run", "nope").code == 2


def test_run_takes_arguments(cli: Cli, store: Control) -> None:
    job = cli("run", "greet", "--arg", "name=007", "--arg", "copies=2", "--json").json["id"]
    assert store.run(job).args == '{"name": "007", "copies": 2}'
    every = ["--every", "1h", "--arg", "name=Ada"]
    assert cli("schedule", "hourly", "--job", "greet", *every).code == 0
    own = cli("run", "hourly", "--args", '{"copies": 3}', "--json").json["id"]
    assert store.run(own).args == '{"name": "Ada", "copies": 3}'
    assert "'nam' is unknown" in cli("run", "greet", "--arg", "nam=A").error


def test_wait_shows_how_far_it_is(cli: Cli, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = rota.Rota()
    go = threading.Event()

    @app.job
    def count(ctx: rota.Context) -> str:
        ctx.progress(30, 120)
        assert go.wait(20)
        return "done"

    app.load()
    app.start(["worker"])
    door = open_local_socket(app)

    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            if "running, attempt 1, 30 of 120 (25%)" in text:
                go.set()  # it was seen: the run may end
            return super().write(text)

    screen = Screen()
    with monkeypatch.context() as patch:
        patch.setenv("TERM", "xterm")
        patch.setattr(sys, "stderr", screen)
        answer = cli("run", "count", "--wait")
    app.stop()
    if door is not None:
        door.stop()
    assert go.is_set()
    assert answer.code == 0
    assert answer.out.endswith('"done"\n')


def test_wait_can_be_left(cli: Cli, store: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(enqueue_command, "nobody_else_can_run", lambda where, control: False)
    monkeypatch.setattr(enqueue_command.time, "sleep", interrupt)
    answer = cli("run", "broken", "--wait")
    assert answer.code == 130
    assert f"the run goes on without us; look at it with `rota show {store.runs()[0].id}`" in (
        answer.err
    )


@pytest.mark.each_engine
def test_wait_tells_how_it_ended(cli: Cli, database: str) -> None:
    app = shop()
    app.start(["worker"])
    try:
        good = cli("enqueue", "greet", "--arg", "name=Ada", "--wait")
        bad = cli("run", "broken", "--wait")
        as_json = cli("run", "broken", "--wait", "--json")
    finally:
        app.stop()
    assert good.code == 0
    assert " succeeded in " in good.out
    assert "Hello, Ada!" in good.out
    assert bad.code == 1
    assert " is dead: RuntimeError: no bread" in bad.out
    assert as_json.code == 1
    assert '"state": "dead"' in as_json.out


def test_waiting_says_that_no_worker_knows_the_job(
    cli: Cli, store: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enqueue_command, "PATIENCE_SECONDS", -1.0)
    monkeypatch.setattr(
        enqueue_command.time, "sleep", lambda seconds: store.cancel(store.runs()[0].id)
    )
    answer = cli("run", "broken", "--wait")
    assert answer.code == 1
    assert (
        "no live worker knows the job 'broken'; start one with `rota up [MODULE:APP]`. "
        "It is waited for; Ctrl-C leaves it queued\n" in answer.err
    )
    job = replace(store.job("broken"), error="jobs.d/broken.py:1: SyntaxError: invalid syntax")
    store.store.write(operations.put_jobs, [job])
    assert "before this is mended: jobs.d/broken.py:1: Syntax" in cli("run", "broken", "--wait").err


@pytest.mark.parametrize(
    ("name", "error"),
    [("never", "jobs.d/never.py:1: SyntaxError: invalid syntax"), ("gone", "retired: its files")],
)
def test_no_command_waits_for_what_cannot_run(
    cli: Cli, store: Control, name: str, error: str
) -> None:
    spec = {"version": "1"} if name == "never" else {"file": "jobs.d/gone.py"}
    made = Job(name=name, source="file", origin="jobs.d", spec=spec, enabled=False, error=error)
    store.store.write(operations.put_jobs, [made])
    for verb in ("run", "enqueue"):
        answer = cli(verb, name, "--wait")
        assert answer.code == 1
        assert f"nobody can run the job {name!r} before this is mended: {error}" in answer.err
        assert "leave out --wait to queue it all the same" in answer.err
    assert store.runs(job=name) == []
    assert cli("run", name).code == 0


def test_a_run_that_nobody_can_run_says_why(cli: Cli, store: Control) -> None:
    error = "jobs.d/web/job.toml:1: executor 'http' is off"
    store.store.write(operations.put_jobs, [replace(store.job("broken"), error=error)])
    reason = f"nobody can run the job 'broken' before this is mended: {error}"
    for verb in ("run", "enqueue"):
        made = cli(verb, "broken", "--json")
        assert made.err == reason + "\n"
    run_id = made.json["id"]
    assert reason in cli("show", run_id).out
    assert cli("show", run_id, "--json").json["run"]["reason"] == reason
    assert "nobody can run the job 'broken' before" in cli("runs", "--job", "broken").out
    assert cli("runs", "--limit", "1", "--json").json[0]["reason"] == reason
    greeting = cli("enqueue", "greet", "--arg", "name=A", "--json")
    assert greeting.err == ""  # its worker may come at any time
    unknown = "no live worker knows the job 'greet'; start one with `rota up [MODULE:APP]`"
    assert store.run(greeting.json["id"]).reason == unknown
    cancelled = store.cancel(greeting.json["id"], "wrong day")
    assert store.run(cancelled.id).reason == "wrong day"
    row = {
        "id": "w-1", "host": "here", "pid": 1, "version": "1", "tzdata": "1", "origin": None,
        "jobs": '["broken"]', "queues": "[]", "slots": 1, "stuck": 0,
    }  # fmt: skip
    store.store.write(operations.put_worker, row)  # with the last good version
    assert store.run(run_id).reason is None
    assert cli("enqueue", "broken").err == f"{error}; the last good version stays in use\n"


def test_a_job_that_lies_in_the_folder_and_is_not_taken_up_yet(cli: Cli, store: Control) -> None:
    folder = Path("jobs.d/region")
    folder.mkdir(parents=True)
    (folder / "job.toml").write_text("schedule = false")
    refused = cli("run", "region")
    assert refused.code == 2
    assert refused.error == (
        "rota: job 'region' does not exist; `rota jobs` lists them; jobs.d/region is there: "
        "`rota up` takes it up within a second, or see `rota check`"
    )
    assert "is there" not in cli("run", "regio").error


class Refusing:
    def check(self, job: Job) -> None:
        """Everything is fine."""

    def run(self, context: object) -> Outcome:
        return Outcome(kind="failed", error="01.sql:2: no table t\n\nDid you mean u?", final=True)


def test_waiting_for_a_run_that_fails_tells_the_whole_error(cli: Cli) -> None:
    app = rota.Rota("sqlite:///rota.db")
    app.executor("refusing", Refusing())
    app.add_job(Job(name="report", executor="refusing"))
    app.start(["worker"])
    try:
        answer = cli("run", "report", "--wait")
    finally:
        app.stop()
    assert answer.code == 1
    assert answer.out.endswith(" is dead: 01.sql:2: no table t\n\nDid you mean u?\n")


@pytest.mark.each_engine
def test_pause_and_resume_a_schedule(cli: Cli, store: Control) -> None:
    assert cli("pause", "nightly", "--reason", "holidays").out == "schedule nightly is paused\n"
    paused = store.schedule("nightly")
    assert (paused.paused, paused.paused_reason) == (True, "holidays")
    assert paused.paused_by == getpass.getuser()
    assert cli("schedules", "--json").json[0]["status"] == "PAUSED"
    assert "schedule nightly is resumed and fires in " in cli("resume", "nightly").out
    assert not store.schedule("nightly").paused
    assert cli("pause", "nightly", "--json").json["paused"] is True


def test_resume_makes_up_for_what_was_missed_only_if_asked(cli: Cli, store: Control) -> None:
    past = ("--job", "broken", "--every", "1h", "--first-run", "2026-01-01T00:00:00Z")
    for name, flags in (("forgets", []), ("catches", ["--catch-up", "one"])):
        cli("schedule", name, *past)
        cli("pause", name)
        assert cli("resume", name, *flags).code == 0
        assert bool(cli("runs", "--schedule", name, "--json").json) == bool(flags)
    assert cli("resume", "nightly", "--catch-up", "some").code == 2
    run = cli("enqueue", "broken", "--json").json["id"]
    for args in (["--dispatch"], [run]):
        assert "--catch-up belongs to a schedule" in cli("resume", *args, "--catch-up", "one").error


def test_pause_and_resume_a_run(cli: Cli, store: Control) -> None:
    run = cli("enqueue", "broken", "--json").json["id"]
    assert cli("pause", run[:-1], "--reason", "later").out == f"run {run} is paused\n"
    assert (store.run(run).state, store.run(run).reason) == ("paused", "later")
    assert cli("resume", run).code == 0
    assert store.run(run).state == "waiting"


@pytest.mark.each_engine
def test_pause_and_resume_a_queue_and_dispatch(cli: Cli, store: Control) -> None:
    paused = cli("pause", "--queue", "talk")
    assert (paused.out, paused.err) == ("queue talk is paused\n", "")
    assert [queue["paused"] for queue in store.queues()] == [False, True]
    assert cli("resume", "--queue", "talk").out == "queue talk is open\n"
    assert [queue["paused"] for queue in store.queues()] == [False, False]
    assert cli("resume", "--queue", "nope").code == 2
    assert "paused by" in cli("pause", "--dispatch", "--json").json["dispatch"]
    assert cli("resume", "--dispatch", "--json").json == {"dispatch": "on"}


@pytest.mark.parametrize("verb", ["pause", "resume"])
@pytest.mark.parametrize("args", [[], ["nightly", "--dispatch"], ["--queue", "q", "--dispatch"]])
def test_pause_and_resume_take_one_thing(
    cli: Cli, store: Control, verb: str, args: list[str]
) -> None:
    answer = cli(verb, *args)
    assert answer.code == 2
    assert "give one of: a schedule or run, --queue NAME, --dispatch" in answer.error


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_pause_and_resume_of_nothing_exit_2(cli: Cli, store: Control, verb: str) -> None:
    answer = cli(verb, "nope")
    assert answer.code == 2
    assert "'nope' is no schedule and no run" in answer.error


def test_an_unused_queue_is_paused_with_a_note(cli: Cli, store: Control) -> None:
    answer = cli("pause", "--queue", "zzz")
    assert answer.out == "queue zzz is paused\n"
    assert answer.err.startswith("no job has used the queue 'zzz' so far")
    assert cli("pause", "--queue", "default").err == ""


@pytest.mark.each_engine
def test_drop(cli: Cli, store: Control) -> None:
    assert cli("drop", "nightly", "--reason", "old").out == "schedule nightly is dropped\n"
    assert store.schedules() == []
    assert cli("drop", "nightly").code == 2


@pytest.mark.each_engine
def test_cancel_redo_delete(cli: Cli, store: Control) -> None:
    run = cli("enqueue", "broken", "--json").json["id"]
    assert cli("cancel", run, "--reason", "wrong day").out == f"run {run} is cancelled\n"
    assert (store.run(run).state, store.run(run).reason) == ("cancelled", "wrong day")
    assert cli("redo", run).out == f"run {run} starts over; it is waiting\n"
    assert store.run(run).redo == 1
    assert cli("cancel", run, "--json").json["state"] == "cancelled"
    assert cli("delete", run, "--json").json == {"id": run, "deleted": True}
    assert store.runs() == []
    for verb in ("cancel", "redo", "delete"):
        answer = cli(verb, run)
        assert answer.code == 2
        assert f"run {run!r} does not exist" in answer.error


def test_redo_from_a_step(cli: Cli, tmp_path: Path) -> None:
    app = rota.Rota("sqlite:///rota.db")
    for name, text in (("a.sql", "CREATE TABLE IF NOT EXISTS t (i)"), ("b.sql", "SELECT 1")):
        (tmp_path / name).write_text(text)
    spec = {"folder": str(tmp_path), "files": ["a.sql", "b.sql"]}
    app.add_job(Job(name="files", executor="sql", spec=spec))
    made = app.control.trigger("files")
    ends = Ends(app, 1)
    app.start(["worker"])
    ends.wait()
    app.stop()
    shown = cli("show", made.id).out
    assert "Steps" in shown
    assert "a.sql" in shown
    assert cli("logs", made.id).error == f"no log lines; SQL runs have steps: rota show {made.id}"
    assert [step["name"] for step in cli("show", made.id, "--json").json["steps"]] == [
        "a.sql", "b.sql",
    ]  # fmt: skip
    refused = cli("redo", made.id, "--from", "c.sql")
    assert refused.code == 2
    assert "its steps are a.sql, b.sql" in refused.error
    assert cli("redo", made.id, "--from", "b.sql").code == 0
    assert cli("cancel", made.id).code == 0
    refused = cli("redo", made.id, "--from", "c.sql", "--latest")
    assert refused.code == 2
    assert "job 'files' as it is now has no step 'c.sql'; its steps are a.sql, b.sql" in (
        refused.error
    )
    assert cli("redo", made.id, "--from", "b.sql", "--latest").code == 0
    assert cli("cancel", made.id).code == 0
    assert cli("redo", made.id, "--latest").code == 0


def test_a_redo_says_what_has_changed_and_what_it_leaves_out(cli: Cli) -> None:
    folder = Path("jobs.d/sales")
    folder.mkdir(parents=True)
    (folder / "job.toml").write_text("schedule = false")
    (folder / "01.sql").write_text("SELECT nope")
    (folder / "02.sql").write_text("SELECT 2")
    app = rota.Rota("sqlite:///rota.db", jobs_dir="jobs.d")
    ends = Ends(app, 1)
    app.start()
    run = app.control.trigger("sales").id
    ends.wait()
    app.stop()
    same = cli("redo", run)
    assert (same.out, same.err) == (f"run {run} starts over; it is waiting\n", "")
    cli("cancel", run)
    (folder / "01.sql").write_text("SELECT 1")
    app.serve_folder().load()
    app.close()
    changed = cli("redo", run)
    assert changed.err == (
        "it runs the texts it began with; 01.sql has changed since: "
        "ask for the latest (--latest) to run those\n"
    )
    cli("cancel", run)
    assert "01.sql was never done, and is skipped\n" in cli("redo", run, "--from", "2").err
    cli("cancel", run)
    assert cli("redo", run, "--latest").err == ""


def test_redo_waits_if_asked(cli: Cli) -> None:
    app = rota.Rota("sqlite:///rota.db")

    @app.job(max_attempts=1)
    def moody() -> str:
        if not Path("good").exists():
            raise RuntimeError("not yet")
        return "done"

    ends = Ends(app, 1)
    app.start(["worker"])
    try:
        run = moody.enqueue().id
        ends.wait()
        again = cli("redo", run, "--wait")
        assert (again.code, again.out) == (1, f"run {run} is dead: RuntimeError: not yet\n")
        Path("good").touch()
        again = cli("redo", run, "--wait")
        assert (again.code, again.out.splitlines()[1]) == (0, '"done"')
        assert cli("redo", "--all", "--wait").code == 2
    finally:
        app.stop()


def test_the_audit_names_the_user_and_the_command_line(cli: Cli, store: Control) -> None:
    cli("pause", "nightly", "--reason", "holidays")
    entry = store.audit(limit=1)[0]
    assert (entry["by"], entry["via"]) == (getpass.getuser(), "cli")
    assert (entry["action"], entry["thing"], entry["reason"]) == (
        "pause_schedule", "nightly", "holidays",
    )  # fmt: skip


@pytest.mark.each_engine
def test_prune_uses_the_retention_of_the_settings(cli: Cli, ended: dict[str, str]) -> None:
    cli("prune")
    assert len(cli("runs", "--json").json) == 3
    Path("keep.toml").write_text('keep_last = 0\n[retention]\nsucceeded = "0s"\n')
    assert cli("prune", "--config", "keep.toml", "--json").json == {"deleted": 2}
    assert [run["state"] for run in cli("runs", "--json").json] == ["dead"]


def test_migrate_plans_and_applies(cli: Cli) -> None:
    (first, *_) = cli("migrate", "--plan", "--json").json
    assert first["name"] == "0001_schema"
    assert "CREATE TABLE" in first["sql"]
    assert "CREATE TABLE" in cli("migrate", "--plan").out
    assert not Path("rota.db").exists()
    assert cli("migrate", "--json").json["applied"] == ["0001_schema", "views"]
    assert cli("migrate").out == "sqlite:///rota.db was up to date already\n"
    assert cli("migrate", "--plan", "--json").json == []
    assert cli("runs", "--json").json == []
