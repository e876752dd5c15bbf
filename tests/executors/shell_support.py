"""Shell jobs without a worker: a context, a port that remembers, and real processes."""

from __future__ import annotations

import json
import sys
from typing import Any

from rota.executors.context import Context
from rota.model.job import Job
from rota.model.signature import ANYTHING
from tests.executors.conftest import NOON, Attempt, Port


def shell_job(command: Any, **spec: Any) -> Job:
    told = {"command": command, **spec}
    return Job(name="job", executor="shell", spec=told, signature=ANYTHING)


def python(code: str, *args: str) -> list[str]:
    """A command that runs Python, which every machine with these tests has."""
    return [sys.executable, "-I", "-S", "-c", code, *args]


def result(attempt: Attempt) -> Any:
    outcome = attempt.outcome
    assert outcome.kind == "succeeded", outcome
    return json.loads(outcome.result or "null")


def error(attempt: Attempt) -> str:
    outcome = attempt.outcome
    assert outcome.kind == "failed", outcome
    return str(outcome.error)


def shell_context(job: Job, port: Port, args: dict[str, Any] | None = None) -> Context:
    return Context(
        definition=job,
        run_id="run-1",
        attempt=2,
        args=args or {},
        scheduled_at=NOON,
        queue="default",
        port=port,
    )
