"""Which clock the hours are on: of a schedule its own zone's, else this machine's."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

import rota
from rota.cli.times import when, zone_name, zone_of
from rota.cli.up_screen import describe, say_screen
from rota.flow.control import Control
from rota.flow.fire import Fire
from rota.model.job import Job
from rota.model.schedule import WAITING_FOR_RUN, Schedule
from rota.storage import operations
from rota.storage.store import open_store
from rota.testing import Clock
from tests.conformance.support import put_schedule
from tests.surface.conftest import Cli

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
THREE = re.compile(r"\((?:\d{4}-\d\d-\d\d )?03:00:00 CES?T\)")
Machine = Callable[[str], None]


@pytest.fixture
def machine() -> Iterator[Machine]:
    """Sets the zone of this machine, for as long as the test runs."""
    before = os.environ.get("TZ")

    def put(zone: str | None) -> None:
        os.environ.pop("TZ", None)
        if zone is not None:
            os.environ["TZ"] = zone
        time.tzset()

    yield put
    put(before)


@pytest.mark.parametrize(
    ("here", "zone", "told"),
    [
        ("UTC", None, "in 1 h (13:00:00)"),
        ("UTC", BERLIN, "in 1 h (15:00:00 CEST)"),
        ("UTC", ZoneInfo("Asia/Kathmandu"), "in 1 h (18:45:00 +0545)"),
        ("Europe/Berlin", BERLIN, "in 1 h (15:00:00)"),
        ("Europe/Paris", BERLIN, "in 1 h (15:00:00)"),  # the same hour: nobody can misread it
        ("Asia/Tokyo", BERLIN, "in 1 h (15:00:00 CEST)"),
        ("Asia/Tokyo", None, "in 1 h (22:00:00)"),
    ],
)
def test_another_zone_is_named(
    machine: Machine, here: str, zone: ZoneInfo | None, told: str
) -> None:
    machine(here)
    assert when(NOON + timedelta(hours=1), NOON, zone) == told


def test_a_day_is_one_of_the_zone(machine: Machine) -> None:
    machine("UTC")
    late = NOON + timedelta(hours=11)
    assert when(late, NOON, BERLIN) == "in 11 h (2026-07-02 01:00:00 CEST)"
    assert when(late, NOON) == "in 11 h (23:00:00)"


def test_a_clock_that_will_be_changed_by_then_is_named(machine: Machine) -> None:
    machine("Europe/Berlin")
    assert zone_name(NOON) == "CEST"
    assert when(NOON + timedelta(days=150), NOON) == "in 150 d (2026-11-28 13:00:00 CET)"


def test_where_no_heading_has_a_zone_the_hour_has_one(machine: Machine) -> None:
    machine("Europe/Berlin")
    assert when(NOON, NOON, named=True) == "now (14:00:00 CEST)"
    assert when(WAITING_FOR_RUN, NOON, BERLIN, named=True) == "after its run ends"
    assert (zone_name(NOON), zone_name(NOON, BERLIN)) == ("CEST", "Europe/Berlin")


def test_only_a_cron_has_a_clock() -> None:
    nightly = Schedule(
        name="nightly", job="nightly", kind="cron", expr="0 3 * * *", timezone="Europe/Berlin"
    )
    assert zone_of(nightly) == BERLIN
    assert zone_of(replace(nightly, kind="every", expr="1h")) is None
    fields = {name: getattr(nightly, name) for name in Schedule.__dataclass_fields__}
    assert (
        zone_of(Schedule.from_unreadable_row({**fields, "timezone": "Nowhere"}, "no such zone"))
        is None
    )


@pytest.mark.parametrize(
    "command",
    [
        ("schedules",),
        ("show", "nightly"),
        ("schedule", "nightly", "--priority", "3"),
        ("resume", "nightly"),
    ],
)
def test_commands_tell_the_hour_of_the_schedule(
    cli: Cli, store: Control, machine: Machine, command: tuple[str, ...]
) -> None:
    machine("UTC")
    if command[0] == "resume":
        store.pause("nightly")
    answer = cli(*command)
    assert answer.code == 0, answer.err
    assert THREE.search(answer.out), answer.out
    machine("Europe/Berlin")
    assert "03:00:00" in cli("schedules").out


def test_what_it_did_is_on_its_clock_too(cli: Cli, machine: Machine) -> None:
    machine("UTC")
    clock = Clock(datetime.now(UTC) - timedelta(days=3))
    store = open_store("sqlite:///rota.db", clock=clock)
    store.migrate()
    store.write(operations.put_jobs, [Job(name="nightly", executor="python")])
    daily = {"kind": "cron", "expr": "0 3 * * *", "timezone": "Asia/Tokyo"}
    put_schedule(store, "nightly", job="nightly", **daily)
    clock.advance("1d")
    Fire(store, monotonic=clock.monotonic, fired=lambda: None).step()
    store.close()
    told = cli("show", "nightly").out
    heads = [line for line in told.splitlines() if "(Asia/Tokyo)" in line]
    assert len(heads) == 3, "next times, occurrences and runs"
    assert len(re.findall(r"03:00:00 JST\)", told)) == 5 + 3, "and the last one that fired"
    assert "18:00:00" not in told


def test_the_first_screen_tells_the_hour_of_the_schedule(
    cli: Cli, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine("UTC")
    app = rota.Rota()

    @app.job(schedule="0 3 * * *", timezone="Europe/Berlin")
    def nightly() -> None:
        pass

    @app.job(every="1h", anchor="delay", first_run="2020-01-01T00:00:00Z")
    def often() -> None:
        pass

    app.load()
    told = describe(app, None, ["worker"])
    say_screen(app, told, None)
    shown = capsys.readouterr().out
    (line,) = [one for one in shown.splitlines() if "0 3 * * *" in one]
    assert THREE.search(line), line
    assert "UTC" not in line
    assert [one["next_fire_at"].utcoffset() for one in told["schedules"]] == [timedelta(0)] * 2
    app.close()
