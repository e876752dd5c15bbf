"""What never answers must not keep those who need nothing from it: no wait is without an end."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.executors.registry import Registry
from rota.executors.sql.postgres import PostgresSession
from rota.executors.sql.session import SqlFailed
from rota.executors.targets import connect_postgres
from tests.executors.conftest import make_context
from tests.fault.proxy import Proxy
from tests.fault.zygote import ROOT

PATIENCE = 60.0


def started(work: Any) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_who_writes_may_ask_for_the_store_while_a_schedule_waits_to_be_saved(
    tmp_path: Path,
) -> None:
    """As who does control rows asks, in its transaction, whether anybody hears the end of a run."""
    app = rota.Rota(f"sqlite:///{tmp_path / 'rota.db'}")
    app.job("job")(lambda: None)
    app.start(["scheduler"])
    heard: list[object] = []
    seen: list[str] = []

    def write(tx: object) -> None:
        saving = started(lambda: save(app))
        while saving.is_alive() and app._guard.acquire(blocking=False):
            app._guard.release()
        seen.append("waits" if saving.is_alive() else "is saved")
        heard.append(app._termination_hook_of("of another process"))

    writing = started(lambda: app.storage.engine.write("control", write))  # type: ignore[attr-defined]
    writing.join(PATIENCE)
    assert (seen, heard) == (["waits"], [None])
    app.stop()
    app.close()


def test_a_database_that_neither_answers_nor_fails_does_not_keep_a_stop(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("app.STOP", "flow.worker.LOOP_STOP", "flow.service.LOOP_STOP",
                  "storage.postgres.wake.EXIT", "storage.postgres.engine.EXIT"):  # fmt: skip
        monkeypatch.setattr(f"rota.{place}_SECONDS", 0.1)
    with Proxy(postgres_url) as proxy:
        app = rota.Rota(proxy.url)
        app.job("job")(lambda: None)
        app.start()
        proxy.blackhole = True
        saving = started(lambda: save(app))  # it waits, with the guard in its hand
        while app._guard.acquire(blocking=False):
            app._guard.release()
        stopping = started(lambda: app.stop(grace="0s"))
        stopping.join(PATIENCE)
        assert not stopping.is_alive()
        proxy.heal()
        proxy.reset_all()
        saving.join(PATIENCE)


def save(app: rota.Rota) -> None:
    with suppress(rota.RotaError):
        app.schedule("nightly", "job", cron="0 3 * * *")


LEFT_BEHIND = """
import asyncio, sys, threading, rota

app = rota.Rota(sys.argv[1])
begun = threading.Event()

def wait_for_ever():
    begun.set()
    threading.Event().wait()

@app.job()
async def job():
    await asyncio.to_thread(wait_for_ever)

app.start()
job.enqueue()
assert begun.wait(30)
app.stop(grace="0s")
app.close()
print("stopped", flush=True)
"""


def test_a_thread_that_an_async_handler_left_behind_does_not_keep_the_process(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'rota.db'}"
    command = [sys.executable, "-c", LEFT_BEHIND, url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (0, "stopped\n"), done.stderr


def test_a_statement_on_a_server_that_cannot_be_reached_is_interrupted(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.executors.sql.postgres.CANCEL_SECONDS", 0.2)
    faults: list[str] = []
    with Proxy(postgres_url) as proxy:
        session = PostgresSession(connect_postgres(proxy.url))
        asked = threading.Event()

        def work() -> None:
            try:
                session.run("SELECT pg_sleep(600)", asked.set)
            except SqlFailed as fault:
                faults.append(str(fault))

        working = started(work)
        assert asked.wait(PATIENCE)
        proxy.blackhole = True
        with pytest.raises(Exception, match="timeout"):
            session.interrupt()
        working.join(PATIENCE)
        assert faults
        session.close()


def test_connections_to_targets_are_told_to_notice_a_server_that_vanished(
    postgres_url: str,
) -> None:
    with connect_postgres(postgres_url) as plain:
        told = plain.info.get_parameters()
    assert (told["tcp_user_timeout"], told["keepalives_idle"]) == ("60000", "30")
    with connect_postgres(f"{postgres_url}?keepalives_idle=5") as own:
        assert own.info.get_parameters()["keepalives_idle"] == "5"


def test_a_package_that_takes_long_to_load_keeps_no_other_executor() -> None:
    loading, may_end = threading.Event(), threading.Event()

    def slow() -> Any:
        loading.set()
        may_end.wait(PATIENCE)
        return object()

    registry = Registry({"quick": lambda: "quick", "slow": slow})  # type: ignore[arg-type, return-value]
    registry.get("quick")
    waiting = started(lambda: registry.get("slow"))
    assert loading.wait(PATIENCE)
    found: list[object] = []
    started(lambda: found.append(registry.get("quick"))).join(PATIENCE)
    assert found == ["quick"]
    may_end.set()
    waiting.join(PATIENCE)


def test_a_callback_that_fails_keeps_no_other_from_the_stop() -> None:
    context = make_context()
    heard: list[str] = []

    def fail(reason: str) -> None:
        raise RuntimeError("not today")

    context.on_stop(fail)
    context.on_stop(heard.append)
    context.stop("cancelled")
    assert heard == ["cancelled"]
