"""Rows that a client holds for long: only the runs that concern them wait for it.

`rota.cancel_run` and `rota.pause_schedule` work in a caller's transaction, which may stay open for
hours. The engines without such functions have one writer at a time, and nobody to pass over.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from rota.errors import Unavailable
from rota.flow.events import Events
from rota.flow.rescue import Rescue
from rota.flow.settle import HELD_SECONDS, Settler
from rota.model.outcome import Outcome, settle
from rota.model.retry import ONCE
from rota.model.run import ClaimedRun
from rota.storage import operations
from rota.storage.operations.claiming import Renewed
from rota.storage.postgres import connect
from rota.storage.store import Store
from tests.conformance.support import (
    LEASE,
    Place,
    VirtualClock,
    all_runs,
    claim,
    enqueue_many,
    put_job,
    put_schedule,
    states,
    tick,
)

pytestmark = pytest.mark.parametrize("place", ["postgres", "postgres-plain"], indirect=True)

SUCCEEDED, FAILED = Outcome(kind="succeeded"), Outcome(kind="failed", error="no")


@pytest.fixture
def store(place: Place, monkeypatch: pytest.MonkeyPatch) -> Store:
    """One that waits for a lock a tenth of a second, not ten."""
    long, short = f"'{connect.LOCK_TIMEOUT}'", "'100ms'"
    assert long in connect._SESSION
    monkeypatch.setattr(connect, "_SESSION", connect._SESSION.replace(long, short))
    locally = connect._LOCALLY.replace(long.encode(), short.encode())
    monkeypatch.setattr(connect, "_LOCALLY", locally)
    opened = place.open()
    put_job(opened, retry=ONCE)
    return opened


@pytest.fixture
def client(place: Place) -> Iterator[Any]:
    """Somebody whose transaction stays open until the test ends it."""
    connection = place.begin()
    yield connection
    connection.rollback()
    connection.close()


def settler_of(store: Store) -> Settler:
    return Settler(
        store, jobs={}, max_lost=3, events=Events(), termination_hook_of=lambda name: None
    )


def state_of(store: Store, run: ClaimedRun) -> str:
    return states(store, [run.id])[0]


def test_a_run_that_a_client_holds_keeps_its_lease_and_all_others_are_renewed(
    store: Store, client: Any, clock: VirtualClock
) -> None:
    enqueue_many(store, 3)
    first, held, last = claim(store)
    client.execute("SELECT rota.cancel_run(%s)", [held.id])
    clock.advance("10s")
    answers = store.write(
        operations.renew, [(run.seq, run.attempt) for run in (first, held, last)], LEASE
    )
    assert sorted(answers, key=lambda one: one.seq) == [
        Renewed(first.seq, False, False),
        Renewed(held.seq, False, False, renewed=False),
        Renewed(last.seq, False, False),
    ]
    ends = [store.read(operations.get_run, run.id).lease_until for run in (first, held, last)]
    assert ends == [clock() + LEASE, clock() + LEASE - timedelta(seconds=10), clock() + LEASE]
    client.commit()
    assert store.write(operations.renew, [(held.seq, held.attempt)], LEASE) == [
        Renewed(held.seq, True, False)
    ]


def test_one_that_was_lost_is_not_taken_for_one_that_is_held(store: Store, client: Any) -> None:
    enqueue_many(store, 2)
    held, lost = claim(store)
    client.execute("SELECT rota.cancel_run(%s)", [held.id])
    answers = store.write(operations.renew, [(held.seq, 2), (lost.seq, 2)], LEASE)
    assert answers == []


@pytest.mark.parametrize("outcome", [SUCCEEDED, FAILED])
def test_an_outcome_waits_for_a_client_and_the_others_do_not(
    store: Store, client: Any, outcome: Outcome
) -> None:
    enqueue_many(store, 3)
    first, held, last = claim(store)
    client.execute("SELECT rota.cancel_run(%s)", [held.id])
    settler = settler_of(store)
    for run in (first, held, last):
        settler.put(run, outcome)
    with pytest.raises(Unavailable, match="another transaction"):
        settler.step()
    assert settler.step() == HELD_SECONDS
    ended = "succeeded" if outcome is SUCCEEDED else "dead"
    assert [state_of(store, run) for run in (first, held, last)] == [ended, "running", ended]
    assert settler.unwritten() == [(held.seq, held.attempt)]
    assert not settler.flush(0.0)
    client.rollback()
    settler.step()
    assert state_of(store, held) == ended
    assert settler.unwritten() == []


def test_while_one_is_held_those_that_come_later_are_written_at_once(
    store: Store, client: Any
) -> None:
    enqueue_many(store, 2)
    held, later = claim(store)
    client.execute("SELECT rota.cancel_run(%s)", [held.id])
    settler = settler_of(store)
    settler.put(held, FAILED)
    with pytest.raises(Unavailable):
        settler.step()
    settler.step()
    settler.put(later, FAILED)
    assert settler.step() == HELD_SECONDS
    assert state_of(store, later) == "dead"
    client.commit()
    settler.step()
    assert state_of(store, held) == "cancelled"


def test_a_schedule_that_a_client_holds_keeps_only_its_dead_runs_waiting(
    store: Store, client: Any, clock: VirtualClock
) -> None:
    put_schedule(store, "nightly", overlap="allow", on_error="pause")
    put_schedule(store, "other", overlap="allow")
    clock.advance("1h")
    tick(store)
    clock.advance("1h")
    tick(store)
    runs = claim(store)
    nightly = store.read(operations.schedule_named, "nightly").id
    dies, goes_well = [run for run in runs if run.schedule_id == nightly]
    others = [run for run in runs if run.schedule_id != nightly]
    client.execute("SELECT rota.pause_schedule('nightly', 'look into it')")
    settler = settler_of(store)
    settler.put(dies, FAILED)
    with pytest.raises(Unavailable):
        settler.step()
    settler.put(goes_well, SUCCEEDED)
    for run in others:
        settler.put(run, FAILED)
    assert settler.step() == HELD_SECONDS
    assert [state_of(store, run) for run in others] == ["dead"] * len(others)
    assert [state_of(store, goes_well), state_of(store, dies)] == ["succeeded", "running"]
    client.commit()
    settler.step()
    assert state_of(store, dies) == "dead"


def test_the_end_that_a_delay_waits_for_is_held_with_its_schedule(
    store: Store, client: Any, clock: VirtualClock
) -> None:
    put_schedule(store, "delay", kind="every", expr="1h", anchor="delay")
    enqueue_many(store, 1)
    clock.advance("1h")
    tick(store)
    runs = claim(store)
    client.execute("SELECT rota.pause_schedule('delay', 'look into it')")
    settler = settler_of(store)
    for run in runs:
        settler.put(run, SUCCEEDED)
    with pytest.raises(Unavailable):
        settler.step()
    assert settler.step() == HELD_SECONDS
    assert sorted(state_of(store, run) for run in runs) == ["running", "succeeded"]
    client.rollback()
    settler.step()
    assert store.read(operations.schedule_named, "delay").next_fire_at == clock() + timedelta(
        hours=1
    )


def test_progress_of_a_run_that_a_client_holds_is_left_out(store: Store, client: Any) -> None:
    enqueue_many(store, 2)
    held, free = claim(store)
    client.execute("SELECT rota.cancel_run(%s)", [held.id])
    for run in (held, free):
        store.write(operations.set_progress, run.seq, run.attempt, "[1, 2]")
    assert [store.read(operations.get_run, run.id).progress for run in (held, free)] == [
        None,
        "[1, 2]",
    ]


def test_behind_a_pooler_an_outcome_waits_for_a_client_no_longer(
    store: Store, place: Place, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue_many(store, 2)
    held, free = claim(store)
    client.execute("SELECT rota.cancel_run(%s)", [held.id])
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", 1)  # as a pooler answers
    pooled = place.open()
    pooled.now()
    settler = settler_of(pooled)
    for run in (held, free):
        settler.put(run, SUCCEEDED)
    with pytest.raises(Unavailable, match="another transaction"):
        settler.step()
    assert settler.step() == HELD_SECONDS
    assert [state_of(store, run) for run in (held, free)] == ["running", "succeeded"]


def test_a_batch_of_held_runs_keeps_rescue_from_no_other(
    store: Store, client: Any, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.flow.rescue.BATCH", 2)
    enqueue_many(store, 5)
    *held, orphan = claim(store)
    for run in held:
        client.execute("SELECT rota.cancel_run(%s)", [run.id])
    clock.advance("1h")
    told: list[str] = []
    rescue = Rescue(store, settler_of(store), rescued=lambda: told.append("rescued"))
    pauses = [rescue.step() for _ in range(3)]
    assert state_of(store, orphan) == "queued"
    assert (pauses, told) == ([0.0, 0.0, 1.0], ["rescued"])
    # From the beginning: what is held is looked at again, without haste in the end.
    assert [rescue.step() for _ in range(3)] == [0.0, 0.0, 1.0]
    client.commit()
    while rescue.step() == 0.0:
        pass
    assert {state_of(store, run) for run in held} == {"cancelled"}


def test_rescue_passes_over_what_a_client_holds(
    store: Store, client: Any, clock: VirtualClock
) -> None:
    enqueue_many(store, 3)
    runs = claim(store)
    clock.advance("1h")
    client.execute("SELECT rota.cancel_run(%s)", [runs[1].id])
    rescue = Rescue(store, settler_of(store), rescued=lambda: None)
    rescue.step()
    assert [state_of(store, run) for run in runs] == ["queued", "running", "queued"]
    client.commit()
    rescue.step()
    assert state_of(store, runs[1]) == "cancelled"


def test_nobody_passes_a_run_that_somebody_else_is_promoting(
    store: Store, client: Any, clock: VirtualClock
) -> None:
    """A process that promotes was stopped, or its network was, before it came to the slot."""
    put_schedule(store, overlap="queue", spread=timedelta(seconds=9))
    clock.advance("10s")
    tick(store)
    clock.advance("10s")
    store.write(operations.promote, 10)
    (owner,) = claim(store)
    tick(store)
    clock.advance("10s")
    tick(store)
    store.write(operations.settle, [settle(owner, SUCCEEDED, retry=ONCE, max_lost=3)])
    clock.advance("10s")
    first, second = (run for run in all_runs(store) if run.state == "waiting")
    client.execute("SELECT 1 FROM rota_data.runs WHERE seq = %s FOR UPDATE", [first.seq])
    store.write(operations.promote, 10)
    assert states(store, [first.id, second.id]) == ["waiting", "held"]
    client.commit()
    store.write(operations.promote, 10)
    assert states(store, [first.id, second.id]) == ["queued", "held"]


def test_the_head_of_a_line_that_another_transaction_holds_is_not_passed(
    store: Store, client: Any
) -> None:
    """As a cancel does that is not committed."""
    owner, *line = enqueue_many(store, 3, concurrency_key="c")
    head = store.read(operations.get_run, line[0])
    client.execute("SELECT 1 FROM rota_data.runs WHERE seq = %s FOR UPDATE", [head.seq])
    (run,) = claim(store)
    assert run.id == owner
    store.write(operations.settle, [settle(run, FAILED, retry=ONCE, max_lost=3)])
    assert states(store, line) == ["held", "held"]
    client.rollback()
    store.write(operations.admit, ["c/c"])
    assert states(store, line) == ["queued", "held"]
