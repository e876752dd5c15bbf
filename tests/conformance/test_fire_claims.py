"""A fire that is a claim as well: what is on time begins in the transaction that makes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import timedelta

import pytest

from rota.errors import Unavailable
from rota.flow.claim import Claim
from rota.flow.fire import Fire
from rota.flow.fire import fire as fire_plans
from rota.model.job import Job
from rota.model.run import ClaimedRun, Run
from rota.model.schedule import Schedule
from rota.storage import operations
from rota.storage.operations.claiming import ClaimRequest
from rota.storage.operations.firing import Fired
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
    enqueue,
    fast_paths,
    fire,
    ledger,
    plans,
    put_job,
    put_schedule,
    rescue,
    settle,
    slots,
    together,
)
from tests.support.operations import replace_operation


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is not what makes a look slow here."""
    monkeypatch.setattr(marks, "SLOW_SECONDS", 600.0)


def claimant(
    limit: int = 10, *, jobs: Sequence[str] = ("job",), queues: Sequence[str] = ()
) -> ClaimRequest:
    return ClaimRequest(worker_id="worker", queues=queues, jobs=jobs, limit=limit, lease=LEASE)


def fire_and_claim(store: Store, asks: ClaimRequest) -> Fired:
    planned = plans(store)
    return fire_plans(
        store,
        planned,
        store.read(operations.jobs_named, {one.schedule.job for one in planned}),
        asks,
    )


def fired_run(store: Store, schedule: Schedule) -> Run:
    (run,) = all_runs(store, schedule_id=schedule.id)
    return run


def test_what_a_fire_makes_begins_as_the_claimants(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store)
    clock.advance("10s")
    fired = fire_and_claim(store, claimant())
    run = fired_run(store, schedule)
    assert fired.claimed == (as_claimed(run),)
    assert (run.state, run.attempt, run.worker_id) == ("running", 1, "worker")
    assert run.queued_at == run.claimed_at == run.started_at == clock()
    assert run.lease_until == clock() + LEASE
    assert [row["run_id"] for row in ledger(store, schedule)] == [run.id]
    assert slots(store, f"o/{run.overlap_key}") == [1]
    assert claim(store) == []


def test_it_is_as_if_it_had_been_claimed_a_moment_later(store: Store, clock: VirtualClock) -> None:
    """Every column, while it runs and at its end."""
    put_schedule(store, "one", overlap="allow")
    clock.advance("10s")
    (at_once,) = fire_and_claim(store, claimant()).claimed
    put_schedule(store, "two", overlap="allow", first_run=clock())
    fire(store, plans(store))
    (later,) = claim(store)
    assert columns(store, at_once) == columns(store, later)
    settle(store, at_once)
    settle(store, later)
    assert columns(store, at_once) == columns(store, later)


def columns(store: Store, claimed: ClaimedRun) -> dict[str, object]:
    own = ("seq", "id", "schedule_id", "created_by")
    return {
        name: told
        for name, told in asdict(store.read(operations.get_run, claimed.id)).items()
        if name not in own
    }


def test_a_claimant_that_dies_is_rescued_from(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store)
    clock.advance("10s")
    fire_and_claim(store, claimant())
    clock.advance("31s")
    assert len(rescue(store)) == 1
    run = fired_run(store, schedule)
    assert (run.state, run.attempt, run.lost, run.failures) == ("queued", 1, 1, 0)


def test_an_answer_that_was_lost_is_given_back(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store)
    clock.advance("10s")
    fire_and_claim(store, claimant())
    assert store.write(operations.release_forgotten_runs, "worker", []) == 1
    assert (fired_run(store, schedule).state, fired_run(store, schedule).lost) == ("queued", 0)


# What is not claimed


def pause_queue(store: Store) -> None:
    store.write(operations.pause_queue, "default", None, ME)


def pause_dispatch(store: Store) -> None:
    store.write(operations.set_dispatch, False, None, ME)


@pytest.mark.parametrize("pause", [pause_queue, pause_dispatch])
def test_a_pause_holds_for_it(
    store: Store, clock: VirtualClock, pause: Callable[[Store], None]
) -> None:
    schedule = put_schedule(store)
    store.write(operations.ensure_queues, ["default"])
    pause(store)
    clock.advance("10s")
    fired = fire_and_claim(store, claimant())
    assert (fired.runs, fired.claimed) == (1, ())
    run = fired_run(store, schedule)
    assert (run.state, run.attempt, run.worker_id, run.lease_until) == ("queued", 0, None, None)
    assert run.claimed_at is run.started_at is None


@pytest.mark.parametrize("asks", [claimant(jobs=("other",)), claimant(queues=("side",))])
def test_what_the_worker_does_not_serve_is_left_to_others(
    store: Store, clock: VirtualClock, asks: ClaimRequest
) -> None:
    schedule = put_schedule(store)
    clock.advance("10s")
    assert fire_and_claim(store, asks).claimed == ()
    assert fired_run(store, schedule).state == "queued"


