"""Wake: work that another process made is noticed without asking."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from rota.storage.store import Store
from tests.conformance.support import Place, enqueue, enqueue_many, new_run

pytestmark = pytest.mark.not_plain("notifications are the same without fast paths")

SOON_SECONDS = 30.0  # a bound for a broken build, never waited for in a working one


@pytest.fixture
def woken(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    monkeypatch.setattr("rota.storage.postgres.wake.VERIFY_SECONDS", SOON_SECONDS)
    assert store.has_wake_channel
    event = threading.Event()
    stop = store.listen(event.set)
    yield event
    stop()


# More than once, because some channels wake at the beginning too, for what came before.
often = pytest.mark.parametrize("times", [3])


@often
def test_another_process_wakes_us(place: Place, woken: threading.Event, times: int) -> None:
    other = place.open()
    for _ in range(times):
        woken.clear()
        enqueue(other)
        assert woken.wait(SOON_SECONDS)


def test_who_listens_hears_what_is_said_from_then_on(
    store: Store, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is not woken for what was said before: he has not looked yet."""
    if place.engine != "postgres":
        pytest.skip("only PostgreSQL has a listener that must connect first")
    monkeypatch.setattr("rota.storage.postgres.wake.HEARING_SECONDS", SOON_SECONDS)
    heard = threading.Event()
    stop = store.listen(heard.set)
    assert not heard.is_set()
    place.autocommit().execute('NOTIFY "rota_wake"')
    assert heard.wait(SOON_SECONDS)
    stop()


@pytest.mark.parametrize("with_it", [True, False])
def test_who_enqueues_alike_wakes_us_every_time(
    place: Place, woken: threading.Event, with_it: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL with what is committed; or behind it, where others were told just before."""
    other = place.open()
    if place.engine == "postgres":
        monkeypatch.setattr(other.engine._notifier, "may_send", lambda: 0 if with_it else None)
    for _ in range(5):  # the first ones are sent before their statement is prepared
        woken.clear()
        enqueue_many(other, 1)
        assert woken.wait(SOON_SECONDS)


@often
def test_a_caller_that_commits_wakes_us(
    store: Store, place: Place, woken: threading.Event, times: int
) -> None:
    if place.engine == "duckdb":
        pytest.skip("nobody hears a commit on a caller's connection; the next look finds it")
    other = place.open()
    for _ in range(times):
        caller = place.begin()
        other.enqueue_on(caller, [new_run()])
        woken.clear()
        caller.commit()
        assert woken.wait(SOON_SECONDS)


def test_who_stops_listening_hears_no_more(store: Store, place: Place) -> None:
    heard = threading.Event()
    store.listen(heard.set)()
    heard.clear()
    enqueue(place.open())
    assert not heard.is_set()
