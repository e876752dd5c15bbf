"""The options of jobs, schedules and enqueues, for type checkers.

At run time the code checks options itself and reads nothing of this. Import it to write a function
that hands options on: `def later(**options: Unpack[EnqueueOptions]) -> None`. A test compares each
name, each value and each None with what the code takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol, TypeAlias, TypedDict

from rota.model.retry import Retry

# Text such as "90s" or "1h30m", or a number of seconds.
Duration: TypeAlias = str | float | timedelta
# ISO 8601 with an offset, or a datetime with a zone.
Instant: TypeAlias = str | datetime

# choices: written by scripts/model_tables.py
Dst: TypeAlias = Literal["vixie", "literal", "skip_once"]
Anchor: TypeAlias = Literal["rate", "delay"]
Overlap: TypeAlias = Literal["queue", "wait", "skip", "allow", "start", "no_wait"]
OnError: TypeAlias = Literal[
    "next", "reschedule", "retry_sched", "retry", "retry_soon", "pause", "pause_sched"
]
CatchUp: TypeAlias = Literal["one", "none", "all"]
# end of choices
Isolation: TypeAlias = Literal["thread", "process"]
Backoff: TypeAlias = Literal["none", "fixed", "exponential", "quadratic"]


class _Commits(Protocol):
    def commit(self) -> None: ...


class _CommitsAndReturnsItself(Protocol):  # DuckDB's
    def commit(self) -> _CommitsAndReturnsItself: ...


# A connection of psycopg 3, sqlite3 or DuckDB, or a Connection or Session of SQLAlchemy. An
# asynchronous one does not match: its commit has to be awaited.
Connection: TypeAlias = _Commits | _CommitsAndReturnsItself


class EnqueueOptions(TypedDict, total=False):
    """What an enqueue may say beside the arguments of the job. None: as if it were not given."""

    delay: Duration | None
    at: Instant | None
    key: str | None
    key_ttl: Duration | None
    priority: int | None
    queue: str | None
    concurrency_key: str | None
    concurrency_limit: int | None
    max_attempts: int | None
    timeout: Duration | None
    correlation_id: str | None
    connection: Connection | None
    notify: bool | None


class _Retries(TypedDict, total=False):
    max_attempts: int | None
    backoff: Backoff | None
    delay: Duration | None
    max_delay: Duration | None
    retry_jitter: Duration | None


class _Policies(_Retries, total=False):
    # options: written by scripts/model_tables.py
    timezone: str
    dst: Dst
    anchor: Anchor
    overlap: Overlap
    overlap_key: str | None
    queue_max: int | None
    on_error: OnError
    pause_after: int | None
    catch_up: CatchUp
    catch_up_limit: int
    misfire_grace: Duration
    jitter: Duration
    spread: Duration
    first_run: Instant | None
    starts_at: Instant | None
    ends_at: Instant | None
    args: Mapping[str, Any]
    retry: Retry | Mapping[str, Any] | None
    owner: str | None
    enabled: bool
    # end of options


class ScheduleOptions(_Policies, total=False):
    """What `app.schedule` takes beside its name, its job and when."""

    priority: int | None


class JobOptions(_Policies, total=False):
    """What `app.job` takes beside the name: the job's own options, and those of its schedule."""

    schedule: str | Literal[False] | None
    every: Duration | None
    at: Instant | None
    queue: str
    priority: int
    timeout: Duration | None
    isolation: Isolation | None
    concurrency_key: str | None
    concurrency_limit: int
    description: str | None
