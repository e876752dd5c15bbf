"""A session of PostgreSQL: what is asked, and what is said behind it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from rota.errors import StorageError, Unavailable
from rota.model.control_row import ControlReply, failed
from rota.storage import operations
from rota.storage.postgres import pool as pool_module
from rota.storage.postgres import session as session_module
from rota.storage.postgres.session import HOT, PREPARE_AT, Session, Statement
from rota.storage.postgres.wake import delivers
from rota.storage.statements import load_statements
from rota.storage.store import Store
from tests.conformance.support import PATIENCE, Place, alike, all_runs

pytestmark = pytest.mark.not_plain("sessions are the same without fast paths")

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


@pytest.fixture
def heard_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is slow to say what follows is waited for."""
    monkeypatch.setattr(session_module, "SAID_MILLISECONDS", int(1_000 * PATIENCE))


def ask(session: Session, by: str, then: bytes | None = TOLD) -> list[tuple[Any, ...]]:
    return session.tuples(session.run(HALF, {"by": by}, then))


@both
@pytest.mark.usefixtures("heard_out")
def test_what_follows_is_a_transaction_of_its_own(session: Session, uses: int) -> None:
    session.execute("LISTEN told")
    for _ in range(uses):
        assert ask(session, "2") == [(5,)]
    for _ in range(uses):
        assert (heard := session.pgconn.notifies()) is not None
        assert heard.relname == b"told"
    assert ask(session, "5", then=None) == [(2,)]


@both
@pytest.mark.usefixtures("heard_out")
def test_an_error_is_the_statements_and_the_session_goes_on(session: Session, uses: int) -> None:
    for _ in range(uses):
        ask(session, "2")
    with pytest.raises(psycopg.errors.DivisionByZero):
        ask(session, "0")
    assert ask(session, "2") == [(5,)]


@both
@pytest.mark.usefixtures("heard_out")
def test_what_becomes_of_what_follows_is_nobodys_concern(session: Session, uses: int) -> None:
    for _ in range(uses):
        assert ask(session, "2", then=b"no SQL") == [(5,)]
    assert ask(session, "2", then=None) == [(5,)]


def test_what_the_server_refuses_as_late_as_at_commit_is_an_error(
    store: Store, place: Place
) -> None:
    if place.engine != "postgres":
        pytest.skip("only PostgreSQL checks at commit")
    place.execute(
        """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql
           AS $$ BEGIN RAISE 'not today'; END $$;
           CREATE CONSTRAINT TRIGGER late AFTER INSERT ON rota_data.runs
           DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()"""
    )
    for _ in range(PREPARE_AT + 1):
        with pytest.raises(StorageError, match="not today"):
            store.write(operations.enqueue, alike(1))
    assert all_runs(store) == []


