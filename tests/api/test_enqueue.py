"""Enqueue: the ways to ask for runs, and what each option does to them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

import rota
from tests.api.support import PATIENCE, Driven, Gate, Watch, wait_until

pytestmark = pytest.mark.anyio


def test_a_decorated_function_stays_callable(app: rota.Rota) -> None:
    @app.job
    def add(a: int, b: int = 1) -> int:
        """Add two numbers.

        In full.
        """
        return a + b

    assert add(2) == 3
    assert add(2, b=5) == 7
    assert add.name == "add"
    assert add.__name__ == "add"
    assert repr(add) == "<job add>"
    assert add.job.description == "Add two numbers."


async def test_a_decorated_coroutine_stays_one(app: rota.Rota) -> None:
    @app.job()
    async def double(n: int) -> int:
        return 2 * n

    assert await double(4) == 8


@pytest.mark.each_engine
def test_enqueue_runs_it_once_with_its_arguments(app: rota.Rota, watch: Watch) -> None:
    seen: list[Any] = []

    @app.job()
    def note(ctx: rota.Context, text: str, n: int = 7) -> str:
        seen.append((text, n, ctx.args))
        return text * 2

    app.start()
    made = note.enqueue(text="hi")
    run = watch.end(made.id)
    assert made.created
    assert (run.state, run.result, run.attempt) == ("succeeded", '"hihi"', 1)
    assert seen == [("hi", 7, {"text": "hi"})]


async def test_aenqueue_runs_it_too(app: rota.Rota, watch: Watch) -> None:
    @app.job()
    async def note(text: str) -> str:
        return text

    app.start()
    one = await note.aenqueue(text="a", priority=3)
    many = await note.aenqueue_many([{"text": "b"}, {"text": "c"}], priority=5)
    ends = [watch.end(made.id) for made in (one, *many)]
    assert [run.result for run in ends] == ['"a"', '"b"', '"c"']
    assert [run.priority for run in ends] == [3, 5, 5]


def test_enqueue_many_is_all_in_order(driven: Driven) -> None:
    @driven.app.job()
    def note(n: int) -> int:
        return n

    made = note.enqueue_many([{"n": n} for n in range(20)])
    assert len({one.id for one in made}) == 20
    worked = driven.drain()
    assert [run.id for run in worked] == [one.id for one in made]
    assert [run.result for run in worked] == [str(n) for n in range(20)]


def test_the_ids_of_one_call_rise(driven: Driven) -> None:
    @driven.app.job()
    def note(n: int) -> None: ...

    ids = [made.id for made in note.enqueue_many([{"n": n} for n in range(20)])]
    assert ids == sorted(ids)
    assert {UUID(id).version for id in ids} == {7}


@pytest.mark.each_engine
def test_enqueue_many_is_all_or_none(driven: Driven) -> None:
    @driven.app.job()
    def note(n: int) -> None: ...

    with pytest.raises(rota.BadArguments, match="'n' must be integer, not str"):
        note.enqueue_many([{"n": 1}, {"n": "two"}, {"n": 3}])
    assert driven.app.runs("note") == []
    assert note.enqueue_many([]) == []


def test_a_job_of_another_process_is_enqueued_by_name(make_app: Callable[..., rota.Rota]) -> None:
    worker, client = make_app(), make_app()

    @worker.job()
    def note(text: str) -> str:
        return text

    worker.start()
    watch = Watch(worker)
    run = watch.end(client.enqueue("note", {"text": "far"}).id)
    assert run.result == '"far"'
    with pytest.raises(rota.BadArguments, match="'text' is missing"):
        client.enqueue("note")


# When


def test_delay_lets_a_run_wait(driven: Driven) -> None:
    @driven.app.job()
    def note() -> None: ...

    made = note.enqueue(delay="10m")
    assert driven.drain() == []
    assert driven.store.run(made.id).state == "waiting"
    assert driven.store.run(made.id).due_at == driven.clock.now + timedelta(minutes=10)
    driven.advance("9 minutes")
    assert driven.states(made.id) == ["waiting"]
    driven.advance("1 minute")
    assert driven.states(made.id) == ["succeeded"]


@pytest.mark.parametrize("ahead", [timedelta(hours=2), timedelta(0), timedelta(hours=-2)])
def test_at_is_the_instant_it_is_due(driven: Driven, ahead: timedelta) -> None:
    @driven.app.job()
    def note() -> None: ...

    moment = driven.clock.now + ahead
    made = note.enqueue(at=moment.astimezone().isoformat())
    assert driven.store.run(made.id).due_at == moment
    assert len(driven.drain()) == (ahead <= timedelta(0))
    driven.advance("2 hours")
    assert driven.states(made.id) == ["succeeded"]


def test_a_short_delay_is_kept_by_a_running_app(app: rota.Rota, watch: Watch) -> None:
    @app.job()
    def note() -> None: ...

    app.start()
    begun = time.monotonic()
    run = watch.end(note.enqueue(delay="300ms").id)
    assert time.monotonic() - begun >= 0.3
    assert run.started_at is not None
    assert run.started_at >= run.due_at


# Once per key


def test_a_key_makes_one_run(driven: Driven) -> None:
    @driven.app.job()
    def note(n: int) -> int:
        return n

    @driven.app.job()
    def other(n: int) -> None: ...

    first = note.enqueue(n=1, key="order 7")
    again = note.enqueue(n=2, key="order 7")
    assert (first.created, again.created, again.id) == (True, False, first.id)
    driven.drain()
    later = note.enqueue(n=3, key="order 7")
    assert (later.created, later.id) == (False, first.id)
    assert [run.result for run in driven.app.runs("note")] == ["1"]
    assert note.enqueue(n=4, key="order 8").created
    assert other.enqueue(n=5, key="order 7").created


def test_a_key_is_free_again_after_its_time(driven: Driven) -> None:
    @driven.app.job()
    def note() -> None: ...

    first = note.enqueue(key="hourly", key_ttl="1h")
    driven.advance("59 minutes")
    assert note.enqueue(key="hourly", key_ttl="1h").id == first.id
    driven.advance("1 minute")
    second = note.enqueue(key="hourly", key_ttl="1h")
    assert second.created
    assert second.id != first.id


def test_a_key_is_free_again_when_its_run_is_deleted(driven: Driven) -> None:
    @driven.app.job()
    def note() -> None: ...

    first = note.enqueue(key="k")
    driven.control.delete(first.id)
    assert note.enqueue(key="k").created


@pytest.mark.each_engine
def test_many_threads_with_one_key_make_one_run(app: rota.Rota) -> None:
    @app.job()
    def note() -> None: ...

    app.load()
    barrier, answers = threading.Barrier(8), []

    def enqueue() -> None:
        barrier.wait()
        answers.append(note.enqueue(key="same"))

    threads = [threading.Thread(target=enqueue) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len({made.id for made in answers}) == 1
    assert sorted(made.created for made in answers) == [False] * 7 + [True]


# In which order, and how many at once


def test_a_higher_priority_runs_first(driven: Driven) -> None:
    order: list[str] = []

    @driven.app.job(priority=5)
    def note(name: str) -> None:
        order.append(name)

    note.enqueue(name="low", priority=-1)
    note.enqueue(name="own")
    note.enqueue(name="high", priority=9)
    note.enqueue(name="own too")
    driven.drain()
    assert order == ["high", "own", "own too", "low"]


def test_a_queue_of_its_own_exists_from_the_first_run_on(driven: Driven) -> None:
    @driven.app.job()
    def note() -> None: ...

    made = driven.app.enqueue("note", queue="fresh/queue")
    assert "fresh/queue" in [queue["name"] for queue in driven.control.queues()]
    driven.drain()
    assert driven.states(made.id) == ["succeeded"]


def test_other_options_belong_to_the_run(driven: Driven) -> None:
    @driven.app.job(max_attempts=5)
    def note() -> None: ...

    made = driven.app.enqueue(
        "note", max_attempts=2, timeout="90s", correlation_id="request 5", queue="other"
    )
    run = driven.store.run(made.id)
    assert (run.max_attempts, run.timeout) == (2, timedelta(seconds=90))
    assert (run.correlation_id, run.queue) == ("request 5", "other")
    assert run.created_by


class Running:
    """Counts how many handlers of each tenant run at the same time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    def enter(self, tenant: str, *, company: int) -> None:
        """Comes in, and waits until so many of its tenant were in at once."""
        with self._changed:
            self.now[tenant] += 1
            self.most[tenant] = max(self.most[tenant], self.now[tenant])
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.most[tenant] >= company, timeout=PATIENCE)

    def leave(self, tenant: str) -> None:
        with self._changed:
            self.now[tenant] -= 1


