"""One story that every surface must tell in the same way: start 5, pause 2, fail 1, drop 1.

Five schedules fire once each, and a worker does their runs: four succeed and one is dead. Then an
operator pauses two schedules and drops one. What each surface must say of it is `Told`.

    with scenario(url) as (app, told):
        assert {one.name: one.status for one in app.control.schedules()} == told.schedules

The app goes on running inside, so that its worker is alive, and nothing more happens by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import rota
from rota.flow.events import RunEvent
from tests.api.support import wait_until

STARTED = ("alpha", "beta", "gamma", "delta", "epsilon")
PAUSED, FAILED, DROPPED = ("alpha", "beta"), "delta", "epsilon"
WHY_PAUSED, WHY_DROPPED, ERROR = "moving the warehouse", "replaced by zeta", "no bread today"
LONGEST_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Told:
    """What is true after the story; names of schedules and of their jobs are the same."""

    jobs: tuple[str, ...] = tuple(sorted(STARTED))
    # The schedules that are left, with their status.
    schedules: Mapping[str, str] = field(
        default_factory=lambda: {
            name: "PAUSED" if name in PAUSED else "ACTIVE" for name in STARTED if name != DROPPED
        }
    )
    statuses: Mapping[str, int] = field(default_factory=lambda: {"PAUSED": 2, "ACTIVE": 2})
    # The state of the one run of each job.
    runs: Mapping[str, str] = field(
        default_factory=lambda: {
            name: "dead" if name == FAILED else "succeeded" for name in STARTED
        }
    )
    states: Mapping[str, int] = field(default_factory=lambda: {"succeeded": 4, "dead": 1})
    started: int = len(STARTED)
    fires: Mapping[str, int] = field(default_factory=lambda: {"fired": len(STARTED)})
    succeeded_jobs: tuple[str, ...] = tuple(name for name in STARTED if name != FAILED)
    # What operators did, in order, as the audit says it: (action, thing, reason).
    actions: tuple[tuple[str, str, str], ...] = (
        *(("pause_schedule", name, WHY_PAUSED) for name in PAUSED),
        ("drop_schedule", DROPPED, WHY_DROPPED),
    )
    workers: int = 1


@contextmanager
def scenario(database: str | None = None) -> Iterator[tuple[rota.Rota, Told]]:
    """Play it on a new store; None is the store of the settings."""
    app = rota.Rota() if database is None else rota.Rota(database)
    for name in STARTED:
        app.job(name, max_attempts=1)(_fail if name == FAILED else _succeed)
    ended = _Ends(app)
    now = datetime.now(UTC)
    for name in STARTED:
        app.schedule(name, job=name, every="1d", first_run=now)
    app.start()
    try:
        ended.wait()
        # A run may end before who fired it has counted that, and before the worker has said hello.
        wait_until(lambda: app.counters.counts().fires == Told().fires, "the fires are counted")
        wait_until(lambda: app.control.workers(), "the worker is known")
        for name in PAUSED:
            app.control.pause(name, WHY_PAUSED)
        app.control.drop(DROPPED, WHY_DROPPED)
        yield app, Told()
    finally:
        app.stop()
        app.close()


def _succeed() -> None:
    pass


def _fail() -> None:
    raise RuntimeError(ERROR)


class _Ends:
    """Waits until the run of every schedule has ended."""

    def __init__(self, app: rota.Rota) -> None:
        self._left, self._all = set(STARTED), threading.Event()
        for event in ("job.completed", "job.failed", "job.cancelled"):
            app.on(event)(self._ended)

    def _ended(self, event: RunEvent) -> None:
        self._left.discard(event.name)
        if not self._left:
            self._all.set()

    def wait(self) -> None:
        assert self._all.wait(LONGEST_SECONDS), f"these have not ended: {sorted(self._left)}"
