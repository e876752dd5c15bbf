"""Counters: exact, whatever threads count and however often somebody looks."""

from __future__ import annotations

import threading
from typing import Any

import msgspec

from rota.flow.counters import OTHER, RUN_SECONDS, Counters, Counts, since, together
from rota.model.limits import METRIC_JOBS
from rota.model.outcome import Outcome, Settlement, settle
from rota.model.retry import ONCE
from rota.model.run import ClaimedRun

BLANK: dict[str, Any] = dict.fromkeys(ClaimedRun.__struct_fields__)


def ended(seq: int, job: str = "job", kind: str = "succeeded", ran: float = 0.02) -> Settlement:
    run = ClaimedRun(**{**BLANK, "seq": seq, "job": job, "failures": 0, "lost": 0, "attempt": 1})
    return settle(run, Outcome(kind=kind), retry=ONCE, max_lost=3, ran_seconds=ran)


def states(*settlements: Settlement) -> dict[int, str]:
    return {one.run.seq: one.state for one in settlements}


def test_runs_are_counted_by_job_and_the_state_they_ended_in() -> None:
    counters = Counters()
    batch = [ended(1), ended(2), ended(3, kind="failed"), ended(4, job="other-job")]
    counters.settled(batch, states(*batch))
    counters.cancelled("job")
    assert sorted(counters.counts().runs) == [
        ("job", "cancelled", 1), ("job", "dead", 1), ("job", "succeeded", 2),
        ("other-job", "succeeded", 1),
    ]  # fmt: skip


def test_what_was_settled_elsewhere_or_goes_on_is_not_an_end() -> None:
    counters = Counters()
    goes_on = ended(2, kind="snoozed")
    counters.settled([ended(1), goes_on], states(goes_on))
    counts = counters.counts()
    assert counts.runs == []
    assert sum(counts.seconds.counts) == 1  # it took its time all the same


def test_durations_fall_between_their_bounds() -> None:
    counters = Counters()
    batch = [ended(seq, ran=ran) for seq, ran in enumerate((0.005, 0.006, 1e6))]
    counters.settled(batch, states(*batch))
    counts = counters.counts().seconds.counts
    assert (counts[0], counts[1], counts[-1], sum(counts)) == (1, 1, 1, 3)
    assert len(counts) == len(RUN_SECONDS) + 1


def test_a_batch_that_succeeded_counts_as_its_runs_do_one_by_one() -> None:
    one_by_one, together_ = Counters(), Counters()
    batch = [ended(seq, job=f"job-{seq % 3}", ran=0.001 * seq * seq) for seq in range(50)]
    one_by_one.settled(batch, states(*batch))
    together_.succeeded(batch)
    ours, theirs = together_.counts(), one_by_one.counts()
    assert sorted(ours.runs) == sorted(theirs.runs)
    assert ours.seconds.counts == theirs.seconds.counts
    assert round(ours.seconds.total, 9) == round(theirs.seconds.total, 9)


def test_a_start_is_counted_once_from_any_thread_and_looking_counts_nothing() -> None:
    counters, looks = Counters(), []

    def begin() -> None:
        for _ in range(2_000):
            counters.begun()
            if threading.current_thread().name == "looks":
                looks.append(counters.counts().started)

    threads = [threading.Thread(target=begin) for _ in range(4)]
    threads.append(threading.Thread(target=begin, name="looks"))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counters.counts().started == counters.counts().started == 10_000
    assert looks == sorted(looks)


def test_names_of_jobs_are_bounded() -> None:
    counters = Counters()
    batch = [ended(seq, job=f"job-{seq}") for seq in range(METRIC_JOBS + 50)]
    counters.settled(batch, states(*batch))
    runs = {job: count for job, _, count in counters.counts().runs}
    assert len(runs) == METRIC_JOBS + 1
    assert runs[OTHER] == 50


def test_what_other_processes_counted_is_added_once() -> None:
    theirs, ours = Counters(), Counters()
    told = theirs.counts()
    for seq in range(3):
        one = ended(seq)
        theirs.begun()
        theirs.settled([one], states(one))
        theirs.fired({"fired": 2}, [0.1, 0.2])
        now = theirs.counts()
        line = msgspec.json.encode(since(now, told))
        told = now
        ours.add(msgspec.json.decode(line, type=Counts))
    assert ours.counts() == theirs.counts() == together(Counts(), theirs.counts())
    assert since(now, now) == Counts()
