"""Steps: the ordered parts of an attempt, such as the files of a SQL job.

The protocols here are what storage and flow hand to an executor, so that executors and storage
never import each other. A step that is recorded done is not run again by later attempts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

# What the record of a step says whose work was committed before "done" was: a crash in between
# makes it run again.
AT_LEAST_ONCE = "at least once"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFile:
    """A file of a run as it was read: its text before interpolation, and the variables in it."""

    number: int  # from 1, in the order in which they run
    name: str
    text: str
    variables: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


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
