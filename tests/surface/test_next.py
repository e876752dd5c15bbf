"""`rota next`: words, local times, clock changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.surface.conftest import Cli

CASES = json.loads((Path(__file__).parents[1] / "data" / "cron_cases.json").read_text())["cases"]


def cases(*semantics: str) -> list[dict[str, Any]]:
    return [case for case in CASES if case["semantics"] in semantics]


def test_json_lists_the_verified_times(cli: Cli) -> None:
    for case in cases("vixie", "literal", "skip_once"):
        wanted = case["expect"]
        answer = cli(
            "next", case["expr"], "--tz", case["tz"], "--after", case["after"],
            "--dst", case["semantics"], "--count", str(len(wanted) or 1), "--json",
        )  # fmt: skip
        assert [time["at"] for time in answer.json] == wanted, case["note"]


def test_refused_expressions_exit_2(cli: Cli) -> None:
    for case in cases("reject", "never"):
        after = case.get("after", "2025-01-01T00:00:00Z")
        answer = cli("next", case["expr"], "--tz", case.get("tz", "UTC"), "--after", after)
        assert answer.code == 2, case["note"]
        assert answer.error.startswith("rota: cron "), case["note"]


def test_a_time_in_a_gap_is_marked(cli: Cli) -> None:
    args = ("30 2 * * *", "--tz", "Europe/Berlin", "--after", "2026-03-28T12:00:00Z")
    gap = "02:30 does not exist on this day (clocks go forward); runs at 03:00"
    assert cli("next", *args, "--count", "2", "--json").json == [
        {"at": "2026-03-29T03:00:00+02:00", "note": gap},
        {"at": "2026-03-30T02:30:00+02:00", "note": None},
    ]
    told = cli("next", *args).out.splitlines()
    assert told[0] == "At 02:30 (Europe/Berlin)"
    assert told[3].startswith("Sun 2026-03-29 03:00:00 +02:00  ")
    assert told[3].endswith(gap)
    assert len(told) == 3 + 5


def test_a_time_that_happens_twice_is_marked(cli: Cli) -> None:
    answer = cli(
        "next", "30 2 * * *", "--tz", "Europe/Berlin", "--after", "2026-10-24T12:00:00Z",
        "--count", "1", "--json",
    )  # fmt: skip
    note = "02:30 happens twice on this day; runs at the first"
    assert answer.json == [{"at": "2026-10-25T02:30:00+02:00", "note": note}]


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        ("*/5 * * * *", "Every 5 minutes"),
        ("@daily", "At 00:00"),
        ("0 0 13 * 5", "At 00:00, on day 13 of the month, or on Friday"),
        ("0 0 */2 * 1", "At 00:00, every 2 days, anew each month, if that is Monday"),
        ("*/10 * * * * *", "Every 10 seconds"),
    ],
)
def test_it_says_what_it_means(cli: Cli, expr: str, words: str) -> None:
    assert cli("next", expr).out.splitlines()[0] == f"{words} (UTC)"


def test_fields_may_stand_apart(cli: Cli) -> None:
    apart = cli("next", "0", "3", "*", "*", "*", "--after", "2026-01-01T00:00:00Z", "--json")
    whole = cli("next", "0 3 * * *", "--after", "2026-01-01T00:00:00Z", "--json")
    assert apart.json == whole.json
    assert whole.json[0] == {"at": "2026-01-01T03:00:00+00:00", "note": None}


def test_the_zone_of_the_settings_is_used(cli: Cli) -> None:
    Path("rota.toml").write_text('timezone = "Asia/Tokyo"\n')
    assert cli("next", "@daily", "--json").json[0]["at"].endswith("T00:00:00+09:00")
    assert cli("next", "@daily", "--tz", "UTC", "--json").json[0]["at"].endswith("+00:00")


def test_times_that_are_over_exit_2(cli: Cli) -> None:
    answer = cli("next", "0 0 0 1 1 ? 2020", "--after", "2021-01-01T00:00:00Z")
    assert answer.code == 2
    assert "does not occur after 2021-01-01T00:00:00+00:00; check" in answer.error


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "give a cron expression"),
        (["@daily", "--tz", "Berlin"], "did you mean 'Europe/Berlin'?"),
        (["@daily", "--after", "2026-01-01"], "has no offset"),
        (["@daily", "--count", "0"], "count 0 must be a whole number from 1 to 1000"),
        (["@daily", "--dst", "odd"], "dst 'odd' is unknown"),
    ],
)
def test_wrong_options_exit_2(cli: Cli, args: list[str], message: str) -> None:
    answer = cli("next", *args)
    assert answer.code == 2
    assert message in answer.error
