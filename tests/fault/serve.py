"""The process under test: a scheduler, a worker and a client, with every kind of run there is."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import rota
from rota.flow import fire, rescue
from rota.flow.events import NAMES, RunEvent
from rota.flow.loop import Loop
from rota.flow.prune import Prune
from rota.storage.postgres import marks
from rota.storage.store import open_store
from tests.fault.client import Client
from tests.fault.notes import Notebook
from tests.fault.observer import UNDER_WAY, Observer, query
from tests.fault.points import probe_from_environment, scripts_have_points
from tests.fault.weaken import weaken

MAX_LOST = 1_000  # a kill costs a run nothing here, so that only failures make it dead
NOT_NOW = 75  # exit code of a process that found no database; whoever supervises starts it again
OVERLAPS = ("queue", "wait", "skip", "allow")
KIN = 12
# What is done once or twice a minute is done each second here, and what is done with hundreds of
# schedules is done with a few.
fire.LOOK = fire.HERD_RUNS = 2
fire.Fire.__init__.__kwdefaults__["least_group"] = 2
rescue.SWEEP_EVERY = 1
Prune.__init__.__kwdefaults__["interval"] = 0.5


def serve(
    *,
    database: str,
    notes: str,
    name: str,
    seed: int,
    parts: Sequence[str] = ("scheduler", "worker"),
    client: bool = True,
    drain: bool = False,
    lease: str = "2s",
    slots: int = 8,
) -> int:
    """Run until SIGTERM, or whatever else ends it; to `drain`: until no run is under way."""
    notebook = Notebook(notes, name)
    os.environ["ROTA_TEST_DATABASE"] = database
    told_to_stop = hear_stop()
    tell_turns(notebook, os.environ.get("ROTA_TEST_TURNS", "").split())
    if os.environ.get("ROTA_TEST_LONG_LOOKS"):  # each look from the head of a line counts as one
        marks.SLOW_SECONDS = marks.SLOW_SECONDS_PER_RUN = marks.LONG_SECONDS = 0.0
    with weaken(os.environ.get("ROTA_TEST_WEAKEN")), scripts_have_points():
        try:
            store = open_store(
                database,
                pool_size=slots + 8,
                clock=clock_from_environment(),
                probe=probe_from_environment(notebook),
                fast_paths=has_fast_paths(),
            )
            store.migrate()
            app = make_app(database, notebook, storage=store, lease=lease, slots=slots)
            app.start(parts)
        except rota.Unavailable as fault:
            notebook.write("no database", error=str(fault))
            return NOT_NOW
        notebook.write("up", pid=os.getpid())
        # Nobody else can look into a DuckDB file meanwhile.
        observer = Observer(database, notebook) if database.startswith("duckdb") else None
        if observer is not None:
            observer.start()
        asking = Client(app, notebook, random.Random(seed)) if client else None
        if asking is not None:
            asking.start()
        # Again and again: a signal that the kernel hands to another thread interrupts no wait here.
        while not told_to_stop(0.2) and not (drain and query(database, UNDER_WAY) == 0):
            pass
        if asking is not None:
            asking.stop()
        if observer is not None:
            observer.stop()
        app.stop()
    notebook.write("down")
    return 0


def tell_turns(notebook: Notebook, names: Sequence[str]) -> None:
    """ROTA_TEST_TURNS="claim rescue": write down when each turn of these loops began, whether it
    failed, and the pause after it."""
    if not names:
        return
    take_turn, pause_after = Loop._take_turn, Loop._pause_after
    began: dict[str, float] = {}

    def told(loop: Loop, pause: float, *, failed: bool) -> float:
        if loop.name in names:
            at = began[loop.name]
            notebook.write("turn", loop=loop.name, began=at, failed=failed, pause=pause)
        return pause

    def take_told_turn(loop: Loop) -> None:
        began[loop.name], step = time.monotonic(), loop.step
        loop.step = lambda: told(loop, step(), failed=False)
        try:
            take_turn(loop)
        finally:
            loop.step = step

    Loop._take_turn = take_told_turn  # type: ignore[method-assign]
    Loop._pause_after = lambda loop, fault: told(  # type: ignore[method-assign]
        loop, pause_after(loop, fault), failed=True
    )


def hear_stop() -> Callable[[float], bool]:
    """Hear SIGTERM from now on; the answer waits for it that many seconds. Without an Event: the
    handler would wait for ever if it interrupted a wait that holds the Event's lock."""
    told: SimpleQueue[None] = SimpleQueue()
    signal.signal(signal.SIGTERM, lambda number, frame: told.put(None))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])  # the zygote blocked it

    def wait(seconds: float) -> bool:
        try:
            told.get(timeout=seconds)
        except Empty:
            return False
        return True

    return wait