@pytest.mark.parametrize("priority", [0, 5])
def test_nobody_in_line_is_passed(store: Store, clock: VirtualClock, priority: int) -> None:
    first = enqueue(store, priority=priority)
    schedule = put_schedule(store)
    clock.advance("10s")
    fired = fire_and_claim(store, claimant(1))
    taken = [*fired.claimed, *claim(store)]
    assert [run.id for run in taken] == [first, fired_run(store, schedule).id]


def test_a_slot_that_is_taken_is_waited_for(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store, overlap="queue")
    clock.advance("10s")
    fire_and_claim(store, claimant())
    clock.advance("10s")
    assert fire_and_claim(store, claimant()).claimed == ()
    assert [run.state for run in all_runs(store)] == ["running", "held"]
    assert slots(store, f"o/schedule {schedule.id}") == [1]


def test_a_second_slot_is_waited_for(store: Store, clock: VirtualClock) -> None:
    store.write(operations.put_jobs, [Job(name="keyed", concurrency_key="k")])
    enqueue(store, job="keyed", concurrency_key="k")
    (running,) = claim(store, jobs=["keyed"])
    schedule = put_schedule(store, job="keyed")
    clock.advance("10s")
    assert fire_and_claim(store, claimant(jobs=("keyed",))).claimed == ()
    assert fired_run(store, schedule).state == "held"
    settle(store, running)
    store.write(operations.admit, ["c/k"])
    assert [run.schedule_id for run in claim(store, jobs=["keyed"])] == [schedule.id]


def test_what_is_due_later_waits(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store, jitter=timedelta(seconds=5))
    clock.advance("10s")
    (plan,) = plans(store)
    fired = fire_plans(store, [plan], {}, claimant())
    late = plan.runs[0].due_at > clock()
    assert fired_run(store, schedule).state == ("waiting" if late else "running")
    assert bool(fired.claimed) is not late


def test_no_more_is_claimed_than_there_is_room_for(store: Store, clock: VirtualClock) -> None:
    for number in range(3):
        put_schedule(store, f"schedule-{number}")
    clock.advance("10s")
    fired = fire_and_claim(store, claimant(2))
    assert fired.runs == 3
    assert len(fired.claimed) <= 2
    assert len(claim(store)) == 3 - len(fired.claimed)


def test_a_fire_takes_no_look_that_is_slow(store: Store, clock: VirtualClock) -> None:
    """Somebody's snapshot keeps dead entries in the index: claims begin elsewhere then."""
    paths = fast_paths(store)
    if paths is None:
        pytest.skip("only PostgreSQL keeps what a snapshot may see in its indexes")
    put_schedule(store)
    clock.advance("10s")
    for _ in range(marks.SLOW_LOOKS):
        paths._marks.looked([], 2 * marks.SLOW_SECONDS, 0.0, jobs=(), limit=1)
    fired = fire_and_claim(store, claimant())
    assert (fired.runs, fired.claimed) == (1, ())


def test_an_old_plan_claims_nothing(store: Store, clock: VirtualClock) -> None:
    put_schedule(store)
    clock.advance("10s")
    old = plans(store)
    fire_and_claim(store, claimant())
    enqueue(store)
    fired = fire_plans(store, old, {}, claimant())
    assert (fired.runs, fired.claimed) == (0, ())


def test_many_that_fire_and_claim_at_once_begin_each_run_once(
    store: Store, place: Place, clock: VirtualClock
) -> None:
    for number in range(10):
        put_schedule(store, f"schedule-{number}")
    clock.advance("10s")
    stores = [place.open() for _ in range(4)]
    found = together(*[lambda one=one: fire_and_claim(one, claimant()) for one in stores])
    assert sum(fired.runs for fired in found) == 10
    begun = [run.id for fired in found for run in (*fired.claimed, *claim(store))]
    assert len(begun) == len(set(begun)) == 10


def test_a_run_that_the_claimant_does_not_know_stands_in_no_line(
    store: Store, clock: VirtualClock
) -> None:
    schedule = put_schedule(store)
    put_job(store, "other")
    enqueue(store, job="other")
    clock.advance("10s")
    assert len(fire_and_claim(store, claimant()).claimed) == 1
    assert fired_run(store, schedule).state == "running"


def test_what_was_begun_is_told_whatever_becomes_of_the_others(
    store: Store, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fast_paths(store) is None:
        pytest.skip("there all of them are fired in one transaction")
    taken = put_schedule(store, "taken", overlap="skip")
    clock.advance("10s")
    fire(store, plans(store))
    assert len(claim(store)) == 1
    free = put_schedule(store, "free", first_run=clock.after("10s"))
    clock.advance("10s")

    def fail(*asked: object) -> Fired:
        raise Unavailable("the server is away")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "plain", fail)
        fired = fire_and_claim(store, claimant())
    assert [run.schedule_id for run in fired.claimed] == [free.id]
    fire(store, plans(store))  # the next look
    assert [row["outcome"] for row in ledger(store, taken)] == ["fired", "skipped"]


