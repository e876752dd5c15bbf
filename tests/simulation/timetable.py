"""What must hold for cursors and the ledger: each occurrence has one outcome, and one run at most.

The induction is over commits: whenever a cursor moves, the ledger grows in the same transaction
by exactly the occurrences that the cursor passed.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rota.model.duration import EPOCH, micros, parse_duration
from rota.model.run import occurrence_id
from rota.model.schedule import WAITING_FOR_RUN, Calendar, Schedule
from rota.model.transitions import TERMINAL
from tests.simulation.clock import SECOND
from tests.simulation.history import Violation

if TYPE_CHECKING:
    from tests.simulation.recorder import Commit, Recorder
    from tests.simulation.world import Actor

NEVER = micros(WAITING_FOR_RUN)
TIMING = ("kind", "expr", "timezone", "dst", "anchor", "first_run", "starts_at", "ends_at")


def check_ledger_row(rec: Recorder, commit: Commit, row: Any, how: str) -> None:
    match how:
        case "insert":
            if row.run_id is not None:
                rec.stands_for[row.run_id] += row.count or 0
        case _:
            old = rec.ledger[row.schedule_id, row.occurrence]
            _check_folded(rec, commit, old)
            commit.folded.append((old, None if how == "delete" else row))


def _check_folded(rec: Recorder, commit: Commit, row: Any) -> None:
    if commit.verb != "fold_ledger":
        raise Violation(f"{commit.verb} changed {row} in the ledger")
    if row.recorded_at >= commit.now - round(commit.asked["age_seconds"] * SECOND):
        raise Violation(f"{row} was folded too young")
    schedule = rec.schedules.get(row.schedule_id)
    cursor = schedule.next_fire_at if schedule is not None else None
    if cursor is not None and row.last_occurrence >= cursor:
        raise Violation(f"{row} was folded past the cursor {cursor}")


def _check_fold(commit: Commit) -> None:
    """Folding keeps how many occurrences had which outcome, and between which instants."""
    before = [old for old, _ in commit.folded]
    after = [new for _, new in commit.folded if new is not None]
    if not after:
        raise Violation(f"folding removed {before}")
    for outcome in {row.outcome for row in before}:
        old, new = ([row for row in rows if row.outcome == outcome] for rows in (before, after))
        if sum(row.count or 0 for row in old) != sum(row.count or 0 for row in new):
            raise Violation(f"folding made {new} of {old}")
    if max(row.last_occurrence for row in before) != max(row.last_occurrence for row in after):
        raise Violation(f"folding made {after} of {before}")


def check_reading(actor: Actor) -> None:
    """Remember when the look at due schedules was, and whether it fell into a glitch.

    The first reading of a process is believed: it has nothing to compare it with.
    """
    actor.read_at = actor.looked_at
    actor.misread = actor.in_glitch and actor.readings > 0
    actor.readings += not actor.in_glitch


def check_commit(rec: Recorder, commit: Commit) -> None:
    ledger: dict[int, list[Any]] = {}
    for row in commit.ledger:
        ledger.setdefault(row.schedule_id, []).append(row)
    for id in dict.fromkeys((*commit.schedules, *ledger)):
        before, after = commit.schedules.get(id, rec.schedules.get(id)), rec.schedules.get(id)
        rows = sorted(ledger.get(id, ()), key=lambda row: row.occurrence)
        _check_schedule(rec, commit, before, after, rows)
    if commit.fired or commit.ledger:
        _check_fired(rec, commit)
    if commit.folded:
        _check_fold(commit)
    for schedule in rec.schedules.values():
        if schedule.next_fire_at == NEVER:
            _check_waits(rec, commit, schedule)


def _check_waits(rec: Recorder, commit: Commit, schedule: Any) -> None:
    """Who counts from the end of a run waits for one that is under way, and for nothing else."""
    last = EPOCH + timedelta(microseconds=schedule.last_fired_at)
    run = rec.runs.get(rec.run_by_id.get(occurrence_id(schedule.id, last), 0))
    if run is None or run.state in TERMINAL:
        raise Violation(f"{schedule.name} waits for a run that is over, after {commit.verb}: {run}")


def _check_schedule(
    rec: Recorder, commit: Commit, before: Any, after: Any, rows: list[Any]
) -> None:
    if before is None or after is None:
        if rows or commit.verb not in ("put_schedule", "drop_schedule"):
            raise Violation(f"{commit.verb} made or removed the schedule of {rows}")
        return
    if before.paused != after.paused:
        _check_pause(commit, before, after)
    match commit.verb:
        case "fire" | "fire_group":
            _check_fire(rec, commit, before, after, rows)
        case "resume_schedule":
            _check_resume(rec, commit, before, after, rows)
        case "put_schedule":
            _check_edit(rec, commit, before, after, rows)
        case "settle" | "sweep" | "cancel_run" | "delete_run":
            _check_restart(rec, commit, before, after)
        case "pause_schedule":
            if after.next_fire_at != before.next_fire_at or rows:
                raise Violation(f"a pause moved the cursor of {after.name}")
        case _:
            raise Violation(f"{commit.verb} changed schedule {after.name}: {before} -> {after}")


def _check_pause(commit: Commit, before: Any, after: Any) -> None:
    by_death = before.on_error == "pause" or before.pause_after is not None
    legal = {
        "pause_schedule": after.paused,
        "resume_schedule": before.paused,
        "settle": after.paused and by_death,
    }
    if not legal.get(commit.verb):
        raise Violation(f"{commit.verb} changed the pause of {after.name}")


def _check_fire(rec: Recorder, commit: Commit, before: Any, after: Any, rows: list[Any]) -> None:
    name, cursor, following = before.name, before.next_fire_at, after.next_fire_at
    if commit.actor.misread:
        raise Violation(f"{name} fired at a clock that had jumped a moment ago")
    if following == cursor:
        raise Violation(f"{name}: the ledger grew by {rows} and the cursor stayed")
    if before.paused or not before.enabled:
        raise Violation(f"{name} fired while it was paused or disabled")
    if cursor is None or cursor > max(commit.now, commit.actor.read_at):
        raise Violation(f"{name} fired {cursor} too early, at {commit.now}")
    if following is not None and following <= cursor:
        raise Violation(f"{name}: the cursor went back from {cursor} to {following}")
    _check_fired_cursor(rec, commit, before, after, rows)


def _check_fired_cursor(
    rec: Recorder, commit: Commit, before: Any, after: Any, rows: list[Any]
) -> None:
    """Who counts from the end of its run waits for it; where there is none, it counts from now."""
    delays = (before.kind, before.anchor) == ("every", "delay")
    _check_ledgered(rec, before, NEVER if delays else after.next_fire_at, rows)
    if delays and after.next_fire_at != NEVER:
        if commit.fired_by(before.id):
            raise Violation(f"{before.name} did not wait for the end of its run")
        _check_counts(commit, after)


def _check_resume(rec: Recorder, commit: Commit, before: Any, after: Any, rows: list[Any]) -> None:
    name, cursor, following = before.name, before.next_fire_at, after.next_fire_at
    if cursor is None or cursor > commit.now:
        if following != cursor or rows:
            raise Violation(f"{name}: resume moved a cursor that was not due")
        return
    if following is not None and following <= commit.now:
        raise Violation(f"{name}: resume left the cursor at {following}, in the past")
    replayed = commit.asked.options.get("catch_up") is not None
    if any(row.outcome != "missed" for row in rows) and not replayed:
        raise Violation(f"{name}: resume recorded {rows}")
    if all(row.outcome == "missed" for row in rows):
        _check_ledgered(rec, before, following, rows)
    else:
        _check_fired_cursor(rec, commit, before, after, rows)


def _check_edit(rec: Recorder, commit: Commit, before: Any, after: Any, rows: list[Any]) -> None:
    name, cursor, following = before.name, before.next_fire_at, after.next_fire_at
    retimed = any(getattr(before, part) != getattr(after, part) for part in TIMING)
    if retimed:
        past = following is not None and following <= commit.now and after.kind != "once"
        if past:
            raise Violation(f"{name}: an edit put the cursor at {following}, in the past")
        _check_rewound(rec, after)
    elif after.enabled and not before.enabled:
        _check_resume(rec, commit, before, after, rows)
    elif following != cursor or rows:
        raise Violation(f"{name}: an edit moved the cursor {cursor} -> {following}")


def _check_rewound(rec: Recorder, schedule: Any) -> None:
    """Only after the clock went back, or for an instant that is over, does a cursor come to where
    the ledger was already: there the ledger may know better."""
    last = max(rec.ledgered[schedule.id], default=0)
    if schedule.next_fire_at is not None and schedule.next_fire_at <= last:
        rec.rewound[schedule.id] = last


def _check_restart(rec: Recorder, commit: Commit, before: Any, after: Any) -> None:
    if before.next_fire_at == after.next_fire_at:
        return
    if before.next_fire_at != NEVER or (after.kind, after.anchor) != ("every", "delay"):
        raise Violation(f"{commit.verb} moved the cursor of {after.name}")
    _check_counts(commit, after)
    _check_rewound(rec, after)
    last = (after.id, after.last_fired_at, None)
    for run in rec.runs.values():
        mine = (run.schedule_id, run.occurrence, run.retry_of) == last
        if mine and run.state not in TERMINAL:
            raise Violation(f"{after.name} counts from the end of its run, and {run.seq} goes on")


def _check_counts(commit: Commit, schedule: Any) -> None:
    """It counts from now on. A clock that was stepped back takes no cursor along."""
    interval = parse_duration(schedule.expr, "every")
    begins = max(commit.now, schedule.last_fired_at or 0)
    expected: int | None = begins + interval // timedelta(microseconds=1)
    if schedule.ends_at is not None and expected > schedule.ends_at:
        expected = None
    if schedule.next_fire_at != expected:
        raise Violation(f"{schedule.name} restarts at {schedule.next_fire_at}, not at {expected}")


def _check_ledgered(rec: Recorder, schedule: Any, following: int | None, rows: list[Any]) -> None:
    """What the cursor passed is in the ledger, each occurrence once and for ever."""
    passed, known = list(_passed(schedule, following)), rec.ledgered[schedule.id]
    if not passed:
        raise Violation(f"{schedule.name} went on past its end: {rows}")
    # Led back to where it was already, it may fire what a wrong clock had called missed; that no
    # occurrence gets a second run is checked elsewhere, and always.
    if passed[0] > rec.rewound.get(schedule.id, 0):
        _check_tiles(schedule.name, rows, passed)
        if again := known.intersection(passed):
            raise Violation(f"{schedule.name}: {sorted(again)} are in the ledger once more")
    known.update(passed)


def _check_tiles(name: str, rows: list[Any], passed: list[int]) -> None:
    """Rows and stretches cover what the cursor passed: in order, without gap or overlap."""
    place = 0
    for row in rows:
        end = place + (row.count or 0)
        if passed[place : place + 1] != [row.occurrence] or end > len(passed):
            raise Violation(f"{name}: the ledger says {row}, the calendar {passed[place:]}")
        if passed[end - 1] != row.last_occurrence:
            raise Violation(f"{name}: the stretch {row} does not end at {passed[end - 1]}")
        place = end
    if place != len(passed):
        raise Violation(f"{name}: nothing in the ledger about {passed[place:]}")


def _check_fired(rec: Recorder, commit: Commit) -> None:
    made = {run.id: run for run in commit.fired}
    fired = {row.run_id: row for row in commit.ledger if row.outcome == "fired"}
    if made.keys() != fired.keys():
        raise Violation(f"runs {sorted(made)} were made and {sorted(fired)} ledgered as fired")
    for run_id, row in fired.items():
        occurrence = EPOCH + timedelta(microseconds=row.occurrence)
        if run_id != occurrence_id(row.schedule_id, occurrence):
            raise Violation(f"run {run_id} does not have the id of its occurrence {row}")
        if (made[run_id].schedule_id, made[run_id].occurrence) != row[:2]:
            raise Violation(f"run {made[run_id].seq} is of another occurrence than {row}")
    for run_id in {row.run_id for row in commit.ledger if row.run_id is not None}:
        run = rec.runs.get(rec.run_by_id.get(run_id, 0))
        if run is None:
            raise Violation(f"the ledger names run {run_id}, which does not exist")
        if run.missed_count != rec.stands_for[run_id]:
            raise Violation(
                f"run {run.seq} stands for {rec.stands_for[run_id]} occurrences and says "
                f"{run.missed_count}"
            )


# The calendar


def _passed(schedule: Any, following: int | None) -> Iterator[int]:
    """The occurrences from the cursor up to, not including, where it stands now."""
    calendar = _calendar(schedule.kind, schedule.expr, schedule.timezone, schedule.dst)
    moment = begin = EPOCH + timedelta(microseconds=schedule.next_fire_at)
    if following == NEVER:
        yield schedule.next_fire_at
        return
    last = following - 1 if following is not None else schedule.ends_at
    if last is None and schedule.kind != "once":
        raise Violation(f"{schedule.name} ended, and its calendar goes on")
    while True:
        at = micros(moment)
        if last is not None and at > last:
            return
        yield at
        successor = calendar.next_after(moment, begin)
        if successor is None:
            return
        moment = successor


@lru_cache(maxsize=1_000)
def _calendar(kind: str, expr: str, timezone: str, dst: str) -> Calendar:
    told = Schedule(name="any", job="any", kind=kind, expr=expr, timezone=timezone, dst=dst)
    return told.calendar