def begin(*, database: str, notes: str, name: str) -> int:
    """Make the store and save jobs and schedules: what happens once in the life of a store."""
    notebook = Notebook(notes, name)
    with scripts_have_points():
        store = open_store(
            database, probe=probe_from_environment(notebook), fast_paths=has_fast_paths()
        )
        store.migrate()
        store.check_schema()
        app = make_app(database, notebook, storage=store)
        app.load()
        app.close()
    return 0


def make_app(database: str, notebook: Notebook, **settings: object) -> rota.Rota:
    """Jobs that write down when they start and end, and schedules of all policies."""
    app = rota.Rota(
        database,
        max_lost=MAX_LOST,
        grace="5s",
        # Only what was cancelled is pruned: of all other runs every row must be there at the end.
        retention={"cancelled": "1s"} | retention_from_environment(),
        keep_last=0,
        scheduler={"pace": "1s"},
        **settings,
    )

    def perform(ctx: rota.Context, seconds: float, key: str | None = None) -> str:
        about = {"run": ctx.run_id, "attempt": ctx.attempt, "pid": os.getpid(), "key": key}
        notebook.write("start", **about)
        ctx.wait(seconds)
        notebook.write("end", **about)
        return token(notebook.by, ctx.attempt)

    @app.job()
    def plain(ctx: rota.Context, seconds: float = 0.0) -> str:
        return perform(ctx, seconds)

    @app.job()
    async def quick(ctx: rota.Context) -> None:  # has no result
        perform(ctx, 0.0)

    @app.job()
    def keyed(ctx: rota.Context, key: str, seconds: float = 0.0) -> str:
        return perform(ctx, seconds, key)

    @app.job(max_attempts=3, delay="100ms", backoff="fixed")
    def flaky(ctx: rota.Context) -> str:
        told = perform(ctx, 0.01)
        if bad_luck(ctx.run_id, ctx.attempt):
            raise RuntimeError(told)
        return told

    @app.job()
    def tick(ctx: rota.Context, seconds: float = 0.0) -> str:
        return perform(ctx, seconds)

    for overlap in OVERLAPS:
        app.schedule(f"{overlap}-short", job="tick", every="1s", overlap=overlap, catch_up="all")
        # Longer than a second, so that there is always one that has not ended when the next comes.
        app.schedule(
            f"{overlap}-long",
            job="tick",
            every="1s",
            overlap=overlap,
            queue_max=2 if overlap == "queue" else None,
            args={"seconds": 1.1},
        )
    app.schedule("often", job="tick", every="200ms", overlap="allow", catch_up="all")
    app.schedule("delay", job="tick", every="500ms", anchor="delay")
    app.schedule("spread", job="tick", every="1s", spread="500ms", overlap="queue")
    for number in range(KIN):
        app.schedule(f"kin-{number}", job="tick", cron="*/2 * * * * *", overlap="queue")
    for name, options in herd_from_environment().items():
        app.schedule(name, job="tick", **options)
    for event in NAMES:
        if event not in ("job.started", "attempt.started"):
            app.on(event)(_teller(notebook, event))
    return app


def has_fast_paths() -> bool:
    """ROTA_TEST_PLAIN=1: every operation is the plain one, also on PostgreSQL."""
    return "ROTA_TEST_PLAIN" not in os.environ


def clock_from_environment() -> Callable[[], datetime] | None:
    """ROTA_TEST_CLOCK names a file with the seconds by which the deciding clock is off."""
    path = os.environ.get("ROTA_TEST_CLOCK")
    if path is None:
        return None
    return lambda: datetime.now(UTC) + timedelta(seconds=float(Path(path).read_text()))


def retention_from_environment() -> dict[str, str]:
    """ROTA_TEST_RETENTION: how long runs are kept that have ended well."""
    kept = os.environ.get("ROTA_TEST_RETENTION")
    return {} if kept is None else {"succeeded": kept}


def herd_from_environment() -> dict[str, dict[str, Any]]:
    """ROTA_TEST_HERD=500/2s: so many schedules that are due at the same instants."""
    number, _, every = os.environ.get("ROTA_TEST_HERD", "0/1s").partition("/")
    kinds = ("all", "one", "none")
    return {
        f"herd-{one}": {"every": every, "overlap": "allow", "catch_up": kinds[one % 3]}
        for one in range(int(number))
    }


def _teller(notebook: Notebook, event: str):  # type: ignore[no-untyped-def]
    def tell(told: RunEvent) -> None:
        notebook.write("told", event=event, run=told.run_id, attempt=told.attempt)

    return tell


def token(by: str, attempt: int) -> str:
    """What a handler returns: the stored result names who gave it."""
    return f"{by} attempt {attempt}"


def bad_luck(run_id: str, attempt: int) -> bool:
    """Half of all attempts fail, and the same one always does."""
    return hashlib.sha256(f"{run_id} {attempt}".encode()).digest()[0] % 2 == 0