@pytest.mark.parametrize("limit", [1, 2])
def test_no_more_runs_of_a_key_at_once_than_its_limit(
    make_app: Callable[..., rota.Rota], limit: int
) -> None:
    running = Running()

    def define(app: rota.Rota) -> tuple[Any, Watch]:
        @app.job()
        def note(ctx: rota.Context, tenant: str) -> None:
            running.enter(tenant, company=limit)
            ctx.wait(0.01)  # long enough for one too many to come in
            running.leave(tenant)

        return note, Watch(app)

    # Two workers on one store: the limit holds across them.
    (note, one), (_, other) = (define(make_app(slots=8)) for _ in range(2))
    made = [
        note.enqueue(tenant=tenant, concurrency_key=tenant, concurrency_limit=limit)
        for _ in range(6)
        for tenant in ("red", "blue")
    ]
    one.app.start()
    other.app.start()
    wait_until(lambda: len(one.app.control.runs(state="succeeded")) == len(made))
    assert running.most == {"red": limit, "blue": limit}


def test_runs_of_a_key_wait_in_line_as_held(app: rota.Rota, watch: Watch) -> None:
    gate = Gate()

    @app.job(concurrency_key="tenant")
    def note() -> None:
        gate()

    @app.job()
    def other() -> None: ...

    app.start()
    first = note.enqueue()
    gate.wait()
    second = note.enqueue()
    assert app.storage.run(second.id).state == "held"
    assert watch.end(other.enqueue().id).state == "succeeded"
    gate.open()
    assert watch.end(first.id).state == "succeeded"
    assert watch.end(second.id).state == "succeeded"


