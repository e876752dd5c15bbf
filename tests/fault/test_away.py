"""A database that is away for a while, seen from one process."""

import os
import socket
import threading
from pathlib import Path

import psycopg
import pytest

import rota
from rota.storage import operations
from rota.storage.postgres.connect import Address
from rota.storage.postgres.session import Session
from rota.storage.postgres.wake import delivers
from rota.storage.store import open_store
from tests.fault.parts import call_of
from tests.fault.points import fault_of

PATIENCE = 30.0


class Weather:
    """A probe of a database that is away while `away` is set."""

    def __init__(self, database: str) -> None:
        self.database = database
        self.away = threading.Event()
        self.refused: set[str] = set()

    def __call__(self, point: str) -> None:
        if self.away.is_set():
            self.refused.add(call_of(point))
            raise fault_of(self.database)


def test_an_attempt_that_its_worker_stopped_for_the_lease_is_counted_as_lost(
    database: str, tmp_path: Path
) -> None:
    weather = Weather(database)
    store = open_store(database, probe=weather, pool_size=16)
    store.migrate()
    app = rota.Rota(database, storage=store, lease="3s", slots=2)
    begun, stopped = threading.Event(), threading.Event()

    @app.job()
    def patient(ctx: rota.Context) -> str:
        begun.set()
        if ctx.attempt == 1:
            assert ctx.wait(PATIENCE), "nobody stopped it"
            stopped.set()
        return f"attempt {ctx.attempt}"

    app.start()
    try:
        run_id = app.enqueue("patient").id
        assert begun.wait(PATIENCE)
        weather.away.set()
        assert stopped.wait(PATIENCE)
        # A claim without an answer makes the worker tidy up.
        while "claiming.claim" not in weather.refused:
            threading.Event().wait(0.05)
        weather.away.clear()
        ended = threading.Event()
        for _ in range(int(PATIENCE / 0.05)):
            if store.read(operations.get_run, run_id).state == "succeeded":
                break
            ended.wait(0.05)
        run = store.read(operations.get_run, run_id)
        attempts = store.read(operations.list_attempts, run.seq, limit=10)
    finally:
        app.stop()
    assert run.result == '"attempt 2"'
    assert [(one.number, one.outcome) for one in attempts] == [(1, "lost"), (2, "succeeded")]
    assert run.lost == 1


def test_an_answer_to_a_claim_that_came_too_late_begins_nothing(postgres_url: str) -> None:
    """Its leases are as old as the question, whatever the worker did meanwhile."""
    rescued = threading.Event()

    def slow(point: str) -> None:
        if point == "claiming.claim.commit.after":
            assert rescued.wait(PATIENCE)

    store = open_store(postgres_url, probe=slow, pool_size=16)
    store.migrate()
    app = rota.Rota(postgres_url, storage=store, lease="4s")
    begun: list[int] = []
    ended = threading.Event()

    @app.job()
    def late(ctx: rota.Context) -> None:
        begun.append(ctx.attempt)
        ended.set()

    app.on("attempt.lost")(lambda event: rescued.set())
    run_id = app.enqueue("late").id  # before the first claim
    app.start()
    try:
        assert ended.wait(PATIENCE)
        attempts = store.read(
            operations.list_attempts, store.read(operations.get_run, run_id).seq, limit=10
        )
    finally:
        app.stop()
    assert attempts[0].outcome == "lost"
    assert len(begun) == 1
    assert begun[0] > 1


@pytest.mark.parametrize("end", ["by the network", "by the server"])
def test_a_session_that_is_lost_while_waking_is_tried_is_believed(
    postgres_url: str, end: str
) -> None:
    """A process that starts meanwhile goes on, as it does where the server is away before it."""
    address = Address(postgres_url, prepare=True)
    made: list[Session] = []

    def connect() -> Session:
        made.append(address.connect())
        return made[0]

    def send(payload: str) -> None:
        if end == "by the network":
            with socket.socket(fileno=os.dup(made[0].fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)
        else:
            with psycopg.connect(postgres_url) as other:
                other.execute("SELECT pg_terminate_backend(%s)", [made[0].info.backend_pid])

    assert delivers(connect, "a_channel", send)
