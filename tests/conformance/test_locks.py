"""Locks: one holder at a time, known by a token that only rises."""

from __future__ import annotations

from rota.storage import operations
from rota.storage.store import Store
from tests.conformance.support import Place, VirtualClock, together


def test_a_lock_has_one_holder(store: Store) -> None:
    assert store.write(operations.acquire_lock, "door", "me", 10) == 1
    assert store.write(operations.acquire_lock, "door", "you", 10) is None
    assert store.write(operations.acquire_lock, "door", "me", 10) is None  # nor is it re-entrant
    assert store.write(operations.acquire_lock, "window", "you", 10) == 1


def test_the_token_rises_with_each_holder(store: Store, clock: VirtualClock) -> None:
    assert store.write(operations.acquire_lock, "door", "me", 10) == 1
    assert store.write(operations.release_lock, "door", 1)
    assert store.write(operations.acquire_lock, "door", "me", 10) == 2
    clock.advance("10s")
    assert store.write(operations.acquire_lock, "door", "you", 10) == 3


def test_a_lock_is_free_when_its_time_has_passed(store: Store, clock: VirtualClock) -> None:
    store.write(operations.acquire_lock, "door", "me", 10)
    clock.advance("9.999999s")
    assert store.write(operations.acquire_lock, "door", "you", 10) is None
    clock.advance("1us")
    assert store.write(operations.acquire_lock, "door", "you", 10) == 2


def test_the_holder_may_extend(store: Store, clock: VirtualClock) -> None:
    store.write(operations.acquire_lock, "door", "me", 10)
    clock.advance("9s")
    assert store.write(operations.extend_lock, "door", 1, 10)
    clock.advance("9s")
    assert store.write(operations.acquire_lock, "door", "you", 10) is None
    assert [row["until"] for row in store.read(operations.list_locks, limit=9)] == [
        clock.after("1s")
    ]


def test_nobody_extends_or_releases_what_they_lost(store: Store, clock: VirtualClock) -> None:
    store.write(operations.acquire_lock, "door", "me", 10)
    clock.advance("10s")
    assert not store.write(operations.extend_lock, "door", 1, 10)
    assert not store.write(operations.release_lock, "door", 1)
    store.write(operations.acquire_lock, "door", "you", 10)
    assert not store.write(operations.extend_lock, "door", 1, 10)
    assert not store.write(operations.release_lock, "door", 1)
    assert store.write(operations.extend_lock, "door", 2, 10)


def test_a_release_counts_once(store: Store) -> None:
    store.write(operations.acquire_lock, "door", "me", 10)
    assert store.write(operations.release_lock, "door", 1)
    assert not store.write(operations.release_lock, "door", 1)
    assert not store.write(operations.release_lock, "no such lock", 1)


def test_only_held_locks_are_listed(store: Store, clock: VirtualClock) -> None:
    for name in ("c", "a", "b", "past"):
        store.write(operations.acquire_lock, name, f"owner of {name}", 1 if name == "past" else 10)
    clock.advance("1s")
    store.write(operations.release_lock, "b", 1)
    rows = store.read(operations.list_locks, limit=9)
    assert [(row["name"], row["owner"], row["token"]) for row in rows] == [
        ("a", "owner of a", 1),
        ("c", "owner of c", 1),
    ]
    assert [row["name"] for row in store.read(operations.list_locks, limit=1)] == ["a"]


def test_of_many_who_ask_at_once_one_gets_it(store: Store, place: Place) -> None:
    stores = [place.open() for _ in range(4)]
    tokens = together(
        *[lambda one=one: one.write(operations.acquire_lock, "door", "x", 10) for one in stores * 2]
    )
    assert sorted(token for token in tokens if token is not None) == [1]
