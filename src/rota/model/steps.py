"""Steps: the ordered parts of an attempt, such as the files of a SQL job.

The protocols here are what storage and flow hand to an executor, so that executors and storage
never import each other. A step that is recorded done is not run again by later attempts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from rota.errors import Unknown

# What the record of a step says whose work was committed before "done" was: a crash in between
# makes it run again.
AT_LEAST_ONCE = "at least once"
TEXT_STEP = "sql"  # the name of the one step of SQL that is given as text
NAMES_SHOWN = 5
# The attempt that steps are marked with which an operator told a run to pass over. It never is.
PASSED_OVER = 0


def text_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFile:
    """A file of a run as it was read: its text before interpolation, and the variables in it."""

    number: int  # from 1, in the order in which they run
    name: str
    text: str
    variables: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        return text_hash(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    """What a step did: rows it changed, and the first rows of its last result, as JSON."""

    rows: int | None = None
    result: str | None = None


class StepTransaction(Protocol):
    """The transaction of one step on the store's own database, with "step done" inside it."""

    connection: Any  # the driver's own; inside an open transaction

    def commit(self, done: StepDone) -> None:
        """Mark the step done and commit both, if this attempt still has its lease; LeaseLost
        if not, and then nothing of the step remains."""


class Steps(Protocol):
    """The steps of one attempt, as its executor sees them."""

    def kept_files(self) -> list[StepFile]:
        """The files that an earlier attempt of this run began with; empty at the first."""

    def keep_files(self, files: Sequence[StepFile]) -> None:
        """Keep the texts with the run, before the first statement of any of them."""

    def texts_of(self, hashes: Collection[str]) -> Mapping[str, str]:
        """Texts that were kept with any run, by their hashes, as far as they are still there."""

    def done(self) -> set[int]:
        """The numbers of the steps that are recorded done and need not run again."""

    def begin(self, file: StepFile) -> None:
        """Show a step as running."""

    def fail(self, file: StepFile, status: str, error: str) -> None:
        """Record how a step ended that did not do its work: failed, timed_out or cancelled."""

    def finish(self, file: StepFile, done: StepDone, note: str | None = None) -> None:
        """Record a step as done after its work was committed elsewhere: at least once."""

    def transaction(self, file: StepFile) -> AbstractContextManager[StepTransaction]:
        """A transaction on the store's own database; rolled back unless it was committed."""

    def view(self, name: str) -> list[dict[str, Any]]:
        """The latest rows of a view of the store: jobs, job_queue or job_runs."""

    def pause_requested(self) -> bool:
        """True once an operator asked this run to pause: it stops at its next step boundary."""


# Redo


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """Where a redo begins. The steps before `first` are passed over, whether they were done or
    not; what is recorded done from `forget` on no longer counts."""

    first: int
    forget: int


def begin_at(
    wanted: str, kept: Sequence[str], latest: Sequence[str] | None, what: str
) -> Beginning:
    """At a step by its name or number, of the files that a run kept or of the `latest` ones. What
    was done counts as far as both begin with the same names: after that a number is another file.
    """
    names = kept if latest is None else latest
    first = _number(wanted, names, what)
    same = _same(kept, names)
    return Beginning(first=first, forget=min(first, same + 1))


def step_names(executor: str, spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The steps of a job as it is now; none if it is not SQL."""
    if executor != "sql":
        return ()
    return (TEXT_STEP,) if spec.get("text") is not None else tuple(spec.get("files", ()))


def changed_steps(kept: Sequence[StepFile], executor: str, spec: Mapping[str, Any]) -> list[str]:
    """What is another text now than a run kept, or is new, or gone; nothing where it is not known
    what there is now."""
    now = {TEXT_STEP: text_hash(spec["text"])} if spec.get("text") else spec.get("hashes")
    names = step_names(executor, spec)
    if not now or not kept:
        return []
    then = {file.name: file.hash for file in kept}
    both = dict.fromkeys((*names, *then))
    return [name for name in both if name not in names or then.get(name) != now.get(name)]


def redo_notes(
    kept: Sequence[StepFile],
    executor: str,
    spec: Mapping[str, Any],
    passed: Collection[int],
    succeeded: Collection[int],
) -> list[str]:
    """What somebody should hear who has just asked for a redo. `passed` are the steps that it
    leaves out, `succeeded` those that some attempt did."""
    names = [file.name for file in kept] or step_names(executor, spec)
    never = [
        name
        for number, name in enumerate(names, start=1)
        if number in passed and number not in succeeded
    ]
    notes = []
    if never:
        one = len(never) == 1
        told = (
            "was never done, and is passed over" if one else "were never done, and are passed over"
        )
        notes.append(f"{listed_names(never)} {told}")
    if changed := changed_steps(kept, executor, spec):
        have = "has" if len(changed) == 1 else "have"
        notes.append(
            f"it runs the texts it began with; {listed_names(changed)} {have} changed since: "
            "ask for the latest (--latest) to run those"
        )
    return notes


def listed_names(names: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    shown = ", ".join(names[:NAMES_SHOWN])
    return shown if len(names) <= NAMES_SHOWN else f"{shown} and {len(names) - NAMES_SHOWN} more"


def _number(wanted: str, names: Sequence[str], what: str) -> int:
    for number, name in enumerate(names, start=1):
        if wanted in (name, str(number)):
            return number
    if not names:
        raise Unknown(f"{what} has no steps; redo it without naming one")
    raise Unknown(f"{what} has no step {wanted!r}; its steps are {', '.join(names)}")


def _same(kept: Sequence[str], names: Sequence[str]) -> int:
    for number, (old, new) in enumerate(zip(kept, names, strict=False)):
        if old != new:
            return number
    return min(len(kept), len(names))
