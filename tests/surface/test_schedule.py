"""`rota schedule`: every option, and edits that leave the rest alone."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest

from rota.cli import schedule as module
from rota.cli.schedule import OPTIONS
from rota.cli.store import actor
from rota.flow.control import Control
from rota.model.retry import Retry
from rota.model.schedule import DEFINITION, Schedule
from rota.storage import operations
from tests.surface.conftest import Cli


@pytest.mark.each_engine
def test_create_with_every_option(cli: Cli, store: Control) -> None:
    answer = cli(
        "schedule", "hello", "--job", "greet", "--cron", "0 3 * * *", "--tz", "Europe/Berlin",
        "--dst", "literal", "--anchor", "rate", "--overlap", "queue", "--overlap-key", "k",
        "--queue-max", "3", "--on-error", "pause", "--pause-after", "2", "--catch-up", "all",
        "--catch-up-limit", "7", "--misfire-grace", "2m", "--jitter", "5s", "--spread", "1m",
        "--first-run", "2090-01-01T00:00:00Z", "--starts-at", "2030-01-01T00:00:00Z",
        "--ends-at", "2098-01-01T00:00:00Z", "--arg", "name=Ada", "--args", '{"copies": 2}',
        "--priority", "-4", "--max-attempts", "9", "--backoff", "exponential",
        "--retry-delay", "2s", "--max-delay", "1m", "--retry-jitter", "1s", "--owner", "me",
        "--enabled", "--json",
    )  # fmt: skip
    assert answer.json["status"] == "ACTIVE"
    made = store.schedule("hello")
    assert made.definition() | {"retry": None} == {
        "name": "hello", "job": "greet", "kind": "cron", "expr": "0 3 * * *",
        "timezone": "Europe/Berlin", "dst": "literal", "anchor": "rate", "overlap": "queue",
        "overlap_key": "k", "queue_max": 3, "on_error": "pause", "pause_after": 2,
        "catch_up": "all", "catch_up_limit": 7, "misfire_grace": "2m", "jitter": "5s",
        "spread": "1m", "first_run": "2090-01-01T00:00:00+00:00",
        "starts_at": "2030-01-01T00:00:00+00:00", "ends_at": "2098-01-01T00:00:00+00:00",
        "args": {"name": "Ada", "copies": 2}, "priority": -4, "retry": None, "owner": "me",
        "enabled": True,
    }  # fmt: skip
    assert made.retry == Retry(
        max_attempts=9,
        backoff="exponential",
        delay=timedelta(seconds=2),
        max_delay=timedelta(minutes=1),
        jitter=timedelta(seconds=1),
    )


def test_no_option_of_a_schedule_is_forgotten() -> None:
    by_other_flags = {"name", "kind", "expr", "retry"}
    assert set(DEFINITION) - by_other_flags <= set(OPTIONS)
    assert {one.name for one in fields(Retry)} == {
        "max_attempts", "backoff", "delay", "max_delay", "jitter",
    }  # fmt: skip


@pytest.mark.each_engine
def test_an_edit_changes_only_what_it_names(cli: Cli, store: Control) -> None:
    before = store.schedule("nightly")
    cli("pause", "nightly")
    answer = cli("schedule", "nightly", "--overlap", "wait", "--max-attempts", "5")
    assert answer.out.startswith("schedule nightly is changed: cron 0 3 * * * Europe/Berlin")
    after = store.schedule("nightly")
    assert after.paused
    changed = {name for name in DEFINITION if getattr(before, name) != getattr(after, name)}
    assert changed == {"overlap", "retry"}
    assert "is unchanged" in cli("schedule", "nightly", "--overlap", "wait").out


@pytest.mark.parametrize("delay", ["--delay", "--retry-delay"])
def test_retries_are_told_by_the_names_that_they_have_everywhere(
    cli: Cli, store: Control, delay: str
) -> None:
    told = ("--max-attempts", "7", "--backoff", "quadratic", delay, "2s", "--retry-jitter", "1s")
    cli("schedule", "s", "--job", "greet", "--every", "5m", "--arg", "name=Ada", *told)
    wanted = Retry(max_attempts=7, backoff="quadratic", delay="2s", jitter="1s")
    assert store.schedule("s").retry == wanted
    cli("schedule", "s", "--max-delay", "1m")
    assert store.schedule("s").retry == replace(wanted, max_delay="1m")


def test_an_edit_keeps_the_secrets_and_tells_a_new_one(cli: Cli, store: Control) -> None:
    told = ("schedule", "hello", "--arg", "name=Ada", "--arg")
    cli(*told, "api_token=t0p-secret", "--job", "greet", "--every", "5m")
    assert "is changed" in cli("schedule", "hello", "--every", "6m").out
    assert "is unchanged" in cli("schedule", "hello", "--every", "6m").out
    assert "is unchanged" in cli(*told, "api_token=t0p-secret").out
    assert "is changed" in cli(*told, "api_token=another-one").out
    made = cli("run", "hello", "--json").json["id"]
    assert "another-one" in store.store.read(operations.get_run, made).args
    assert "another-one" not in cli("show", "hello", "--json").out


def test_an_option_without_effect_is_kept_and_told(cli: Cli, store: Control) -> None:
    new = ("schedule", "often", "--job", "broken")
    answer = cli(*new, "--cron", "@daily", "--queue-max", "3", "--anchor", "delay")
    assert answer.code == 0
    assert answer.err.splitlines() == [
        "queue_max has no effect with overlap = wait; it counts the runs that wait under "
        "overlap = queue",
        "anchor = delay has no effect; it is for schedules by every",
    ]
    assert store.schedule("often").queue_max == 3
    assert cli("schedule", "often", "--overlap", "queue", "--every", "1h").err == ""
    assert "dst = literal has no effect" in cli("schedule", "often", "--dst", "literal").err


def test_a_new_schedule_belongs_to_who_makes_it(cli: Cli, store: Control) -> None:
    new = ("--job", "broken", "--every", "1h")
    cli("schedule", "mine", *new)
    cli("schedule", "yours", *new, "--owner", "ada")
    assert store.schedule("mine").owner == actor().by
    cli("schedule", "yours", "--every", "2h")
    cli("schedule", "nightly", "--every", "2h")
    assert [store.schedule(name).owner for name in ("yours", "nightly")] == ["ada", None]


@pytest.mark.parametrize("there", [True, False])
def test_an_edit_undoes_nobody_elses(
    cli: Cli, store: Control, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one comes between the look and the write."""
    name = "nightly" if there else "new"
    wanted = replace(store.schedule("nightly"), name=name, overlap="allow")
    make = module._wanted

    def make_second(*args: Any) -> Schedule:
        made = make(*args)
        store.put_schedule(wanted)
        return made

    monkeypatch.setattr(module, "_wanted", make_second)
    answer = cli("schedule", name, "--job", "broken", "--every", "5m")
    assert answer.code == 1
    assert ("was changed since you read it" if there else "exists already") in answer.error
    assert store.schedule(name).definition() == wanted.definition()


