"""How soon work goes on after a fault, and what waiting costs meanwhile."""

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rota.flow.renew import Renew
from tests.fault.bench import Bench
from tests.fault.campaign import Campaign, until
from tests.fault.notes import read_notes
from tests.fault.zygote import Child
from tests.support.postgres import Cluster

pytestmark = pytest.mark.timeout(240)

RESUME_SECONDS = 2.0
TAKEOVER_SECONDS = 2.0
AWAY_SECONDS = 4.0
MOST_PROCESSOR = 0.20


def processor_seconds(child: Child) -> float:
    """What the process has used so far, by the kernel's count."""
    fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def started_after(campaign: Campaign, moment: float) -> list[float]:
    return [
        note["mono"]
        for note in read_notes(campaign.notes)
        if note["what"] == "start" and note["mono"] > moment
    ]


def in_hand(campaign: Campaign, name: str) -> set[str]:
    """Runs that a process has begun and not ended, and that somebody has to begin again."""
    notes = list(read_notes(campaign.notes))
    begun = {note["run"] for note in notes if note["what"] == "start" and note["by"] == name}
    over = {note["run"] for note in notes if note["what"] == "end" or note.get("doomed")}
    return begun - over


def taken_over(campaign: Campaign, name: str) -> dict[str, float]:
    """When runs were begun by others than this process."""
    return {
        note["run"]: note["mono"]
        for note in read_notes(campaign.notes)
        if note["what"] == "start" and note["by"] != name
    }


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads what Linux counts")
def test_waiting_for_the_server_is_cheap_and_ends_within_two_seconds(durable_bench: Bench) -> None:
    server = durable_bench.server
    assert isinstance(server, Cluster)
    with durable_bench.campaign("postgres", seed=1, lease=30.0) as campaign:
        # The client asks each half second, so that what is measured is the loops.
        child = campaign.start_at(0, environment={"ROTA_TEST_PAUSE": "0.5"})
        campaign.wait_note("start")
        server.stop(immediate=True)
        used, began = processor_seconds(child), time.monotonic()
        campaign.pass_time(AWAY_SECONDS, AWAY_SECONDS)
        share = (processor_seconds(child) - used) / (time.monotonic() - began)
        server.start()
        back = time.monotonic()
        until(lambda: bool(started_after(campaign, back)), "work goes on", 30.0)
        resumed = started_after(campaign, back)[0] - back
        campaign.finish()
    assert share < MOST_PROCESSOR
    assert resumed < RESUME_SECONDS


def test_an_orphan_is_taken_over_within_its_lease_and_two_seconds(sqlite_bench: Bench) -> None:
    with sqlite_bench.campaign("sqlite", seed=1, lease=1.0) as campaign:
        campaign.start(2)
        orphans: set[str] = set()
        while not orphans:
            until(lambda: bool(in_hand(campaign, "p0.1")), "a run that takes long", 30.0)
            frozen = campaign.freeze(0)  # or it would end between our look and its end
            orphans = in_hand(campaign, "p0.1")
            if not orphans:
                campaign.thaw(frozen)
        campaign.kill(0)
        died = time.monotonic()
        orphans = in_hand(campaign, "p0.1")
        until(lambda: set(taken_over(campaign, "p0.1")) >= orphans, "orphans begin again", 30.0)
        taken = taken_over(campaign, "p0.1")
        campaign.finish()
    assert orphans
    assert max(taken[run] for run in orphans) < died + 1.0 + TAKEOVER_SECONDS


class BusyStore:
    """One whose only writer has been at work for a while."""

    def blocked_within(self, seconds: float) -> bool:
        return True


@pytest.mark.parametrize(("asleep", "overdue"), [(0.0, False), (27.0, True)])
def test_a_process_that_slept_does_not_take_its_sleep_for_a_busy_store(
    asleep: float, overdue: bool
) -> None:
    """While the store is busy nobody can rescue; while a process sleeps everybody can."""
    moment = 0.0
    storage: Any = BusyStore()
    renew = Renew(
        storage,
        executions=lambda: (),
        lease=timedelta(seconds=30),
        monotonic=lambda: moment,
    )
    for _ in range(28 - int(asleep)):
        moment += 1.0
        renew.awake()
    moment += asleep
    assert renew.overdue(0.0) is overdue
    renew.awake()  # now it knows, and does not forget it for leases of before
    assert renew.overdue(0.0) is overdue
    assert not renew.overdue(moment)
