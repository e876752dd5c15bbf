"""Fork: a child goes on with connections and a thread of its own, and leaves its parent's alone."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rota.storage import operations
from rota.storage.postgres import pool, wake
from rota.storage.store import Store
from tests.conformance.support import Place, together

pytestmark = pytest.mark.not_plain("connections are the same without fast paths")

SOON_SECONDS = 30.0  # a bound for a broken build, never waited for in a working one


@pytest.fixture
def engine(store: Store, place: Place) -> Any:
    if place.engine != "postgres":
        pytest.skip("the other engines keep neither sessions nor a thread that sends")
    store.read(operations.list_queues, limit=1)  # so that there is a session
    return store.engine


def fork(work: Callable[[], object]) -> int:
    """What a child that does this exits with; 1 where it fails or never ends."""
    child = os.fork()
    if child == 0:
        threading.Timer(SOON_SECONDS, os._exit, (1,)).start()
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_the_parent_goes_on_after_a_child_that_closes_the_store(engine: Any) -> None:
    assert fork(engine.close) == 0
    with engine._pool._changed:
        ((_, session),) = engine._pool._idle
    assert session.execute("SELECT 1").fetchone() == (1,)


def test_the_session_of_a_child_is_its_own(engine: Any) -> None:
    def work() -> None:
        with engine._pool.lend() as session:
            assert session.info.backend_pid != parents

    with engine._pool.lend() as session:
        parents = session.info.backend_pid
    assert fork(work) == 0


@pytest.mark.parametrize("part", ["pool", "notifier"])
def test_two_threads_that_come_first_in_a_child_both_go_on(
    engine: Any, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a web server that forks first and starts its threads then. At the moment of the fork
    another thread of the parent has its turn."""
    use = engine._send if part == "pool" else engine._notifier.may_send
    first_is_in, second_is_through = threading.Event(), threading.Event()

    def begin() -> threading.Condition:
        first_is_in.set()
        second_is_through.wait()
        return threading.Condition()

    def come_first() -> None:
        use()
        first_is_in.set()

    def come_second() -> None:
        first_is_in.wait()
        use()
        second_is_through.set()

    def work() -> None:
        for module in (pool, wake):  # who begins anew as late as now lets the other one pass
            monkeypatch.setattr(module, "threading", SimpleNamespace(Condition=begin))
        together(come_first, come_second)

    with getattr(engine, f"_{part}")._changed:
        assert fork(work) == 0
