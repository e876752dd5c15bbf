"""What happened to one run, as the view `events` tells it: most of it follows from its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rota.model.run import Attempt, Run
from rota.model.transitions import CANCELLED, DEAD, RUNNING, SUCCEEDED

# What the end of a run is called among events.
ENDS = {SUCCEEDED: "job.completed", DEAD: "job.failed", CANCELLED: "job.cancelled"}


def events_of(
    run: Run, attempts: Iterable[Attempt], recorded: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The oldest first, each with its number in this history as `id`. `recorded` is what was stored
    as an event of its own; `attempts` are those that ended."""
    told = [
        _event(run, "run.created", run.created_at, None, run.created_by),
        *_tries(run, attempts),
        *({**row, "attempt": None} for row in recorded),
    ]
    if run.state in ENDS:
        detail = run.error or run.reason
        told.append(_event(run, ENDS[run.state], run.finished_at, run.attempt, detail))
    told.sort(key=lambda one: one["at"])  # what happened at one instant stays in its order
    return [{**one, "id": number} for number, one in enumerate(told, start=1)]


def _tries(run: Run, attempts: Iterable[Attempt]) -> Iterator[dict[str, Any]]:
    begun = False
    for one in attempts:
        if one.started_at is not None:
            if not begun:
                yield _event(run, "job.started", one.started_at, one.number, None)
            begun = True
            yield _event(run, "attempt.started", one.started_at, one.number, None)
        yield _event(run, f"attempt.{one.outcome}", one.finished_at, one.number, one.error)
    if run.state == RUNNING:
        if not begun:
            yield _event(run, "job.started", run.started_at, run.attempt, None)
        yield _event(run, "attempt.started", run.started_at, run.attempt, None)


def _event(run: Run, kind: str, at: Any, attempt: int | None, detail: str | None) -> dict[str, Any]:
    return {
        "at": at or run.created_at,
        "kind": kind,
        "run_id": run.id,
        "name": run.job,
        "attempt": attempt,
        "detail": detail,
    }
