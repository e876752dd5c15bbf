"""What flow knows of an executor, and what an executor knows of the run it works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from rota.executors.context import Context, StopReason
from rota.executors.targets import Targets
from rota.model.job import Job
from rota.model.outcome import Outcome
from rota.model.run import Run

__all__ = ["Context", "Executor", "HearsTermination", "Statement", "StopReason", "Targets"]


class Executor(Protocol):
    """Runs bodies of one kind. Registered under the entry point group `rota.executors`."""

    def check(self, job: Job) -> None:
        """Refuse a job this executor cannot run, with Invalid, before it is stored."""

    def run(self, context: Context) -> Outcome:
        """Do the work. Exceptions are a failed attempt. `context.on_stop` is how it is ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """SQL to commit together with the settle of a terminal run; `:name` parameters."""

    sql: str
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ask:
    """A statement of Rota's own, such as `PAUSE SCHEDULE nightly`: asked for together with the
    settle of a terminal run, and done by any process once that is committed."""

    statement: str


@runtime_checkable
class HearsTermination(Protocol):
    """An executor that adds to the last transaction of a run: success, death, cancel, rescue."""

    def on_terminated(self, run: Run) -> Sequence[Statement | Ask]:
        """What commits with the settle; nothing does if the settle was fenced out."""