def test_an_argument_that_is_also_an_option_is_refused_with_the_way_out(driven: Driven) -> None:
    @driven.app.job()
    def note(key: str, notify: bool = True) -> str:
        return key

    for given in ({"key": "a"}, {"notify": False}):
        with pytest.raises(
            rota.Invalid, match="is an argument of the job and an option of enqueue"
        ):
            note.enqueue(**given)
    assert driven.app.runs("note") == []
    note.enqueue_many([{"key": "a"}])
    driven.app.enqueue("note", {"key": "b"}, key="once")
    assert [run.result for run in driven.drain()] == ['"a"', '"b"']


# What JSON makes of arguments


class Colour(Enum):
    RED = "red"


@dataclass
class Order:
    number: int
    at: datetime


def test_rich_arguments_arrive_as_what_they_were(app: rota.Rota, watch: Watch) -> None:
    seen: list[Any] = []

    @app.job()
    def note(order: Order, colour: Colour, day: date, run: UUID, big: int, text: str) -> None:
        seen.append((order, colour, day, run, big, text))

    given = {
        "order": Order(7, datetime(2026, 3, 1, tzinfo=UTC)),
        "colour": Colour.RED,
        "day": date(2026, 3, 1),
        "run": UUID(int=7),
        "big": 2**64 - 1,
        "text": "naïve ☃ 𝄞 \0 \\ ' \"",
    }
    app.start()
    assert watch.end(note.enqueue(**given).id).state == "succeeded"
    assert seen == [tuple(given.values())]
