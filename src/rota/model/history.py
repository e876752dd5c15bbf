"""The events of one run, as in the view `events`: most of them follow from its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rota.model.run import Attempt, Run
from rota.model.transitions import CANCELLED, DEAD, RUNNING, SUCCEEDED

# The event for each final state.
ENDS = {SUCCEEDED: "job.completed", DEAD: "job.failed", CANCELLED: "job.cancelled"}


def events_of(
    run: Run, attempts: Iterable[Attempt], recorded: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The events, oldest first, numbered from 1 in `id`.

    `recorded` are the stored events; `attempts` are the attempts that have ended."""
    events = [
        _event(run, "run.created", run.created_at, None, run.created_by),
        *_tries(run, attempts),
        *({**row, "attempt": None} for row in recorded),
    ]
    if run.state in ENDS:
        detail = run.error or run.reason
        events.append(_event(run, ENDS[run.state], run.finished_at, run.attempt, detail))
    events.sort(key=lambda event: event["at"])  # stable: events of one instant stay in order
    return [{**event, "id": number} for number, event in enumerate(events, start=1)]


def _tries(run: Run, attempts: Iterable[Attempt]) -> Iterator[dict[str, Any]]:
    begun = False
    for attempt in attempts:
        if attempt.started_at is not None:
            if not begun:
                yield _event(run, "job.started", attempt.started_at, attempt.number, None)
            begun = True
            yield _event(run, "attempt.started", attempt.started_at, attempt.number, None)
        yield _event(
            run, f"attempt.{attempt.outcome}", attempt.finished_at, attempt.number, attempt.error
        )
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
