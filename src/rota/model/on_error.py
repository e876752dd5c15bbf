"""The action of a schedule when one of its runs is dead.

| on_error | then |
|---|---|
| `next` | nothing: the next occurrence comes at its time |
| `retry` | one more run for the same occurrence, in 1 min, then 2, 4, …, never past the next one |
| `pause` | the schedule is paused, with the reason |

`pause_after = N` pauses after N dead runs in a row, whichever of the three is set.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from rota.model.duration import micros
from rota.model.run import OCCURRENCES, Run
from rota.model.schedule import WAITING_FOR_RUN, Schedule

FIRST_RETRY = timedelta(minutes=1)
LONGEST_RETRY = timedelta(days=1)
MOST_RETRIES = (LONGEST_RETRY // FIRST_RETRY).bit_length()  # after these a wait would be longer


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadRunAction:
    """The action. `retry_at` None: no further run; `pause_reason` None: no pause."""

    retry_at: datetime | None = None
    pause_reason: str | None = None


def on_dead_run(
    schedule: Schedule, run: Run, now: datetime, deaths_in_a_row: int, retries: int
) -> DeadRunAction:
    """Decide after a run of an occurrence is dead.

    `retries` is the number of retry runs up to this one. It cannot be read from the run's row:
    each attempt and each redo sets `due_at` anew."""
    if schedule.paused:
        return DeadRunAction()
    if schedule.pause_after is not None and deaths_in_a_row >= schedule.pause_after:
        streak = (
            f"{deaths_in_a_row} runs in a row died (pause_after = {schedule.pause_after}; attempts "
        )
        return DeadRunAction(pause_reason=f"{streak}are not counted), the last: {run.id}")
    match schedule.on_error:
        case "pause":
            after = schedule.pause_after
            waits = "" if after is None else f", which does not wait for pause_after = {after}"
            return DeadRunAction(pause_reason=f"run {run.id} died (on_error = pause{waits})")
        case "retry" if schedule.enabled:
            return DeadRunAction(retry_at=_retry_at(schedule, now, retries))
        case _:
            return DeadRunAction()


def _retry_at(schedule: Schedule, now: datetime, retries: int) -> datetime | None:
    wait = FIRST_RETRY * (1 << retries)
    following = schedule.next_fire_at
    if wait > LONGEST_RETRY:
        return None
    if following is not None and following < WAITING_FOR_RUN and now + wait >= following:
        return None
    return now + wait


def retries_within(span: timedelta) -> int:
    """The most retries that fit into a time: together they wait 1 + 2 + 4 + … minutes."""
    return min(MOST_RETRIES, (max(0, span // FIRST_RETRY) + 1).bit_length() - 1)


def retry_id(run: Run) -> str:
    """The id of the retry run. It derives from the dead run, so the retry is inserted once."""
    return str(uuid.uuid5(OCCURRENCES, f"{run.id}|retry|{micros(run.created_at)}|{run.redo}"))
