"""Lifecycle events, told to listeners in the process that settles.

`job.started` once per run; `job.completed`, `job.failed`, `job.cancelled` once at its end;
`attempt.*` for each try. A listener that raises is logged and harms nobody.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from rota.errors import Invalid
from rota.model.outcome import KINDS, Settlement
from rota.model.run import Claimed

log = logging.getLogger("rota.events")

NAMES = (
    "job.started", "job.completed", "job.failed", "job.cancelled", "attempt.started",
    *(f"attempt.{kind}" for kind in KINDS if kind not in ("snoozed", "paused")),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """What a listener is given."""

    name: str
    run_id: str
    attempt: int
    scheduled_at: datetime
    duration_ms: float | None = None
    error: str | None = None
    file_path: str | None = None
    schedule: str | None = None


Listener = Callable[[RunEvent], None]


class Events:
    def __init__(self) -> None:
        self._listeners: defaultdict[str, list[Listener]] = defaultdict(list)

    def on(self, name: str, listener: Listener) -> None:
        if name not in NAMES:
            raise Invalid(f"event {name!r} is unknown; use one of {', '.join(NAMES)}")
        self._listeners[name].append(listener)

    def emit(self, name: str, event: RunEvent) -> None:
        for listener in self._listeners.get(name, ()):
            try:
                listener(event)
            except Exception:
                log.exception("a listener to %s failed", name)

    @property
    def listened(self) -> bool:
        """False on the hot path of most programs: then no event is built at all."""
        return bool(self._listeners)


def run_event(settlement: Settlement) -> RunEvent:
    ran_for = settlement.ran_for
    return RunEvent(
        name=settlement.run.job,
        run_id=settlement.run.id,
        attempt=settlement.run.attempt,
        scheduled_at=settlement.run.occurrence or settlement.run.due_at,
        duration_ms=None if ran_for is None else ran_for.total_seconds() * 1000,
        error=settlement.outcome.error,
    )


def started_event(run: Claimed) -> RunEvent:
    return RunEvent(
        name=run.job,
        run_id=run.id,
        attempt=run.attempt,
        scheduled_at=run.occurrence or run.due_at,
    )
