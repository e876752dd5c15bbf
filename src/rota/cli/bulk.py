"""`redo|cancel|delete --all`: one verb for every run that a filter finds."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, Any

from rota.cli.main import FAILED, OK
from rota.cli.options import JOBS, QUEUES, SCHEDULES, Option, Where
from rota.cli.output import note, say, say_json
from rota.cli.progress import Progress
from rota.errors import Invalid
from rota.flow.bulk import Bulk, bulk_states
from rota.flow.control import Control
from rota.model.limits import BULK_RUNS
from rota.model.outcome import error_line
from rota.model.transitions import STATES

STEP = 100  # runs, until it is said how far it is
DONE = {"redo": "redone", "cancel": "cancelled, or asked to end", "delete": "deleted"}


@dataclass(frozen=True, kw_only=True)
class Many:
    """Which runs, where many are meant."""

    all: Annotated[
        bool, Option("Every run that the options below find. Asks before it does so.")
    ] = False
    job: Annotated[
        str | None, Option("With --all: only runs of this job.", "NAME", values=JOBS)
    ] = None
    schedule: Annotated[
        str | None,
        Option("With --all: only runs that this schedule made.", "NAME", values=SCHEDULES),
    ] = None
    queue: Annotated[
        str | None, Option("With --all: only runs in this queue.", "NAME", values=QUEUES)
    ] = None
    state: Annotated[
        str | None, Option("With --all: only runs in this state.", "STATE", values=STATES)
    ] = None
    yes: Annotated[bool, Option("With --all: do not ask.")] = False

    @property
    def filters(self) -> list[str]:
        """The options that were given."""
        names = ("job", "schedule", "queue", "state")
        return [f"--{name}" for name in names if getattr(self, name) is not None]


ONE = Many()  # the default of a parameter: immutable


def check_choice(run: str | None, many: Many, verb: str) -> None:
    """One run by its id, or many by a filter, and never both."""
    if many.filters and not many.all:
        raise Invalid(f"{many.filters[0]} belongs to --all; without it name one run: {verb} RUN")
    if (run is None) != many.all:
        raise Invalid(f"give the id of a run, or --all with what to {verb} (--job, --state, …)")
    if many.yes and not many.all:
        raise Invalid("--yes belongs to --all")


def do_all(
    control: Control,
    verb: str,
    many: Many,
    *,
    reason: str | None,
    where: Where,
    latest: bool = False,
) -> int:
    """Ask first, unless told not to; then page by page, and say how far it is."""
    if many.job is not None:
        control.job(many.job)  # a name that nobody knows is a mistake, and not nothing to do
    states = bulk_states(verb, many.state)
    chosen: dict[str, Any] = {"job": many.job, "schedule": many.schedule, "queue": many.queue}
    total = sum(control.count_runs(state, **chosen) for state in states)
    told = f"{_count(total)} {_described(many, states, total)}"
    if total and not many.yes and not _confirmed(f"{verb} {told}?", where):
        note("nothing was done")
        return FAILED
    pages = list[Bulk]()
    with Progress(silent=where.json) as progress:
        for state in states if total else ():
            before: int | None = None
            while True:
                page = control.bulk(
                    verb, state, **chosen, before=before, reason=reason, latest=latest, limit=STEP
                )
                pages.append(page)
                progress.show(verb, sum(one.done + one.left_out for one in pages), total)
                before = page.before
                if before is None:
                    break
    return _say_end(verb, pages, where)


def _say_end(verb: str, pages: list[Bulk], where: Where) -> int:
    done, left_out = sum(page.done for page in pages), sum(page.left_out for page in pages)
    problem = next((page.problem for page in pages if page.problem), None)
    if where.json:
        say_json({"verb": verb, "done": done, "left_out": left_out, "problem": problem})
    elif not done and not left_out:
        note("no runs match")
    else:
        say(f"{_count(done)} {DONE[verb]}")
    if left_out and not where.json:
        note(f"{_count(left_out)} left out; the first: {error_line(problem, limit=500)}")
    return FAILED if left_out else OK


def _described(many: Many, states: tuple[str, ...], total: int) -> str:
    told = [f"that {'is' if total == 1 else 'are'} {' or '.join(states)}"]
    told += [] if many.job is None else [f"of job {many.job}"]
    told += [] if many.schedule is None else [f"of schedule {many.schedule}"]
    told += [] if many.queue is None else [f"in queue {many.queue}"]
    return ", ".join(told)


def _confirmed(question: str, where: Where) -> bool:
    """Only a person at a terminal can say yes here; a program says it with --yes."""
    if where.json or not sys.stdin.isatty():
        raise Invalid(f"{question.rstrip('?')}: add --yes to do it")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _count(number: int) -> str:
    more = " or more" if number >= BULK_RUNS else ""
    return f"{number:,}{more} run{'' if number == 1 else 's'}"
