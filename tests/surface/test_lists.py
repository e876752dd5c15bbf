"""Lists: what they show to people, to pipes and to programs."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

import rota
from rota.cli import output
from rota.cli.records import job_record
from rota.flow.control import Control
from rota.flow.enqueue import find_job
from rota.storage import operations
from tests.api.support import wait_until
from tests.surface.conftest import Cli, shop


def columns(text: str) -> list[list[str]]:
    """A plain table as cells: columns are two blanks apart."""
    return [re.split(" {2,}", line) for line in text.splitlines()]


@pytest.mark.each_engine
def test_jobs(cli: Cli, store: Control) -> None:
    found = cli("jobs", "--json").json
    assert [job["name"] for job in found] == ["broken", "chatty", "greet", "nightly"]
    assert found[2]["description"] == "Says hello."
    assert found[2]["max_attempts"] == 1
    assert datetime.fromisoformat(found[2]["version_at"]).tzinfo is not None
    assert columns(cli("jobs").out)[3][:4] == ["greet", "python", "default", "1"]
    store.store.write(
        operations.put_jobs, [replace(store.job("greet"), error="jobs.d/greet.py:1: bad")]
    )
    assert columns(cli("jobs").out)[3][-2:] == ["Says hello.", "jobs.d/greet.py:1: bad"]
    page = cli("jobs", "--after", "chatty", "--limit", "1")
    assert "greet" in page.out
    assert page.err == "there may be more; the next page: --after greet\n"


def test_one_job_has_the_keys_of_the_list(store: Control) -> None:
    assert job_record(find_job(store.store, "greet")) in store.jobs()


@pytest.mark.each_engine
def test_schedules(cli: Cli, store: Control) -> None:
    (found,) = cli("schedules", "--json").json
    assert found["name"] == found["job"] == "nightly"
    assert found["status"] == "ACTIVE"
    assert found["misfire_grace"] == "1m"
    following = datetime.fromisoformat(found["next_fire_at"])
    assert following.utcoffset() == timedelta(0)
    assert following.minute == 0
    told = cli("schedules").out
    assert "cron 0 3 * * * Europe/Berlin" in told
    assert "  in " in told
    assert cli("schedules", "--job", "greet", "--json").json == []
    assert "job 'nope' does not exist" in cli("schedules", "--job", "nope").error


@pytest.mark.each_engine
def test_runs_are_chosen_by_job_schedule_state_and_queue(cli: Cli, store: Control) -> None:
    greet = cli("enqueue", "greet", "--arg", "name=Ada", "--json").json["id"]
    chatty = cli("enqueue", "chatty", "--delay", "1h", "--json").json["id"]
    nightly = cli("run", "nightly", "--json").json["id"]

    def ids(*args: str) -> list[str]:
        return [run["id"] for run in cli("runs", *args, "--json").json]

    assert ids() == [nightly, chatty, greet]
    assert ids("--job", "greet") == [greet]
    assert ids("--schedule", "nightly") == [nightly]
    assert ids("--job", "greet", "--schedule", "nightly") == []
    assert ids("--state", "waiting") == [chatty]
    assert ids("--queue", "talk") == [chatty]
    assert ids("--limit", "1") == [nightly]
    assert ids("--before", "2") == [greet]
    assert ids("--state", "dead") == []
    assert "job 'nope' does not exist" in cli("runs", "--job", "nope").error
    assert "schedule 'nope' does not exist" in cli("runs", "--schedule", "nope").error
    assert "state 'lost' is unknown; use waiting, held" in cli("runs", "--state", "lost").error


def test_a_run_shows_its_columns_as_json_and_hides_secrets(cli: Cli, ended: dict[str, str]) -> None:
    (run,) = cli("runs", "--job", "greet", "--json").json
    assert run["id"] == ended["greet"]
    assert run["state"] == "succeeded"
    assert run["args"] == {"name": "Ada", "api_token": "[redacted]"}
    assert run["result"] == "Hello, Ada!"
    assert datetime.fromisoformat(run["finished_at"]).utcoffset() == timedelta(0)


def test_a_pipe_gets_whole_ids_and_no_colours(cli: Cli, ended: dict[str, str]) -> None:
    answer = cli("runs")
    rows = {row[1]: row for row in columns(answer.out)}
    assert [rows[job][0] for job in ended] == list(ended.values())
    assert "\x1b" not in answer.out
    assert "─" not in answer.out
    assert rows["broken"][2] == "dead"
    assert rows["broken"][-1] == "RuntimeError: no bread at postgresql://me:[redacted]@db/shop"
    assert re.fullmatch(r"(now|\d+ s ago) \(.*\d\d:\d\d:\d\d\)", rows["greet"][3])


def test_a_terminal_gets_a_table_with_whole_ids(
    cli: Cli, ended: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output.sys.stdout.__class__, "isatty", lambda self: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.delenv("NO_COLOR", raising=False)
    told = cli("runs").out
    assert "\x1b[31mdead" in told
    for run_id in ended.values():
        assert run_id in told
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in cli("runs").out


@pytest.mark.each_engine
def test_queues_show_pauses_and_dispatch(cli: Cli, store: Control) -> None:
    cli("enqueue", "chatty")
    cli("pause", "--queue", "talk", "--reason", "no reader")
    cli("pause", "--dispatch", "--reason", "maintenance")
    default, talk = cli("queues", "--json").json
    assert (default["name"], default["paused"], default["queued"]) == ("default", False, 0)
    assert (talk["name"], talk["paused"], talk["queued"]) == ("talk", True, 1)
    assert talk["reason"] == "no reader"
    answer = cli("queues")
    assert columns(answer.out)[2][:3] == ["talk", "paused", "1"]
    assert "dispatch is paused by" in answer.err
    assert "maintenance" in answer.err


@pytest.mark.each_engine
def test_workers_say_whether_they_live(cli: Cli, database: str) -> None:
    app = shop()
    app.start(["worker"])
    try:
        wait_until(app.control.workers, "its first heartbeat")
        (worker,) = cli("workers", "--json").json
        assert worker["alive"] is True
        assert worker["jobs"] == ["broken", "chatty", "greet", "nightly"]
        assert columns(cli("workers").out)[1][1] == "alive"
    finally:
        app.stop()
    assert cli("workers", "--json").json == []
    assert "start one with `rota up" in cli("workers").err


def test_locks(cli: Cli, store: Control) -> None:
    assert cli("locks", "--json").json == []
    token = store.store.write(operations.acquire_lock, "till", "me", 60)
    (lock,) = cli("locks", "--json").json
    assert (lock["name"], lock["owner"], lock["token"]) == ("till", "me", token)
    assert datetime.fromisoformat(lock["until"]) > datetime.now(UTC)
    assert columns(cli("locks").out)[1][:2] == ["till", "me"]


def test_what_does_not_fit_a_page_is_on_the_next(cli: Cli, store: Control) -> None:
    for name in ("till two", "till one"):
        store.store.write(operations.acquire_lock, name, "me", 60)
    first = cli("locks", "--limit", "1")
    assert columns(first.out)[1][0] == "till one"
    assert first.err == "there may be more; the next page: --after 'till one'\n"
    following = cli("locks", "--after", "till one", "--json").json
    assert [one["name"] for one in following] == ["till two"]
    first = cli("queues", "--limit", "1")
    assert first.err == "there may be more; the next page: --after default\n"
    assert [one["name"] for one in cli("queues", "--after", "default", "--json").json] == ["talk"]
    assert cli("workers", "--after", "zzz", "--limit", "1", "--json").json == []
    assert "limit 501 must be" in cli("workers", "--limit", "501").error


def test_the_lists_work_on_postgresql(cli: Cli, postgres_url: str) -> None:
    where = ("--database", postgres_url, "--json")
    assert cli("migrate", *where).json["applied"]
    app = rota.Rota(postgres_url)

    @app.job(every="1h")
    def hourly() -> None:
        pass

    app.load()
    app.close()
    run = cli("run", "hourly", *where).json["id"]
    assert [job["name"] for job in cli("jobs", *where).json] == ["hourly"]
    assert [one["name"] for one in cli("schedules", *where).json] == ["hourly"]
    assert [one["id"] for one in cli("runs", *where).json] == [run]
    assert cli("show", run[:20], *where).json["run"]["id"] == run
    assert cli("show", "hourly", *where).json["schedule"]["expr"] == "1h"
    assert [one["name"] for one in cli("queues", *where).json] == ["default"]
    assert cli("workers", *where).json == cli("locks", *where).json == []
    assert cli("cancel", run, *where).json["state"] == "cancelled"


@pytest.mark.each_engine
def test_tokens_are_listed_as_they_were_made(cli: Cli, store: Control) -> None:
    names = [f"token-{number}" for number in range(8)]
    for name in names:
        store.create_token(name, "viewer", expires=None)
    assert [one["name"] for one in cli("token", "list", "--json").json] == names
