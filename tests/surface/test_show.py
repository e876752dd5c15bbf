"""`rota show` and `rota logs`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import rota
from rota.flow.control import Control
from rota.flow.home import check_home
from rota.model.job import Job
from rota.model.schedule import Schedule
from rota.storage import operations
from rota.storage.operations.claiming import LogLine
from tests.surface.conftest import Cli

NIGHTLY = Schedule(name="nightly", job="greet", kind="cron", expr="0 3 * * *", args={"name": "Ada"})


@pytest.mark.each_engine
def test_a_run_with_its_attempts_error_and_log(cli: Cli, ended: dict[str, str]) -> None:
    found = cli("show", ended["broken"], "--json").json
    assert list(found) == ["run", "attempts", "steps", "logs"]
    assert found["run"]["state"] == "dead"
    (attempt,) = found["attempts"]
    assert (attempt["number"], attempt["outcome"]) == (1, "failed")
    assert "geheim" not in json.dumps(found)
    told = cli("show", ended["broken"]).out
    assert "  state     dead\n" in told
    assert "RuntimeError: no bread at postgresql://me:[redacted]@db/shop" in told
    assert "Attempts\n" in told


def test_control_characters_in_a_log_are_spelled_out(cli: Cli, ended: dict[str, str]) -> None:
    for command in ("show", "logs"):
        told = cli(command, ended["chatty"]).out
        assert "info    line 2\n" in told
        assert "warning \\x1b[31mred\\x1b[0m\n" in told
        assert "\x1b" not in told


def test_a_run_is_found_by_the_beginning_of_its_id(cli: Cli, ended: dict[str, str]) -> None:
    greet, broken = ended["greet"], ended["broken"]
    assert cli("show", greet.upper(), "--json").json["run"]["id"] == greet
    assert cli("show", greet[:-2], "--json").json["run"]["id"] == greet
    # Ids begin with the time: the first 6 characters change every five hours.
    answer = cli("show", greet[:6])
    assert answer.code == 2
    assert f"run {greet[:6]!r} could be several: " in answer.error
    assert broken in answer.error
    assert answer.error.endswith("; give more characters")
    short = cli("show", greet[:5]).error
    assert "is no run, schedule or job" in short
    assert short.endswith("; of a run's id give 6 characters or more")
    assert "give 6 characters or more" in cli("logs", greet[:5]).error


def test_a_schedule_and_its_job_of_one_name(cli: Cli, store: Control) -> None:
    cli("pause", "nightly", "--reason", "holidays")
    cli("resume", "nightly")
    run = cli("run", "nightly", "--json").json["id"]
    found = cli("show", "nightly", "--json").json
    assert list(found) == [
        "schedule", "next", "reasons", "occurrences", "changes", "job", "schedules", "runs",
    ]  # fmt: skip
    assert found["schedule"]["timezone"] == "Europe/Berlin"
    assert len(found["next"]) == 5
    assert found["next"][0]["at"] == found["schedule"]["next_fire_at"]
    assert [change["action"] for change in found["changes"]] == ["resume", "pause", "create"]
    assert found["changes"][1]["reason"] == "holidays"
    assert found["job"]["name"] == "nightly"
    assert found["schedules"] == ["nightly"]
    assert [one["id"] for one in found["runs"]] == [run]
    told = cli("show", "nightly").out
    for heading in ("Next times (", "Last changes", "Job", "Last runs"):
        assert f"\n{heading}" in told
    assert "paused: false → true" in told


def test_secrets_in_the_arguments_of_a_schedule_are_hidden(cli: Cli, store: Control) -> None:
    cli("schedule", "hello", "--job", "greet", "--every", "1h", "--arg", "name=A",
        "--arg", "api_token=t0psecret")  # fmt: skip
    cli("schedule", "hello", "--arg", "name=B", "--arg", "api_token=t1psecret")
    for flags in ([], ["--json"]):
        told = cli("show", "hello", *flags).out
        assert "[redacted]" in told
        assert "psecret" not in told
    assert "psecret" not in cli("schedules", "--json").out


def test_a_job_without_a_schedule(cli: Cli, store: Control) -> None:
    cli("schedule", "hello", "--job", "greet", "--every", "1h", "--arg", "name=A")
    found = cli("show", "greet", "--json").json
    assert list(found) == ["job", "schedules", "runs"]
    assert found["schedules"] == ["hello"]
    told = cli("show", "greet").out
    assert "name: string, copies?: integer, api_token?: string" in told
    assert "every 1h" in told


def test_a_job_of_sql_files_names_them_and_its_target(cli: Cli, store: Control) -> None:
    spec = {"folder": "/srv/jobs.d/load", "files": ["01_get.sql", "02_put.sql"], "target": "crm"}
    store.store.write(
        operations.put_jobs, [Job(name="load", executor="sql", source="file", spec=spec)]
    )
    told = cli("show", "load").out
    assert "01_get.sql, 02_put.sql" in told
    assert "target     crm" in told
    assert "isolation" not in told


def test_the_tags_of_a_file_are_shown(cli: Cli, store: Control) -> None:
    folder = Path("jobs.d/load")
    folder.mkdir(parents=True)
    (folder / "01.sql").write_text("SELECT 1")
    (folder / "job.toml").write_text('every = "1h"\ntags = ["finance", "nightly"]\n')
    app = rota.Rota("sqlite:///tagged.db", jobs_dir="jobs.d")
    app.load()
    app.close()
    here = ("--database", "sqlite:///tagged.db")
    assert "tags       finance, nightly" in cli("show", "load", *here).out
    assert cli("show", "load", "--json", *here).json["job"]["tags"] == ["finance", "nightly"]
    (job,) = cli("jobs", "--json", *here).json
    assert job["tags"] == ["finance", "nightly"]
    assert "tags" not in cli("show", "greet").out
    assert cli("show", "greet", "--json").json["job"]["tags"] == []


@pytest.mark.parametrize("thing", ["nope", "01997f3a", "no such thing", ""])
def test_an_unknown_thing_exits_2(cli: Cli, store: Control, thing: str) -> None:
    answer = cli("show", thing)
    assert answer.code == 2
    assert f"{thing!r} is no run, schedule or job" in answer.error


def test_logs_as_json_are_a_list(cli: Cli, ended: dict[str, str]) -> None:
    lines = cli("logs", ended["chatty"], "--json").json
    assert [line["text"] for line in lines[:3]] == ["line 0", "line 1", "line 2"]
    assert set(lines[0]) == {"id", "attempt", "at", "level", "text"}
    assert cli("logs", ended["greet"], "--json").json == []
    assert "no log lines" in cli("logs", ended["greet"]).err


@pytest.mark.each_engine
def test_following_a_log_ends_with_the_run(
    cli: Cli, store: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = store.run(cli("enqueue", "broken", "--json").json["id"])
    written = iter(range(3))

    def work(seconds: float) -> None:
        """Instead of sleeping: write a line at each look, then end the run."""
        number = next(written, None)
        if number is None and store.run(run.id).state != "cancelled":
            store.cancel(run.id)
        elif number is not None:
            now = store.store.now()
            line = LogLine(run_seq=run.seq, attempt=1, at=now, level="INFO", text=f"line {number}")
            store.store.write(operations.insert_logs, [line])

    monkeypatch.setattr("rota.cli.logs.time.sleep", work)
    answer = cli("logs", run.id, "-f", "--json")
    assert answer.code == 0
    assert [json.loads(line)["text"] for line in answer.out.splitlines()] == [
        "line 0", "line 1", "line 2",
    ]  # fmt: skip


def test_a_dropped_schedule_is_shown_by_its_history(cli: Cli, store: Control) -> None:
    store.put_schedule(replace(NIGHTLY, name="tick"))
    store.put_schedule(replace(NIGHTLY, name="tick2"))
    made = store.trigger("tick").id
    cli("drop", "tick", "--reason", "not needed")
    by = store.dropped("tick")["by"]
    listed = cli("runs", "--schedule", "tick")
    assert made[:8] in listed.out
    assert listed.err.startswith("schedule 'tick' was dropped by " + by)
    assert [run["id"] for run in cli("runs", "--schedule", "tick", "--json").json] == [made]
    shown = cli("show", "tick").out
    for told in ("dropped", f"by {by}: not needed", "cron 0 3 * * *", "Last changes", made[:8]):
        assert told in shown, told
    answer = cli("show", "tick", "--json").json
    assert "schedule" not in answer
    assert (answer["dropped"]["by"], answer["dropped"]["reason"]) == (by, "not needed")
    assert answer["dropped"]["before"]["expr"] == "0 3 * * *"
    assert [row["action"] for row in answer["changes"]] == ["drop", "create"]
    assert [run["id"] for run in answer["runs"]] == [made]
    refused = cli("explain", "tick")
    assert (refused.code, "did you mean" in refused.err) == (2, False)
    assert f"schedule 'tick' was dropped by {by} at 20" in refused.error


@pytest.mark.each_engine
def test_explain_says_when_and_why_not(cli: Cli, store: Control) -> None:
    store.put_schedule(NIGHTLY)
    store.pause("nightly", "moving house")
    answer = cli("explain", "nightly", "--json").json
    assert answer["words"] == "At 03:00 (UTC)"
    assert (answer["status"], answer["next"]) == ("PAUSED", [])
    assert "moving house" in answer["reasons"][0]
    assert "moving house" in cli("explain", "nightly").out
    store.resume("nightly")
    answer = cli("explain", "nightly", "--count", "2", "--json").json
    assert len(answer["next"]) == 2
    assert answer["next"][0]["at"].endswith("T03:00:00+00:00")


def test_explain_of_a_job_says_that_it_has_no_schedule_or_which(cli: Cli, store: Control) -> None:
    assert cli("explain", "greet").error == (
        "rota: job 'greet' has no schedule: it runs when asked, as by `rota run greet`"
    )
    store.put_schedule(replace(NIGHTLY, name="late", job="greet"))
    assert cli("explain", "greet").error == (
        "rota: job 'greet' has no schedule of its name; explain one of: 'late'"
    )
    assert "schedule 'nobody' does not exist" in cli("explain", "nobody").error


def test_explain_tells_what_became_of_an_instant(cli: Cli, store: Control) -> None:
    store.put_schedule(NIGHTLY)
    assert "not an occurrence" in cli("explain", "nightly", "--at", "2026-01-01T02:00:00Z").out
    assert "still to come" in cli("explain", "nightly", "--at", "2090-01-01T03:00:00Z").out
    assert "not in the ledger" in cli("explain", "nightly", "--at", "2020-01-01T03:00:00Z").out


def test_adopt_answers_with_what_it_resumed(cli: Cli, store: Control) -> None:
    store.put_schedule(NIGHTLY)
    assert check_home(store._whole_store, "blue") is None
    assert "cluster was blue, is green" in str(check_home(store._whole_store, "green"))
    assert store.schedule("nightly").paused
    Path("rota.toml").write_text('cluster = "green"\n')
    assert cli("adopt", "--json").json == {"resumed": 1}
    assert not store.schedule("nightly").paused
