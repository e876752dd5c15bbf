"""How soon work goes on after a fault, and what waiting costs meanwhile.

How long a busy machine takes for what it is asked is not what is judged: it is when our loops ask.
"""

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rota.flow.renew import Renew
from tests.fault.bench import Bench
from tests.fault.campaign import Campaign, until
from tests.fault.history import read_rows
from tests.fault.notes import read_notes
from tests.fault.zygote import Child
from tests.support.postgres import Cluster

pytestmark = pytest.mark.timeout(240)

RESUME_SECONDS = 2.0
LOOK_SECONDS = 1.0
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
    over = {note["run"] for note in notes if note["what"] == "end"}
    return begun - over - doomed(campaign)


def doomed(campaign: Campaign) -> set[str]:
    """Runs that their client wants to end; it may say so after others began them."""
    return {note["run"] for note in read_notes(campaign.notes) if note.get("doomed")}


def turns(campaign: Campaign, loop: str, by: str) -> list[dict[str, Any]]:
    return [
        note
        for note in read_notes(campaign.notes)
        if (note["what"], note.get("loop"), note["by"]) == ("turn", loop, by)
    ]


def still_orphans(campaign: Campaign, orphans: set[str]) -> set[str]:
    """Those that nobody but the dead one has begun, and that are still wanted."""
    notes = read_notes(campaign.notes)
    begun = {note["run"] for note in notes if note["what"] == "start" and note["by"] != "p0.1"}
    return orphans - begun - doomed(campaign)


def due_again(campaign: Campaign, orphans: set[str]) -> list[tuple[int, int]]:
    """When each of them was due after it had been lost, and when that was seen. Of those that
    have not failed since: they wait for another reason."""
    found = read_rows(campaign.observed, ("runs", "attempts"))
    runs = [row for row in found["runs"] if row["id"] in orphans and not row["failures"]]
    due = {row["seq"]: row["due_at"] for row in runs}
    return [
        (due[row["run_seq"]], row["finished_at"])
        for row in found["attempts"]
        if row["run_seq"] in due and row["outcome"] == "lost"
    ]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads what Linux counts")
def test_waiting_for_the_server_is_cheap_and_ends_within_two_seconds(durable_bench: Bench) -> None:
    server = durable_bench.server
    assert isinstance(server, Cluster)
    with durable_bench.campaign("postgres", seed=1, lease=30.0) as campaign:
        # The client asks each half second, so that what is measured is the loops.
        told = {"ROTA_TEST_PAUSE": "0.5", "ROTA_TEST_TURNS": "claim fire renew settle"}
        child = campaign.start_at(0, environment=told)
        campaign.wait_note("start")
        server.stop(immediate=True)
        used, began = processor_seconds(child), time.monotonic()
        campaign.pass_time(AWAY_SECONDS, AWAY_SECONDS)
        share = (processor_seconds(child) - used) / (time.monotonic() - began)
        server.start()
        back = time.monotonic()
        until(lambda: bool(started_after(campaign, back)), "work goes on", 30.0)
        failed = {
            loop: [turn for turn in turns(campaign, loop, child.name) if turn["failed"]]
            for loop in told["ROTA_TEST_TURNS"].split()
        }
        campaign.finish()
    assert share < MOST_PROCESSOR
    assert failed["claim"]
    assert max(turn["pause"] for some in failed.values() for turn in some) <= RESUME_SECONDS
    assert not [turn for turn in failed["claim"] if turn["began"] > back], "the server was there"


def test_an_orphan_is_taken_over_within_its_lease_and_two_seconds(file_bench: Bench) -> None:
    told = {"ROTA_TEST_TURNS": "rescue"}
    with file_bench.campaign("sqlite", seed=1, lease=1.0, environment=told) as campaign:
        campaign.start(2)
        orphans: set[str] = set()
        while not orphans:
            until(lambda: bool(in_hand(campaign, "p0.1")), "a run that takes long", 30.0)
            frozen = campaign.freeze(0)  # or it would end between our look and its end
            orphans = in_hand(campaign, "p0.1")
            if not orphans:
                campaign.thaw(frozen)
        campaign.kill(0)
        orphans = in_hand(campaign, "p0.1")
        until(lambda: not still_orphans(campaign, orphans), "orphans begin again", 30.0)
        looks = turns(campaign, "rescue", "p1.2")
        due = due_again(campaign, orphans - doomed(campaign))
        campaign.finish()
    assert orphans
    # Whoever looks for orphans does so each second, and what is found is due at once.
    assert max(look["pause"] for look in looks) <= LOOK_SECONDS
    assert all(due_at <= lost_at for due_at, lost_at in due)


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
    assert renew.runs_out(0.0)  # whoever slept: what has not begun does not begin
    assert renew.overdue(0.0) is overdue
    renew.awake()  # now it knows, and does not forget it for leases of before
    assert renew.overdue(0.0) is overdue
    assert not renew.overdue(moment)