def test_who_enqueues_does_not_wait_for_a_hint_that_takes_long(
    store: Store, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All hints of a server are sent one after the other, and a stranger may hold them up."""
    if place.engine != "postgres":
        pytest.skip("only PostgreSQL says anything")
    engine: Any = store.engine
    stranger, held_up = place.autocommit(), "SELECT pg_advisory_lock(7)"
    stranger.execute(held_up)
    monkeypatch.setattr(engine, "_told", lambda payload=None: held_up.encode())
    store.write(operations.enqueue, alike(1))
    assert not engine._notifier.may_send()  # from now on it is left to the thread
    store.write(operations.enqueue, alike(1))
    assert len(all_runs(store)) == 2
    stranger.close()


def test_a_session_is_closed_rather_than_waited_for(session: Session) -> None:
    assert ask(session, "2", then=b"SELECT pg_sleep(600)") == [(5,)]
    assert session.closed


def test_a_session_that_says_something_still_is_not_lent_again(
    store: Store, place: Place, session: Session
) -> None:
    engine: Any = store.engine
    with engine._pool.lend() as connection:
        connection.pgconn.enter_pipeline_mode()  # as when its send failed
    with engine._pool.lend() as other:
        assert other is not connection


@pytest.mark.usefixtures("session")
def test_a_thread_is_lent_the_session_that_it_had_last(store: Store) -> None:
    """Its plans are there. Who had none gets the one that came back last."""
    pool: Any = store.engine._pool  # type: ignore[attr-defined]
    with pool.lend() as first, pool.lend() as second:
        pass  # the inner one came back first
    lent: list[Session] = []

    def use() -> None:
        with pool.lend() as session:
            lent.append(session)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join(PATIENCE)
    assert lent == [first]
    with pool.lend() as mine:
        assert mine is second


def in_a_thread(pool: Any, *, patient: bool) -> tuple[threading.Thread, list[Session]]:
    lent: list[Session] = []

    def use() -> None:
        with pool.lend(patient=patient) as session:
            lent.append(session)

    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    return thread, lent


@pytest.mark.usefixtures("session")
def test_the_patient_wait_for_a_session_and_the_urgent_open_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loops that look all at once when a process starts need one session, not one each."""
    monkeypatch.setattr(pool_module, "PATIENCE_SECONDS", 1_000 * PATIENCE)
    pool: Any = store.engine._pool  # type: ignore[attr-defined]
    with pool.lend() as first:
        waiting, shared = in_a_thread(pool, patient=True)
        urgent, own = in_a_thread(pool, patient=False)
        urgent.join(PATIENCE)
        waiting.join(PATIENCE)
        # The urgent one opened its own, and what came back was for who waited.
        assert own == shared
        assert own != [first]
        assert pool._open == 2


@pytest.mark.usefixtures("session")
def test_the_patient_do_not_wait_for_long(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "PATIENCE_SECONDS", 0.01)
    pool: Any = store.engine._pool  # type: ignore[attr-defined]
    with pool.lend() as first:
        waiting, shared = in_a_thread(pool, patient=True)
        waiting.join(PATIENCE)
        assert shared != [first]
        assert len(shared) == 1


@pytest.mark.usefixtures("session")
def test_what_the_patient_share_stays_whose_it_was(store: Store) -> None:
    pool: Any = store.engine._pool  # type: ignore[attr-defined]
    with pool.lend() as mine:
        opening, opened = in_a_thread(pool, patient=True)
        opening.join(PATIENCE)
        assert opened != [mine]
    for _ in range(3):
        sharing, shared = in_a_thread(pool, patient=True)
        sharing.join(PATIENCE)
        assert shared == opened
    with pool.lend() as again:
        assert again is mine


@pytest.mark.usefixtures("session")
def test_a_verb_keeps_the_session_that_has_its_plan(store: Store) -> None:
    pool: Any = store.engine._pool  # type: ignore[attr-defined]
    with pool.lend(verb="claim") as claims, pool.lend(verb="settle") as settles:
        pass
    for patient in (True, False):
        asking, lent = in_a_thread(pool, patient=patient)
        asking.join(PATIENCE)
        assert len(lent) == 1
        assert lent[0] not in (claims, settles)
    assert pool._open == 3
    with pool.lend(verb="settle") as again:
        assert again is settles
    claims.close()
    with pool.lend(verb="claim") as other:
        assert other not in (claims, settles)
    with pool.lend(verb="claim") as again:
        assert again is other


@pytest.mark.usefixtures("session")
def test_where_there_can_be_no_more_a_verb_shares_its_session(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool: Any = store.engine._pool  # type: ignore[attr-defined]
    monkeypatch.setattr(pool, "_size", 2)
    with pool.lend(verb="claim") as claims, pool.lend(verb="settle"):
        pass
    with pool.lend(verb="settle"):
        asking, lent = in_a_thread(pool, patient=False)
        asking.join(PATIENCE)
        assert lent == [claims]
    with pool.lend(verb="claim") as again:
        assert again is claims


@pytest.mark.usefixtures("session")
def test_two_verbs_that_shared_a_session_get_one_each_when_it_is_lost(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool: Any = store.engine._pool  # type: ignore[attr-defined]
    monkeypatch.setattr(pool, "_size", 2)
    with pool.lend() as mine:
        with pool.lend(verb="claim") as claims:
            pass
        with pool.lend(verb="settle") as settles:
            assert settles is claims
        claims.close()
    with pool.lend(verb="claim") as first, pool.lend(verb="settle") as second:
        assert {first, second} > {mine}
    with pool.lend(verb="settle") as again:
        assert again is second
    with pool.lend(verb="claim") as again:
        assert again is first


@pytest.mark.usefixtures("session")
def test_where_the_server_takes_no_more_a_verb_shares_its_session(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool: Any = store.engine._pool  # type: ignore[attr-defined]
    with pool.lend(verb="claim") as claims:
        pass

    def refuse() -> Session:
        raise psycopg.OperationalError("sorry, too many clients already")

    monkeypatch.setattr(pool, "_connect", refuse)
    for patient in (True, False):
        with pool.lend(patient=patient) as session:
            assert session is claims
            with pytest.raises(psycopg.OperationalError, match="too many clients"):
                pool.lend().__enter__()
    assert pool._open == 1


@pytest.mark.usefixtures("session")
def test_of_the_patient_that_wait_together_one_opens_a_session(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others wait for what it gives back, as long again."""
    monkeypatch.setattr(pool_module, "PATIENCE_SECONDS", 0.01)
    pool: Any = store.engine._pool  # type: ignore[attr-defined]
    with pool.lend() as mine:
        pool._opened_at = time.monotonic() + PATIENCE  # by another one of them, just now
        waiting, lent = in_a_thread(pool, patient=True)
        waiting.join(0.2)
        assert not lent
    waiting.join(PATIENCE)
    assert lent == [mine]


@pytest.mark.usefixtures("session")
def test_the_patient_open_one_after_the_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is none to share only the first opens one."""
    monkeypatch.setattr(pool_module, "PATIENCE_SECONDS", 1_000 * PATIENCE)
    pool: Any = store.engine._pool  # type: ignore[attr-defined]
    with pool.lend(verb="claim"):
        pass
    looking = [in_a_thread(pool, patient=True) for _ in range(5)]
    for thread, _ in looking:
        thread.join(PATIENCE)
    assert len({session for _, lent in looking for session in lent}) == 1
    assert pool._open == 2


@pytest.mark.usefixtures("session")
def test_the_trial_of_the_wake_channel_leaves_sessions_that_listen_to_nothing(
    store: Store,
) -> None:
    """A process that is to work finds them open."""
    engine: Any = store.engine
    assert store.has_wake_channel
    assert engine._pool._open == 2
    with engine._pool.lend() as one, engine._pool.lend() as other:
        assert engine._pool._open == 2
        for session in (one, other):
            assert session.execute("SELECT pg_listening_channels()").fetchall() == []


def test_a_trial_that_fails_leaves_no_session_that_listens(store: Store, session: Session) -> None:
    pool: Any = store.engine._pool  # type: ignore[attr-defined]
    lent: list[Session] = []

    @contextmanager
    def lend() -> Iterator[Session]:
        with pool.lend() as connection:
            lent.append(connection)
            yield connection

    def send(payload: str) -> None:
        raise Unavailable("it went away")

    assert delivers(lend, "told", send)
    assert [connection.closed for connection in lent] == [True]


# A session that strangers use, too


@pytest.fixture(params=[True, False], ids=["pooled", "direct"])
def pooled(request: pytest.FixtureRequest, place: Place, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A pooler answers the handshake itself, with a number of its own."""
    if place.engine != "postgres":
        pytest.skip("only PostgreSQL has sessions of ours")
    if request.param:
        monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", 1)
    return bool(request.param)


def test_behind_a_pooler_nothing_of_ours_stays_in_the_session(place: Place, pooled: bool) -> None:
    store = place.open()
    for _ in range(PREPARE_AT + 1):
        store.read(operations.list_queues, limit=1)
    engine: Any = store.engine
    with engine._pool.lend() as session:
        plans = session.execute("SELECT name FROM pg_prepared_statements").fetchall()
        assert (plans == []) is pooled
        assert session.execute("SHOW enable_seqscan").fetchone() == ("on" if pooled else "off",)
        assert session.execute("SHOW timezone").fetchone() == ("UTC",)


def test_what_a_worker_sends_all_the_time_is_prepared_at_once(place: Place, pooled: bool) -> None:
    store = place.open()
    store.read(operations.list_queues, limit=1)
    store.write(
        operations.claim, "worker", queues=[], jobs=["job"], limit=1, lease=timedelta(minutes=1)
    )
    engine: Any = store.engine
    with engine._pool.lend(verb="claiming.claim") as session:
        plans = session.execute("SELECT name FROM pg_prepared_statements").fetchall()
    assert plans == ([] if pooled else [("rota_claim_at_once",)])


def test_only_statements_that_exist_are_hot() -> None:
    assert set(load_statements("postgres", {}, "fast_paths.sql")) >= HOT


def test_a_transaction_waits_and_plans_alike_behind_a_pooler(place: Place, pooled: bool) -> None:
    engine: Any = place.open().engine
    with psycopg.connect(place.url) as strangers:
        left_alone = shown(strangers)
    ours = {
        "lock_timeout": "10s",
        "idle_in_transaction_session_timeout": "1min",
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        "jit": "off",
    }
    assert engine.read(lambda tx: shown(tx.connection)) == ours
    assert engine.write("test", lambda tx: shown(tx.connection)) == ours
    with engine._pool.lend() as session:
        assert shown(session) == (left_alone if pooled else ours)


def test_what_a_control_row_asks_for_waits_less_long_for_a_lock(place: Place, pooled: bool) -> None:
    """Longer than the second after which a server looks for a deadlock: that is tried again."""
    store, waits = place.open(), []

    def do(tx: Any) -> ControlReply:
        waits.append(shown(tx.connection)["lock_timeout"])
        return ControlReply(status="done", redacted_text="as asked")

    place.execute("INSERT INTO rota.control (statement) VALUES ('SHOW JOBS')")
    (asked,) = store.peek(operations.asked, limit=1)
    assert (
        store.write(operations.answer, asked.id, do, lambda fault: failed("as asked", fault))
        is not None
    )
    engine: Any = store.engine
    waits.append(engine.write("test", lambda tx: shown(tx.connection))["lock_timeout"])
    assert waits == ["1500ms", "10s"]


def shown(connection: psycopg.Connection[Any]) -> dict[str, str]:
    """What a transaction of ours must have, and what it is here."""
    asked = connection.execute(
        """SELECT name, current_setting(name)
             FROM unnest(ARRAY['lock_timeout', 'idle_in_transaction_session_timeout',
                               'enable_seqscan', 'enable_bitmapscan', 'jit']) AS name"""
    )
    return dict(asked.fetchall())


def test_a_pooler_is_told_of_once(
    place: Place, pooled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    engine: Any = place.open().engine
    with caplog.at_level("INFO", "rota.storage"):
        for _ in range(2):
            engine.address.connect().close()
    assert [line for line in caplog.messages if "pooler" in line] == caplog.messages
    assert len(caplog.messages) == pooled


def test_a_name_that_a_stranger_has_prepared_costs_a_session_and_no_work(
    store: Store, place: Place
) -> None:
    if place.engine != "postgres":
        pytest.skip("only PostgreSQL has sessions of ours")
    engine: Any = store.engine
    with engine._pool.lend() as session:
        session.execute("PREPARE rota_insert_queues AS SELECT 1")
    for number in range(PREPARE_AT + 1):
        store.write(operations.ensure_queues, [f"queue {number}"])
    assert session.closed
    assert len(store.read(operations.list_queues, limit=9)) == PREPARE_AT + 2


@pytest.mark.usefixtures("heard_out")
def test_a_connection_that_ends_meanwhile_is_told(session: Session, place: Place) -> None:
    ask(session, "2")
    place.execute(f"SELECT pg_terminate_backend({session.info.backend_pid}, 5000)")
    with pytest.raises(psycopg.OperationalError):
        ask(session, "2")
    assert session.broken
