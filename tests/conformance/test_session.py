"""A session of PostgreSQL: what is asked, and what is said behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from rota.storage.postgres.session import PREPARE_AT, Session, Statement
from rota.storage.store import Store
from tests.conformance.support import Place

HALF = Statement("half", "SELECT 10 / :by::int AS half")
TOLD = b"NOTIFY told"

# Sent plainly, then with a plan that is made already.
both = pytest.mark.parametrize("uses", [1, PREPARE_AT + 1])


@pytest.fixture
def session(store: Store, place: Place) -> Iterator[Session]:
    if place.engine != "postgres":
        pytest.skip("only PostgreSQL has sessions of ours")
    engine: Any = store.engine
    with engine.address.connect() as connection:
        yield connection


def ask(session: Session, by: str, then: bytes | None = TOLD) -> list[tuple[Any, ...]]:
    return session.tuples(session.run(HALF, {"by": by}, then))


@both
def test_what_follows_is_a_transaction_of_its_own(session: Session, uses: int) -> None:
    session.execute("LISTEN told")
    for _ in range(uses):
        assert ask(session, "2") == [(5,)]
    for _ in range(uses):
        assert (heard := session.pgconn.notifies()) is not None
        assert heard.relname == b"told"
    assert ask(session, "5", then=None) == [(2,)]


@both
def test_an_error_is_the_statements_and_the_session_goes_on(session: Session, uses: int) -> None:
    for _ in range(uses):
        ask(session, "2")
    with pytest.raises(psycopg.errors.DivisionByZero):
        ask(session, "0")
    assert ask(session, "2") == [(5,)]


@both
def test_what_becomes_of_what_follows_is_nobodys_concern(session: Session, uses: int) -> None:
    for _ in range(uses):
        assert ask(session, "2", then=b"no SQL") == [(5,)]
    assert ask(session, "2", then=None) == [(5,)]


def test_a_connection_that_ends_meanwhile_is_told(session: Session, place: Place) -> None:
    ask(session, "2")
    place.execute(f"SELECT pg_terminate_backend({session.info.backend_pid}, 5000)")
    with pytest.raises(psycopg.OperationalError):
        ask(session, "2")
    assert session.broken
