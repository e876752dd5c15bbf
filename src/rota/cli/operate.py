"""What operators do to things that exist: pause, resume, drop, cancel, redo, delete."""

from __future__ import annotations

from typing import Annotated, Any

from rota.cli.bulk import ONE, Many, check_choice, do_all
from rota.cli.enqueue import check_wait, say_end, wait_for_end
from rota.cli.find import find_run, run_or_none, schedule_or_none
from rota.cli.main import OK
from rota.cli.options import HERE, QUEUES, SCHEDULES, MaybeRun, Option, Wait, Where
from rota.cli.output import note, one_line, say, say_json
from rota.cli.records import run_record, schedule_record
from rota.cli.store import operating
from rota.cli.times import when, zone_of
from rota.errors import Invalid, Unknown
from rota.flow.control import Control
from rota.model.limits import PAGE
from rota.model.policies import CATCH_UP
from rota.model.run import Run
from rota.model.schedule import Schedule
from rota.model.transitions import RUNNING


def pause(
    thing: Annotated[
        str | None,
        Option(
            "A schedule, or the id of a run (at least 6 characters of it).", "X", values=SCHEDULES
        ),
    ] = None,
    /,
    *,
    queue: Annotated[
        str | None, Option("Stop claims from this queue, in all processes.", "NAME", values=QUEUES)
    ] = None,
    dispatch: Annotated[bool, Option("Stop all claims, in all processes.")] = False,
    reason: Annotated[
        str | None, Option("Kept with the change, and shown to others.", "TEXT")
    ] = None,
    where: Where = HERE,
) -> None:
    """Pause a schedule, a run, a queue or all dispatch. Runs under way go on."""
    _one_of(thing, queue, dispatch)
    with operating(where) as control:
        if queue is not None:
            known = control.queues()
            control.pause_queue(queue, reason)
            if len(known) < PAGE and queue not in {one["name"] for one in known}:
                note(
                    f"no job has used the queue {queue!r} so far; `rota queues` lists those in use"
                )
            return _done(f"queue {queue} is paused", {"queue": queue, "paused": True}, where)
        if dispatch:
            control.pause_dispatch(reason)
            return _done("dispatch is paused", {"dispatch": control.overview()["dispatch"]}, where)
        assert thing is not None, "one of the three was given"
        before = schedule_or_none(control, thing)
        if before is not None:
            paused = control.pause(thing, reason)
            told = f"schedule {thing} is paused"
            if before.paused:
                why = f": {one_line(before.paused_reason)}" if before.paused_reason else ""
                told = f"schedule {thing} was paused already, by {before.paused_by}{why}"
            return _done(told, schedule_record(paused), where)
        run = control.pause_run(_run_meant(control, thing).id, reason)
        told = "is asked to pause; what cannot stop on the way runs to its end"
        return _done_run(run, told if run.state == RUNNING else "is paused", where)


def resume(
    thing: Annotated[
        str | None,
        Option(
            "A schedule, or the id of a run (at least 6 characters of it).", "X", values=SCHEDULES
        ),
    ] = None,
    /,
    *,
    queue: Annotated[
        str | None, Option("Claim from this queue again.", "NAME", values=QUEUES)
    ] = None,
    dispatch: Annotated[bool, Option("Claim again, in all processes.")] = False,
    catch_up: Annotated[
        str | None,
        Option(
            "Make up for what a schedule missed: one, all or none. None if not given.",
            "CHOICE",
            values=tuple(CATCH_UP),
        ),
    ] = None,
    reason: Annotated[
        str | None, Option("Kept with the change of a schedule or a run.", "TEXT")
    ] = None,
    where: Where = HERE,
) -> None:
    """Resume what was paused. A schedule fires from now on; what it missed is not made up for."""
    _one_of(thing, queue, dispatch)
    if catch_up is not None and thing is None:
        raise Invalid("--catch-up belongs to a schedule")
    with operating(where) as control:
        if queue is not None:
            control.resume_queue(queue)
            return _done(f"queue {queue} is open", {"queue": queue, "paused": False}, where)
        if dispatch:
            control.resume_dispatch()
            return _done("dispatch is on", {"dispatch": control.overview()["dispatch"]}, where)
        assert thing is not None, "one of the three was given"
        if schedule_or_none(control, thing) is not None:
            resumed = control.resume(thing, reason, catch_up=catch_up)
            return _done(_resumed(control, resumed), schedule_record(resumed), where)
        run = _run_meant(control, thing)
        if catch_up is not None:
            raise Invalid(f"--catch-up belongs to a schedule, and {thing} is a run")
        run = control.resume_run(run.id, reason)
        return _done_run(run, f"is {run.state} again", where)


