"""Enqueue: the ways to ask for runs, and what each option does to them."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from types import SimpleNamespace
from typing import Annotated, Any
from uuid import UUID

import pytest

import rota
from rota.model.run import Enqueued
from rota.storage import operations
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
    assert driven.store.read(operations.get_run, made.id).state == "waiting"
    assert driven.store.read(operations.get_run, made.id).due_at == driven.clock.now + timedelta(
        minutes=10
    )
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
    assert driven.store.read(operations.get_run, made.id).due_at == moment
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
    run = driven.store.read(operations.get_run, made.id)
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
    assert app.storage.read(operations.get_run, second.id).state == "held"
    assert watch.end(other.enqueue().id).state == "succeeded"
    gate.open()
    assert watch.end(first.id).state == "succeeded"
    assert watch.end(second.id).state == "succeeded"


# Arguments and options


async def test_positions_are_bound_in_the_functions_order_without_the_context(
    driven: Driven,
) -> None:
    @driven.app.job
    def note(a: int, ctx: rota.Context, b: int = 2, *, c: int = 3) -> list[int]:
        return [a, b, c]

    @driven.app.job
    async def first(ctx: rota.Context, a: int, b: int = 2, **more: int) -> list[int]:
        return [a, b, *more.values()]

    note.enqueue(1)
    note.enqueue(1, 5)
    note.enqueue(1, c=6)
    note.enqueue(b=7, a=1)
    note.using(delay="0s").enqueue(1, 8)
    await note.aenqueue(1, 9)
    first.enqueue(1)
    first.enqueue(1, 2, d=4)
    await first.using(key="once").aenqueue(1, b=5)
    assert [run.result for run in driven.drain()] == [
        "[1,2,3]", "[1,5,3]", "[1,2,6]", "[1,7,3]", "[1,8,3]", "[1,9,3]",
        "[1,2]", "[1,2,4]", "[1,5]",
    ]  # fmt: skip


def test_the_context_is_given_as_an_option_and_in_annotated(driven: Driven) -> None:
    @driven.app.job
    def note(text: str, run: rota.Context | None = None) -> str:
        return f"{text} {run and run.job}"

    @driven.app.job
    def other(run: Annotated[rota.Context, "given"], text: str) -> str:
        return f"{text} {run.job}"

    assert isinstance(other, rota.ContextTask)
    assert not isinstance(note, rota.ContextTask)
    note.enqueue("a")
    other.enqueue("b")
    assert [run.result for run in driven.drain()] == ['"a note"', '"b other"']
    assert note("c") == "c None"
    assert other(SimpleNamespace(job="mine"), "d") == "d mine"


def test_using_is_a_changed_copy(driven: Driven) -> None:
    @driven.app.job(priority=1, queue="own")
    def note(n: int = 0) -> int:
        return n

    def seen(made: Enqueued) -> tuple[Any, ...]:
        run = driven.store.read(operations.get_run, made.id)
        return run.priority, run.queue, run.state, run.timeout

    later = note.using(priority=5, delay="1h", queue="slow")
    plain = (1, "own", "queued", None)
    assert seen(note.enqueue()) == plain
    assert seen(later.enqueue(1)) == (5, "slow", "waiting", None)
    assert seen(later.using(priority=7, timeout=2).enqueue()) == (
        7, "slow", "waiting", timedelta(seconds=2),
    )  # fmt: skip
    assert seen(later.using(delay=None, queue=None).enqueue()) == (5, *plain[1:])
    at = later.using(delay=None, at="2030-01-01T00:00Z").enqueue()
    assert driven.store.read(operations.get_run, at.id).due_at == datetime(2030, 1, 1, tzinfo=UTC)
    # Beside the arguments, and in enqueue_many, they are later ones too.
    assert seen(later.enqueue(1, priority=6, delay=None)) == (6, "slow", "queued", None)
    assert seen(later.enqueue_many([{}], queue=None, max_attempts=1)[0])[:2] == (5, "own")
    assert seen(note.using(notify=None, connection=None).enqueue()) == plain
    assert (later.name, later(4), repr(later)) == ("note", 4, "<job note>")
    assert type(later) is type(note)


def test_every_option_is_taken_by_using(driven: Driven) -> None:
    @driven.app.job
    def note() -> None: ...

    task = note.using(
        delay="1h", key="k", key_ttl="2h", priority=3, queue="q", concurrency_key="c",
        concurrency_limit=2, max_attempts=4, timeout="5s", correlation_id="x", notify=False,
    )  # fmt: skip
    run = driven.store.read(operations.get_run, task.enqueue().id)
    assert (run.priority, run.queue, run.concurrency_key, run.concurrency_limit) == (3, "q", "c", 2)
    assert (run.max_attempts, run.timeout, run.correlation_id) == (4, timedelta(seconds=5), "x")
    assert run.due_at == driven.clock.now + timedelta(hours=1)
    assert not task.enqueue().created
    driven.clock.advance("3h")
    assert task.enqueue().created


def test_nine_options_are_taken_beside_the_arguments(driven: Driven) -> None:
    @driven.app.job
    def note(n: int, **more: Any) -> int:
        return n

    given: dict[str, Any] = {
        "key": "k", "key_ttl": "2h", "priority": 3, "concurrency_key": "c",
        "concurrency_limit": 2, "connection": None, "notify": False,
    }  # fmt: skip
    for name in ("delay", "at"):
        at = driven.clock.now + timedelta(hours=1)
        given[name] = "1h" if name == "delay" else at
        run = driven.store.read(operations.get_run, note.enqueue(7, **given).id)
        assert (run.priority, run.concurrency_key, run.concurrency_limit) == (3, "c", 2)
        assert (run.args, run.due_at) == ('{"n":7}', at)
        assert not note.enqueue(7, **given).created
        driven.clock.advance("3h")
        given[name] = None
    # Others never: here they are arguments, as the function takes any.
    made = note.enqueue(7, queue="q", max_attempts=1, timeout=1, correlation_id="x")
    assert sorted(json.loads(driven.store.read(operations.get_run, made.id).args)) == [
        "correlation_id", "max_attempts", "n", "queue", "timeout",
    ]  # fmt: skip


def test_a_parameter_with_the_name_of_an_option_is_the_argument(driven: Driven) -> None:
    @driven.app.job
    def note(key: str, notify: bool = True, delay: str = "none") -> str:
        return f"{key} {notify} {delay}"

    note.enqueue(key="a")
    assert note.enqueue("a", notify=False).created
    assert note.using(key="once").enqueue(key="b", delay="1h", priority=-1).created
    assert not note.using(key="once").enqueue("c").created
    note.enqueue_many([{"key": "d"}])
    driven.app.enqueue("note", {"key": "e"}, key="twice")
    assert [run.result for run in driven.drain()] == [
        '"a True none"', '"a False none"', '"d True none"', '"e True none"', '"b True 1h"',
    ]  # fmt: skip


async def test_no_name_of_our_own_is_in_the_way_of_an_argument(driven: Driven) -> None:
    @driven.app.job
    def note(self: int, call: int, args: int, kwargs: int, options: int, function: int) -> int:
        return self + call + args + kwargs + options + function

    given = {"self": 1, "call": 2, "args": 3, "kwargs": 4, "options": 5, "function": 6}
    note.enqueue(**given)
    await note.aenqueue(**given)
    assert note(**given) == 21
    assert [run.result for run in driven.drain()] == ["21", "21"]


def test_a_task_can_be_another_job_too(driven: Driven) -> None:
    @driven.app.job
    def note(n: int) -> int:
        return n

    other = driven.app.job("other")(note)
    assert (note.name, other.name) == ("note", "other")
    other.enqueue(3)
    assert [(run.job, run.result) for run in driven.drain()] == [("other", "3")]


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