# A process that fires, and its worker


class Crew:
    """A fire loop and a claim loop of one process, in virtual time."""

    def __init__(self, store: Store, clock: VirtualClock, slots: int = 10) -> None:
        self.store, self.clock, self.slots = store, clock, slots
        self.taken: list[ClaimedRun] = []
        self.woken = 0
        self.claim = Claim(
            store,
            "worker",
            queues=(),
            jobs=lambda: ["job"],
            free=lambda: self.slots - len(self.taken),
            held=lambda: [run.seq for run in self.taken],
            take=self.taken.extend,
            take_fired=self.taken.extend,
            lease=LEASE,
        )
        self.fire = Fire(
            store,
            monotonic=lambda: clock().timestamp(),
            fired=self.wake,
            claim=self.claim,
            look_ahead=0.02,
            pace=3600.0,
        )

    def wake(self) -> None:
        self.woken += 1

    def reach_the_instant(self) -> None:
        """The next occurrence is 10 seconds away: planned, and everything but written."""
        self.clock.advance("9.99s")
        self.fire.step()
        self.clock.advance("9ms")
        self.fire.step()
        self.clock.advance("1ms")


@pytest.fixture
def crew(store: Store, clock: VirtualClock) -> Crew:
    return Crew(store, clock)


def test_who_is_on_time_needs_no_claim(store: Store, crew: Crew) -> None:
    schedule = put_schedule(store)
    crew.reach_the_instant()
    crew.fire.step()
    assert [run.id for run in crew.taken] == [fired_run(store, schedule).id]
    assert crew.woken == 0


def test_who_is_late_leaves_it_to_the_claim(store: Store, crew: Crew) -> None:
    put_schedule(store)
    crew.clock.advance("11s")
    crew.fire.step()
    assert (crew.taken, crew.woken) == ([], 1)
    crew.claim.step()
    assert len(crew.taken) == 1


def test_without_a_free_slot_it_is_left_in_line(store: Store, crew: Crew) -> None:
    schedule = put_schedule(store)
    crew.slots = 0
    crew.reach_the_instant()
    crew.fire.step()
    assert fired_run(store, schedule).state == "queued"
    assert (crew.taken, crew.woken) == ([], 1)


def test_while_the_loop_claims_a_fire_goes_alone(
    store: Store, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the loop could give back what the fire has claimed and nobody holds yet."""
    schedule = put_schedule(store)
    crew.reach_the_instant()

    def claim_meanwhile(
        plain: Callable[..., list[ClaimedRun]], *args: object, **options: object
    ) -> list[ClaimedRun]:
        crew.fire.step()
        assert fired_run(store, schedule).state == "queued"
        return plain(*args, **options)

    replace_operation(monkeypatch, store, operations.claim, claim_meanwhile)
    crew.claim.step()
    assert [run.id for run in crew.taken] == [fired_run(store, schedule).id]
    assert crew.woken == 1


def test_a_loop_that_comes_meanwhile_is_woken_afterwards(
    store: Store, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_schedule(store)
    crew.reach_the_instant()

    def fire_meanwhile(plain: Callable[..., Fired], *args: object) -> Fired:
        fired = plain(*args)
        enqueue(store)
        assert crew.claim.step() == crew.claim.interval
        assert (crew.taken, crew.woken) == ([], 0)
        return fired

    replace_operation(monkeypatch, store, operations.fire, fire_meanwhile)
    crew.fire.step()
    assert (len(crew.taken), crew.woken) == (1, 1)
    crew.claim.step()
    assert len(crew.taken) == 2


def test_a_fire_without_an_answer_leaves_nothing_in_nobodys_hands(
    store: Store, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = put_schedule(store)
    crew.reach_the_instant()

    def fire_unheard(plain: Callable[..., Fired], *args: object) -> Fired:
        plain(*args)
        raise Unavailable("the answer was lost")

    with monkeypatch.context() as patch:
        replace_operation(patch, store, operations.fire, fire_unheard)
        with pytest.raises(Unavailable):
            crew.fire.step()
    assert fired_run(store, schedule).state == "running"
    crew.claim.step()
    assert [(run.id, run.attempt) for run in crew.taken] == [(fired_run(store, schedule).id, 2)]


def test_a_claim_in_doubt_comes_before_any_other(store: Store, crew: Crew) -> None:
    schedule = put_schedule(store)
    crew.claim.uncertain = True
    crew.reach_the_instant()
    crew.fire.step()
    assert fired_run(store, schedule).state == "queued"
