"""Claim: the next runs for a worker, in order, each handed out once."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from rota.flow import claim as claiming
from rota.model.run import ClaimedRun
from rota.storage import operations
from rota.storage.postgres import marks
from rota.storage.store import Store
from tests.conformance.support import (
    LEASE,
    ME,
    Place,
    VirtualClock,
    all_runs,
    as_claimed,
    claim,
    claim_one,
    enqueue,
    enqueue_many,
    fast_paths,
    new_run,
    put_job,
    put_schedule,
    settle,
    states,
    tick,
    together,
)


def ids(runs: list[ClaimedRun]) -> list[str]:
    return [run.id for run in runs]


def test_a_claim_starts_an_attempt_under_a_lease(store: Store, clock: VirtualClock) -> None:
    run_id = enqueue(store)
    clock.advance("1s")
    claimed = claim_one(store)
    run = store.read(operations.get_run, run_id)
    assert (run.state, run.attempt, run.worker_id) == ("running", 1, "worker")
    assert run.claimed_at == run.started_at == clock()
    assert run.lease_until == clock() + LEASE
    assert claimed == as_claimed(run)


def test_a_claim_tells_what_execution_needs(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store)
    clock.advance("30s")
    tick(store)
    run = claim_one(store)
    assert (run.schedule_id, run.occurrence) == (schedule.id, clock() - timedelta(seconds=20))
    assert (run.missed_count, run.overlap_key) == (3, f"schedule {schedule.id}")


def test_a_claim_gives_each_attempt_the_next_number(store: Store, clock: VirtualClock) -> None:
    enqueue(store)
    for number in (1, 2, 3):
        run = claim_one(store)
        assert run.attempt == number
        settle(store, run, "released")


# Order


def test_higher_priority_comes_first_then_due_then_seq(store: Store, clock: VirtualClock) -> None:
    early, late = clock() - timedelta(seconds=9), clock() - timedelta(seconds=1)
    wanted = [
        (3, enqueue(store, priority=0, due_at=late)),
        (4, enqueue(store, priority=0, due_at=late)),
        (2, enqueue(store, priority=0, due_at=early)),
        (5, enqueue(store, priority=-1, due_at=early)),
        (1, enqueue(store, priority=9, due_at=late)),
    ]
    assert ids(claim(store)) == [run_id for _, run_id in sorted(wanted)]


def test_a_claim_is_bounded_and_the_next_goes_on(store: Store) -> None:
    made = enqueue_many(store, 5)
    assert ids(claim(store, 2)) == made[:2]
    assert ids(claim(store, 2)) == made[2:4]
    assert ids(claim(store, 2)) == made[4:]
    assert claim(store, 2) == []


def test_the_order_holds_across_queues(store: Store) -> None:
    store.write(operations.ensure_queues, ["a", "b"])
    low = enqueue(store, queue="a")
    high = enqueue(store, queue="b", priority=1)
    last = enqueue(store, queue="b")
    assert ids(claim(store, 2)) == [high, low]
    assert ids(claim(store, 2)) == [last]


# Which runs


def test_a_worker_claims_from_its_queues_only(store: Store) -> None:
    store.write(operations.ensure_queues, ["a", "b"])
    in_a, in_b, plain = (enqueue(store, queue=queue) for queue in ("a", "b", "default"))
    assert ids(claim(store, queues=["b", "no-such-queue"])) == [in_b]
    assert ids(claim(store, queues=["a"])) == [in_a]
    assert ids(claim(store)) == [plain]


def test_runs_of_unknown_jobs_wait(store: Store) -> None:
    put_job(store, "other")
    strange, mine = enqueue(store, job="other", priority=9), enqueue(store)
    assert claim(store, jobs=[]) == []
    assert ids(claim(store)) == [mine]
    assert states(store, [strange]) == ["queued"]
    assert ids(claim(store, jobs=["job", "other"])) == [strange]


def test_only_queued_runs_are_claimed(store: Store) -> None:
    later = enqueue(store, delay=timedelta(seconds=1))
    first, held, paused = enqueue_many(store, 3, concurrency_key="c")
    store.write(operations.pause_run, paused, None, ME)
    cancelled = enqueue(store)
    store.write(operations.cancel_run, cancelled, None, ME)
    assert ids(claim(store)) == [first]
    assert states(store, [later, held, paused]) == ["waiting", "held", "paused"]


def test_a_paused_queue_gives_nothing_out(store: Store) -> None:
    store.write(operations.ensure_queues, ["other"])
    run_id, other = enqueue(store), enqueue(store, queue="other")
    store.write(operations.pause_queue, "default", "maintenance", ME)
    assert ids(claim(store)) == [other]
    assert claim(store, queues=["default"]) == []
    store.write(operations.resume_queue, "default", ME)
    assert ids(claim(store)) == [run_id]


def test_paused_dispatch_gives_nothing_out(store: Store) -> None:
    run_id = enqueue(store)
    store.write(operations.set_dispatch, False, "deploy", ME)
    assert claim(store) == []
    store.write(operations.set_dispatch, True, None, ME)
    assert ids(claim(store)) == [run_id]


# Once


def test_a_run_is_never_handed_out_twice(store: Store, place: Place) -> None:
    made = enqueue_many(store, 200)
    stores = [place.open() for _ in range(2)]

    def work(number: int) -> list[ClaimedRun]:
        mine: list[ClaimedRun] = []
        # A claim may come back empty while others hold the rows it looked at: ask on.
        while store.read(operations.overview)["runs"].get("queued"):
            mine += claim(stores[number % 2], 7, worker=f"worker-{number}")
        return mine

    answers = together(*[lambda number=number: work(number) for number in range(8)])
    got = [run for answer in answers for run in answer]
    assert sorted(ids(got)) == sorted(made)
    assert {run.attempt for run in got} == {1}
    owners = {run.id: f"worker-{number}" for number, answer in enumerate(answers) for run in answer}
    assert {run.id: run.worker_id for run in all_runs(store)} == owners


def test_runs_of_a_lost_answer_are_given_back(store: Store) -> None:
    first, second = enqueue_many(store, 2)
    (known,) = claim(store, 1)
    claim(store, 1)  # its answer never arrived
    other = enqueue(store)
    claim(store, 1, worker="another")
    assert store.write(operations.release_forgotten_runs, "worker", [known.seq]) == 1
    assert store.write(operations.release_forgotten_runs, "worker", [known.seq]) == 0
    assert states(store, [first, second, other]) == ["running", "queued", "running"]
    again = claim_one(store)
    assert (again.id, again.attempt, again.lost, again.failures) == (second, 2, 0, 0)


def test_large_arguments_are_claimed_in_smaller_numbers(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claiming, "CLAIM_BYTES", 10_000)
    store.write(
        operations.enqueue, [new_run(args=f'{{"text":"{"x" * 3_000}"}}') for _ in range(20)]
    )
    enqueue_many(store, 20)
    taken: list[list[ClaimedRun]] = []
    worker = claiming.Claim(
        store,
        "worker",
        queues=(),
        jobs=lambda: ["job"],
        free=lambda: 10,
        held=list,
        take=taken.append,
        take_fired=taken.append,
        lease=LEASE,
    )
    while worker.step() == 0.0:
        pass
    # The first one knows nothing yet. The fifth has one large one, the last could take ten again.
    assert [len(runs) for runs in taken] == [10, 3, 3, 3, 3, 9, 9]


# Marks: a claim that begins where the last one ended


@pytest.fixture
def marked(store: Store) -> Store:
    marks_of(store)._slow_looks, marks_of(store)._looked_at = marks.SLOW_LOOKS, float("inf")
    marks_of(store)._jobs = ["job"]
    return store


def marks_of(store: Store) -> marks.Marks:
    paths = fast_paths(store)
    if paths is None:
        pytest.skip("only PostgreSQL keeps what an open snapshot may still see")
    return paths._marks


def test_a_marked_claim_takes_the_same_runs_in_the_same_order(
    marked: Store, clock: VirtualClock
) -> None:
    chance = random.Random(1)
    for _ in range(12):
        for _ in range(chance.randrange(8)):
            options = {"queue": chance.choice("abc"), "priority": chance.choice((-7, 0, 0, 5, 6))}
            marked.write(operations.ensure_queues, [options["queue"]])
            enqueue(marked, **options)
        clock.advance("1s")
        waiting = [run for run in all_runs(marked) if run.state == "queued"]
        waiting.sort(key=lambda run: (-run.priority, run.due_at, run.seq))
        assert ids(claim(marked, 5)) == [run.id for run in waiting[:5]]


def test_a_run_before_the_mark_is_found_by_the_next_look_from_the_head(
    marked: Store, clock: VirtualClock
) -> None:
    early = enqueue(marked)
    clock.advance("10s")
    enqueue(marked)
    run, _ = claim(marked)
    settle(marked, run, "released")
    assert claim(marked) == []
    marks_of(marked)._looked_at = float("-inf")
    assert ids(claim(marked)) == [early]


def test_runs_of_jobs_that_we_do_not_know_are_passed_by_once(
    store: Store, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = marks_of(store)
    put_job(store, "other")
    for priority in (0, 5):
        enqueue_many(store, 20, job="other", priority=priority)
    clock.advance("1s")
    released = enqueue(store, priority=5)
    monkeypatch.setattr(marks, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(marks, "LONG_SECONDS", 0.0)
    monkeypatch.setattr(marks, "LOOK_SECONDS", 1_000.0)
    (run,) = claim(store)
    clock.advance("10s")
    for _ in range(marks.SLOW_LOOKS - 1):
        assert claim(store) == []
    settle(store, run, "released")
    later = [enqueue(store, priority=priority) for priority in (0, 3, 5)]
    # Of the line of 5 only what came after the look, of that of 3 all: nothing was in it.
    assert ids(claim(store)) == later[::-1]
    assert kept._marks["default"].keys() == {0, 3, 5}
    assert claim(store) == []
    # Another job is known: now all has to be looked at again.
    assert len(claim(store, 100, jobs=["job", "other"])) == 41
    assert states(store, [released]) == ["running"]
