"""The interface between flow and executors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from rota.executors.context import Context, StopReason
from rota.executors.targets import Targets
from rota.model.job import Job
from rota.model.outcome import Outcome
from rota.model.run import Run

__all__ = ["Context", "Executor", "Statement", "StopReason", "Targets", "TerminationHook"]


class Executor(Protocol):
    """Runs jobs of a kind. Registered in the entry point group `rota.executors`."""

    def check(self, job: Job) -> None:
        """Refuse a job this executor cannot run, with Invalid, before it is stored."""

    def run(self, context: Context) -> Outcome:
        """Run to the end; an exception fails the attempt. See `context.on_stop`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """SQL to commit together with the settle of a terminal run; `:name` parameters."""

    sql: str
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ask:
    """A Rota statement to request with the settle of a terminal run.

    Such as `PAUSE SCHEDULE nightly`; any process carries it out after the commit."""

    statement: str


@runtime_checkable
class TerminationHook(Protocol):
    """An executor that adds statements to the last transaction of a run.

    It is asked at every end: success, death, cancel and rescue."""

    def on_terminated(self, run: Run) -> Sequence[Statement | Ask]:
        """Statements to commit with the settle. A fenced settle commits none of them."""