def drop(
    schedule: Annotated[str, Option("Its name.", "SCHEDULE", values=SCHEDULES)],
    /,
    *,
    reason: Annotated[str | None, Option("Kept with the change.", "TEXT")] = None,
    where: Where = HERE,
) -> None:
    """Remove a schedule. Its history and the runs it made stay."""
    with operating(where) as control:
        control.drop(schedule, reason)
    _done(f"schedule {schedule} is dropped", {"schedule": schedule, "dropped": True}, where)


def cancel(
    run: MaybeRun = None,
    /,
    *,
    reason: Annotated[str | None, Option("Kept with the run.", "TEXT")] = None,
    many: Many = ONE,
    where: Where = HERE,
) -> int:
    """Cancel a run. One that is running is asked to end by its worker."""
    check_choice(run, many, "cancel")
    with operating(where) as control:
        if run is None:
            return do_all(control, "cancel", many, reason=reason, where=where)
        told = control.cancel(find_run(control, run).id, reason)
    asked = told.state == RUNNING
    _done_run(told, "is running and asked to end" if asked else "is cancelled", where)
    return OK


def redo(
    run: MaybeRun = None,
    /,
    *,
    from_step: Annotated[
        str | None,
        Option(
            "Begin at this step: the name of its file, or its number.", "STEP", names=("--from",)
        ),
    ] = None,
    latest: Annotated[
        bool, Option("With the files as they are now, from the first step or from --from.")
    ] = False,
    wait: Wait = False,
    reason: Annotated[str | None, Option("Kept with the run.", "TEXT")] = None,
    many: Many = ONE,
    where: Where = HERE,
) -> int:
    """Start over a run that has ended. A SQL run goes on at its first step that is not done."""
    check_choice(run, many, "redo")
    if run is None and from_step is not None:
        raise Invalid("--from belongs to one run; with --all use --latest, or neither")
    if run is None and wait:
        raise Invalid("--wait belongs to one run; with --all leave it out")
    with operating(where) as control:
        if run is None:
            return do_all(control, "redo", many, reason=reason, where=where, latest=latest)
        found = find_run(control, run)
        check_wait(control, wait, where, found.job)
        told = control.redo(found.id, reason, from_step=from_step, latest=latest)
        for one in control.redo_notes(told.id):
            note(one)
        if wait:
            return say_end(wait_for_end(control, told.id, where), where)
    how = "starts over" if from_step is None else f"goes on at step {from_step}"
    _done_run(told, f"{how}; it is {told.state}", where)
    return OK


def delete(
    run: MaybeRun = None,
    /,
    *,
    reason: Annotated[str | None, Option("Kept in the audit.", "TEXT")] = None,
    many: Many = ONE,
    where: Where = HERE,
) -> int:
    """Delete a run with its attempts and logs. One that is running must be cancelled first."""
    check_choice(run, many, "delete")
    with operating(where) as control:
        if run is None:
            return do_all(control, "delete", many, reason=reason, where=where)
        run_id = find_run(control, run).id
        control.delete(run_id, reason)
    _done(f"run {run_id} is deleted", {"id": run_id, "deleted": True}, where)
    return OK


def _one_of(thing: str | None, queue: str | None, dispatch: bool) -> None:
    if sum((thing is not None, queue is not None, dispatch)) != 1:
        raise Invalid("give one of: a schedule or run, --queue NAME, --dispatch")


def _run_meant(control: Control, text: str) -> Run:
    run = run_or_none(control, text)
    if run is None:
        raise Unknown(f"{text!r} is no schedule and no run; `rota schedules` lists schedules")
    return run


def _resumed(control: Control, schedule: Schedule) -> str:
    if schedule.next_fire_at is None:
        return f"schedule {schedule.name} is resumed, but finished: {schedule.state}"
    fires = when(schedule.next_fire_at, control.now(), zone_of(schedule), named=True)
    return f"schedule {schedule.name} is resumed and fires {fires}"


def _done_run(run: Run, told: str, where: Where) -> None:
    _done(f"run {run.id} {told}", run_record(run), where)


def _done(told: str, record: dict[str, Any], where: Where) -> None:
    if where.json:
        say_json(record)
    else:
        say(told)