def test_the_kinds_and_their_next_times(cli: Cli, store: Control) -> None:
    told = cli("schedule", "often", "--job", "broken", "--every", "90m").out
    assert told.startswith("schedule often is created: every 1h30m, next in 1 h 29 min (")
    once = cli("schedule", "once", "--job", "broken", "--at", "2030-01-01T00:00+01:00", "--json")
    assert once.json["next_fire_at"] == "2029-12-31T23:00:00+00:00"
    off = cli("schedule", "off", "--job", "broken", "--cron", "@daily", "--disabled")
    assert off.out == "schedule off is created: cron @daily UTC, disabled\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("new --every 5m", "schedule 'new' is new; give --job"),
        ("new --job broken", "schedule 'new' is new; give --cron, --every or --at"),
        ("new --job nope --every 5m", "job 'nope' does not exist"),
        ("new --job greet --every 5m", "job 'greet': 'name' is missing"),
        ("new --job broken --every 5m --cron @daily", "give one of --cron, --every and --at"),
        ("new --job broken --cron @dayly", "did you mean @daily?"),
        ("new --job broken --every 0s", "every '0s' must be above zero"),
        ("new --job broken --every 5m --overlap sometimes", "overlap 'sometimes' is unknown"),
        ("n@w --job broken --every 5m", "schedule name 'n@w' is not a valid name"),
    ],
)
def test_what_is_refused_exits_2(cli: Cli, store: Control, args: str, message: str) -> None:
    answer = cli("schedule", *args.split())
    assert answer.code == 2
    assert message in answer.error
    assert [one.name for one in store.schedules()] == ["nightly"]
