"""Steps: the ordered parts of an attempt, such as the files of a SQL job.

Storage and flow hand the protocols here to an executor, so that executors and storage never import
each other. A step that is recorded done is not run again by later attempts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from rota.errors import Unknown

# The note of a step whose work is committed before "done" is: after a crash in between it runs
# again.
AT_LEAST_ONCE = "at least once"
TEXT_STEP = "sql"  # the name of the only step of a job whose SQL is in its spec
NAMES_SHOWN = 5
# The attempt number of marks on steps that an operator skipped; real attempts begin at 1.
SKIPPED_STEPS = 0


def text_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFile:
    """A file of a run: its text before interpolation, and the names of its variables."""

    number: int  # from 1, in the order in which they run
    name: str
    text: str
    variables: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        return text_hash(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    """The result of a step: changed rows, and the first rows of its last result as JSON."""

    rows: int | None = None
    result: str | None = None


class StepTransaction(Protocol):
    """The transaction of one step on the store's own database, with "step done" inside it."""

    connection: Any  # of the driver; inside an open transaction

    def commit(self, done: StepDone) -> None:
        """Mark the step done and commit both; LeaseLost, with a rollback, without the lease."""


class Steps(Protocol):
    """The steps of one attempt, for its executor."""

    def kept_files(self) -> list[StepFile]:
        """The files that an earlier attempt of this run stored; empty at the first."""

    def keep_files(self, files: Sequence[StepFile]) -> None:
        """Store the texts with the run, before the first statement of any of them."""

    def texts_of(self, hashes: Collection[str]) -> Mapping[str, str]:
        """Stored texts of any run by hash; hashes without a text are missing."""

    def done(self) -> set[int]:
        """The numbers of the steps that are recorded done and need not run again."""

    def begin(self, file: StepFile) -> None:
        """Show a step as running."""

    def fail(self, file: StepFile, status: str, error: str) -> None:
        """Record the end of a step without success: failed, timed_out or cancelled."""

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
    """The start of a redo. Steps before `first` are skipped, done or not.

    Records of done steps from `forget` on no longer count."""

    first: int
    forget: int


def begin_at(
    step: str, stored: Sequence[str], latest: Sequence[str] | None, what: str
) -> Beginning:
    """The start of a redo at a step, by its name or number.

    The steps are the files that a run stored, or the `latest` ones. Done steps count as long as
    both lists begin with the same names: after that a number is another file.
    """
    names = stored if latest is None else latest
    first = _number(step, names, what)
    same = _same(stored, names)
    return Beginning(first=first, forget=min(first, same + 1))


def step_names(executor: str, spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The current steps of a job; none if it is not SQL."""
    if executor != "sql":
        return ()
    return (TEXT_STEP,) if spec.get("text") is not None else tuple(spec.get("files", ()))


def changed_steps(stored: Sequence[StepFile], executor: str, spec: Mapping[str, Any]) -> list[str]:
    """Names of steps whose text differs from the stored one, or that are new or gone.

    Empty if the current texts are unknown."""
    now = {TEXT_STEP: text_hash(spec["text"])} if spec.get("text") else spec.get("hashes")
    names = step_names(executor, spec)
    if not now or not stored:
        return []
    then = {file.name: file.hash for file in stored}
    both = dict.fromkeys((*names, *then))
    return [name for name in both if name not in names or then.get(name) != now.get(name)]


def redo_notes(
    stored: Sequence[StepFile],
    executor: str,
    spec: Mapping[str, Any],
    skipped: Collection[int],
    succeeded: Collection[int],
) -> list[str]:
    """Notes for the user who requests a redo.

    `skipped` are the steps that it leaves out, `succeeded` those that an attempt has done."""
    names = [file.name for file in stored] or step_names(executor, spec)
    never = [
        name
        for number, name in enumerate(names, start=1)
        if number in skipped and number not in succeeded
    ]
    notes = []
    if never:
        is_single = len(never) == 1
        note = "was never done, and is skipped" if is_single else "were never done, and are skipped"
        notes.append(f"{listed_names(never)} {note}")
    if changed := changed_steps(stored, executor, spec):
        have = "has" if len(changed) == 1 else "have"
        notes.append(
            f"it runs the texts it began with; {listed_names(changed)} {have} changed since: "
            "ask for the latest (--latest) to run those"
        )
    return notes


def listed_names(names: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    first = ", ".join(names[:NAMES_SHOWN])
    return first if len(names) <= NAMES_SHOWN else f"{first} and {len(names) - NAMES_SHOWN} more"


def _number(step: str, names: Sequence[str], what: str) -> int:
    for number, name in enumerate(names, start=1):
        if step in (name, str(number)):
            return number
    if not names:
        raise Unknown(f"{what} has no steps; redo it without naming one")
    raise Unknown(f"{what} has no step {step!r}; its steps are {', '.join(names)}")


def _same(stored: Sequence[str], names: Sequence[str]) -> int:
    for number, (old, new) in enumerate(zip(stored, names, strict=False)):
        if old != new:
            return number
    return min(len(stored), len(names))
