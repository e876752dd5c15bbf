"""A whole life of a process in one thread, so that its n-th database call is always the same one.

The loops are the real ones, stepped by hand in a fixed order; handlers run inside the step that
begins them, and time passes when nothing is left to do. One call fails as a driver fails, once. As
a loop does, whoever was refused asks again. When all has come to rest the usual judge looks at it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import rota
from rota.executors.attempt import conclude, perform
from rota.executors.protocol import Context
from rota.executors.signatures import Function, handler_of
from rota.flow.events import NAMES, RunEvent
from rota.flow.home import check_home
from rota.flow.service import PARTS, Service
from rota.model.job import Job
from rota.model.outcome import Outcome
from rota.storage import operations
from rota.storage.store import open_store
from rota.testing import Clock
from tests.fault.checker import check
from tests.fault.client import Client
from tests.fault.history import EPOCH, History, read_rows
from tests.fault.notes import Notebook, read_notes
from tests.fault.points import Nth, fault_of
from tests.fault.serve import token

LEASE_SECONDS = 30.0
MAX_LOST = 5
ROUNDS = 1
MOST_ROUNDS = 200
MOST_REFUSALS = 3  # one fault is planted; a group of calls may share it
# What a process does each second, in an order of its own.
LOOPS = ("promote", "fire", "claim", "settle", "claim", "notes", "renew", "settle", "rescue",
         "watch", "prune", "beat")  # fmt: skip
SCHEDULES: dict[str, dict[str, Any]] = {
    **{overlap: {"overlap": overlap} for overlap in ("queue", "wait", "skip", "allow")},
    "spread": {"overlap": "queue", "spread": "500ms"},
}

T = TypeVar("T")


class Timed(Notebook):
    """Notes by the clock of the test: no two at the same instant."""

    def __init__(self, path: Path, by: str, clock: Clock) -> None:
        super().__init__(path, by)
        self.clock, self._ticks = clock, itertools.count()

    @property
    def moment(self) -> float:
        return (self.clock.now - EPOCH).total_seconds() + 1e-6 * next(self._ticks)

    def write(self, what: str, **facts: object) -> None:
        moment = self.moment
        super().write(what, **{**facts, "mono": moment, "wall": moment})


class Inline:
    """Runs a handler where it is begun."""

    name = "python"

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}

    def check(self, job: Job) -> None: ...

    def run(self, context: Context) -> Outcome:
        function = self.functions[context.job]
        return conclude(perform(handler_of(function), context), context)

    def start(self, context: Context, done: Callable[[Outcome], None]) -> bool:
        done(self.run(context))
        return True


class Wishes(Client):
    """A client that asks for one of everything, and again when it was refused."""

    def __init__(self, app: rota.Rota, notebook: Timed, seed: int) -> None:
        super().__init__(app, notebook, random.Random(seed))

    def monotonic(self) -> float:
        assert isinstance(self.notebook, Timed)
        return self.notebook.moment

    def round(self) -> None:
        for wish in (self.plain, self.batch, self.keyed, self.keyed, self.flaky, self.once,
                     self.delayed, self.late, self.on_connection, self.cancelled):  # fmt: skip
            wish()


class Life:
    """From an empty database to the last run's end; call number `number` fails."""

    def __init__(self, database: str, folder: Path, *, number: int, seed: int = 1) -> None:
        self.database, self.folder = database, folder
        self.clock = Clock(datetime(2026, 3, 1, tzinfo=UTC))
        self.notebook = Timed(folder / "notes.jsonl", "life", self.clock)
        self.refusals = 0
        self.fault = Nth(number, self.notebook, self._fail)
        store = open_store(database, clock=self.clock, probe=self.fault)
        self.app = self._make_app(store)
        self.client = Wishes(self.app, self.notebook, seed)

    @property
    def point(self) -> str | None:
        """Where it failed; None if the life was over before."""
        return self.fault.met

    def _fail(self) -> None:
        raise fault_of(self.database)

    def live(self) -> None:
        store = self.app.storage
        self.ask(store.migrate)
        self.ask(self.app.load)
        self.ask(lambda: check_home(store, None))
        service = Service(
            store,
            self.app._service_options(PARTS),
            jobs=self.app._jobs,
            executors=self.app.executors,
            events=self.app.events,
            termination_hook_of=self.app._termination_hook_of,
        )
        assert service.worker is not None
        steps = {name: loop.step for name, loop in (service.loops | service.worker.loops).items()}
        self.app.events.start()
        for number in range(MOST_ROUNDS):
            if number < ROUNDS:
                self.client.round()
            elif self.at_rest():
                break
            for name in LOOPS:
                self.ask(steps[name])
            self.clock.advance("1s")
        else:
            raise AssertionError(f"after {MOST_ROUNDS} rounds runs are still under way")
        self.app.events.stop(10.0)
        self.ask(lambda: store.write(operations.forget_worker, service.worker.worker_id))
        self.app.close()
        self.notebook.close()

    def ask(self, call: Callable[[], T]) -> T:
        """Again after a refusal, as a loop does; anything else is nothing a loop expects."""
        while True:
            try:
                return call()
            except rota.Unavailable:
                self.refusals += 1
                assert self.refusals <= MOST_REFUSALS, "refused again and again"

    def at_rest(self) -> bool:
        """Nothing is fired any more, and nothing is under way."""
        for name in SCHEDULES:
            if not self.ask(partial(self.app.control.schedule, name)).paused:
                self.ask(partial(self.app.control.pause, name))
        runs = self.ask(lambda: self.app.storage.read(operations.list_runs, limit=500))
        return all(run.state in ("succeeded", "dead", "cancelled") for run in runs)

    def judge(self) -> list[str]:
        history = History(
            notes=list(read_notes(self.folder / "notes.jsonl")),
            rows=read_rows(self.database),
            lease=LEASE_SECONDS,
            max_lost=MAX_LOST,
        )
        # Whoever was refused asks again or gives back: no lease has to run out for that.
        lost = [
            f"run {run_id} lost an attempt" for run_id, row in history.runs.items() if row["lost"]
        ]
        idle = [] if history.by_attempt("end") else ["no handler ended"]
        return [str(one) for one in check(history)] + lost + idle

    def _make_app(self, store: Any) -> rota.Rota:
        app = rota.Rota(
            self.database, storage=store, max_lost=MAX_LOST, lease=f"{LEASE_SECONDS}s", slots=4,
            retention={"cancelled": "1s"}, keep_last=0, scheduler={"pace": "1s"},
        )  # fmt: skip
        inline, notebook = Inline(), self.notebook
        app.executors.register("python", inline)

        def perform_it(ctx: rota.Context, key: str | None = None) -> str:
            about = {"run": ctx.run_id, "attempt": ctx.attempt, "pid": 0, "key": key}
            notebook.write("start", **about)
            notebook.write("end", **about)
            return token(notebook.by, ctx.attempt)

        def plain(ctx: rota.Context, seconds: float = 0.0) -> str:
            ctx.progress(1)
            return perform_it(ctx)

        def keyed(ctx: rota.Context, key: str, seconds: float = 0.0) -> str:
            return perform_it(ctx, key)

        def flaky(ctx: rota.Context) -> str:
            told = perform_it(ctx)
            if ctx.attempt == 1:
                raise RuntimeError(told)
            return told

        for function in (plain, keyed, flaky):
            app.job(max_attempts=3, delay="1s", backoff="fixed", isolation="thread")(function)
            inline.functions[function.__name__] = function
        for name, options in SCHEDULES.items():
            app.schedule(name, job="plain", every="1s", catch_up="all", **options)
        for event in NAMES:
            if event not in ("job.started", "attempt.started"):
                app.on(event)(_teller(notebook, event))
        return app


def _teller(notebook: Timed, event: str) -> Callable[[RunEvent], None]:
    return lambda told: notebook.write("told", event=event, run=told.run_id, attempt=told.attempt)
