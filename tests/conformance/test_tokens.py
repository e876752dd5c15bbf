"""Tokens: kept as hashes, found by id and secret, revoked for good."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.errors import Conflict, Unknown
from rota.model.token import Token, hash_secret
from rota.storage import operations
from rota.storage.store import Store
from tests.conformance.support import ME, Place, VirtualClock

SECRET, OTHER = "s" * 43, "t" * 43


def put(store: Store, token_id: str = "a" * 16, name: str = "ci", **more: object) -> Token:
    told = {"name": name, "role": "operator", "expires_at": None, "actor": ME, **more}
    return store.write(operations.put_token, token_id, hash_secret(SECRET), **told)  # type: ignore[arg-type]


def test_a_token_is_known_by_its_id_and_secret(store: Store) -> None:
    made = put(store)
    assert (made.name, made.role, made.created_by) == ("ci", "operator", ME.by)
    assert store.peek(operations.known_token, made.id, SECRET) == made
    assert store.peek(operations.known_token, made.id, OTHER) is None
    assert store.peek(operations.known_token, "b" * 16, SECRET) is None
    assert store.peek(operations.live_token, made.id) == made
    assert store.read(operations.list_tokens, limit=10) == [made]


def test_the_secret_is_nowhere_in_the_store(store: Store, place: Place) -> None:
    put(store)
    (row,) = place.execute(f"SELECT * FROM {place.table('tokens')}")
    assert SECRET not in str(row)
    assert SECRET not in str(place.execute(f"SELECT * FROM {place.table('audit')}"))


def test_a_revoked_token_is_revoked_for_good(store: Store) -> None:
    made = put(store)
    revoked = store.write(operations.revoke_token, made.id, ME)
    assert revoked.revoked_by == ME.by
    assert store.peek(operations.known_token, made.id, SECRET) is None
    assert store.peek(operations.live_token, made.id) is None
    assert store.write(operations.revoke_token, made.id, ME) == revoked
    with pytest.raises(Unknown, match="rota token list"):
        store.write(operations.revoke_token, "b" * 16, ME)
    actions = [row["action"] for row in store.read(operations.list_audit, limit=10)]
    assert actions == ["revoke_token", "create_token"]


def test_a_name_is_that_of_one_live_token(store: Store) -> None:
    put(store)
    with pytest.raises(Conflict, match="exists"):
        put(store, "b" * 16)
    assert store.write(operations.revoke_token, "ci", ME).id == "a" * 16
    put(store, "b" * 16)
    assert len(store.read(operations.list_tokens, limit=10)) == 2


def test_an_expired_token_is_none_and_gives_its_name_back(
    store: Store, clock: VirtualClock
) -> None:
    put(store, expires_at=clock() + timedelta(minutes=1))
    assert store.peek(operations.known_token, "a" * 16, SECRET) is not None
    clock.advance("1m")
    assert store.peek(operations.known_token, "a" * 16, SECRET) is None
    put(store, "b" * 16)
    assert [token.id for token in store.read(operations.list_tokens, limit=10)] == [
        "a" * 16,
        "b" * 16,
    ]
    assert store.read(operations.tokens_there) == (2, True)


def test_whether_there_is_one(store: Store) -> None:
    assert store.read(operations.tokens_there) == (0, False)
    put(store)
    assert store.read(operations.tokens_there) == (1, True)
    store.write(operations.revoke_token, "ci", ME)
    assert store.read(operations.tokens_there) == (1, False)


def test_tokens_come_in_pages(store: Store) -> None:
    for number in range(5):
        put(store, f"{number:016x}", f"name-{number}")
    first = store.read(operations.list_tokens, limit=3)
    rest = store.read(operations.list_tokens, after=first[-1].id, limit=3)
    assert [token.name for token in (*first, *rest)] == [f"name-{n}" for n in range(5)]
