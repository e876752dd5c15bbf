"""Locks across processes: held, extended, lost, and given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import rota
from rota.storage import operations
from tests.api.support import Driven, Watch, wait_until


@pytest.mark.each_engine
def test_a_lock_is_held_by_one_app_at_a_time(make_app: Callable[..., rota.Rota]) -> None:
    one, other = make_app(), make_app()
    with one.lock("door", ttl="1m") as held:
        assert [lock["name"] for lock in other.control.locks()] == ["door"]
        with pytest.raises(rota.LockNotHeld, match="lock 'door' is already held"):
            other.lock("door").__enter__()
        with other.lock("window"):
            pass
    with other.lock("door") as again:
        assert again.token > held.token
    assert one.control.locks() == []


def test_a_lock_is_given_back_when_the_block_fails(app: rota.Rota) -> None:
    with pytest.raises(ValueError, match="inside"), app.lock("door"):
        raise ValueError("inside")
    with app.lock("door"):
        pass


def test_a_lock_ends_after_its_time_unless_it_is_extended(driven: Driven) -> None:
    with driven.app.lock("door", ttl="30s") as held:
        driven.clock.advance("20s")
        held.extend("30s")
        driven.clock.advance("20s")
        with pytest.raises(rota.LockNotHeld):
            driven.app.lock("door").__enter__()
        driven.clock.advance("10s")
        with driven.app.lock("door") as next_one:
            assert next_one.token > held.token
            with pytest.raises(rota.LockNotHeld, match="lock 'door' was lost: its time ran out"):
                held.extend()
            # The one who lost it does not give back what is another's now.
            driven.store.write(operations.release_lock, "door", held.token)
            assert [lock["token"] for lock in driven.control.locks()] == [next_one.token]


@pytest.mark.parametrize("name", ["", "x" * 513, "a\0b", None, 5])
def test_a_name_that_cannot_be_stored_is_refused(driven: Driven, name: Any) -> None:
    with pytest.raises(rota.Invalid, match=r"^lock .* must be text of 1 to 512 characters$"):
        driven.app.lock(name).__enter__()

    @driven.app.job(max_attempts=1)
    def work(ctx: rota.Context) -> None:
        ctx.lock(name).__enter__()

    made = work.enqueue()
    driven.drain()
    assert "must be text of 1 to 512 characters" in (
        driven.store.read(operations.get_run, made.id).error or ""
    )


@pytest.mark.parametrize("ttl", ["soon", 0, -1])
def test_a_time_that_is_none_is_refused(app: rota.Rota, ttl: object) -> None:
    with pytest.raises(rota.Invalid, match=r"^ttl "):
        app.lock("door", ttl=ttl).__enter__()


def test_a_handler_holds_a_lock_in_the_name_of_its_run(driven: Driven) -> None:
    seen: list[Any] = []

    @driven.app.job(max_attempts=1)
    def work(ctx: rota.Context) -> None:
        with ctx.lock("door", ttl="30s") as held:
            seen.append(driven.control.locks())
            with pytest.raises(rota.LockNotHeld):
                driven.app.lock("door").__enter__()
            driven.clock.advance("29s")
            held.extend("30s")
            driven.clock.advance("31s")
            with pytest.raises(rota.LockNotHeld, match="was lost: its time ran out"):
                held.extend()

    made = work.enqueue()
    driven.drain()
    assert driven.states(made.id) == ["succeeded"]
    ((lock,),) = seen
    assert (lock["name"], lock["owner"]) == ("door", f"run {made.id}")
    assert driven.control.locks() == []


def test_a_lock_that_is_taken_is_a_failure_the_handler_may_catch(driven: Driven) -> None:
    @driven.app.job(max_attempts=2, backoff="none")
    def work(ctx: rota.Context) -> Any:
        try:
            with ctx.lock("door"):
                return "mine"
        except rota.LockNotHeld:
            return rota.Snooze("1m")

    made = work.enqueue()
    with driven.app.lock("door", ttl="10s"):
        driven.drain()
        assert driven.states(made.id) == ["waiting"]
    driven.advance("1 minute")
    assert driven.store.read(operations.get_run, made.id).result == '"mine"'


def test_coroutines_wait_for_locks_without_stopping_the_loop(app: rota.Rota, watch: Watch) -> None:
    @app.job()
    async def work(ctx: rota.Context, door: str) -> int:
        async with ctx.lock(door) as held:
            await asyncio.sleep(0)
            return held.token

    app.start()
    made = [work.enqueue(door=door) for door in ("a", "b", "c")]
    assert [watch.end(one.id).result for one in made] == ["1", "1", "1"]
    wait_until(lambda: app.control.locks() == [])
