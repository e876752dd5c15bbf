"""The statements, as they were understood. What they do is in `execute`.

`role` is what somebody needs to be allowed to give one: to look, to operate, or to say which SQL
runs as whom.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rota.model.roles import ADMIN, OPERATOR, VIEWER

Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    @property
    def role(self) -> str:
        return VIEWER

    @property
    def words(self) -> str:
        """What it begins with, as far as its role depends on it."""
        return "SHOW, EXPLAIN and SELECT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Select(Statement):
    """A query over the views, in the words of the database."""

    sql: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowSchedules(Statement):
    """`status`: RUNNING (those that are not paused), PAUSED or None for all."""

    status: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowSchedule(Statement):
    schedule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCreate(Statement):
    schedule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowJobs(Statement):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowRuns(Statement):
    """The runs of a job, of a schedule, or all."""

    job: str | None = None
    schedule: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain(Statement):
    schedule: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Statement):
    @property
    def role(self) -> str:
        return OPERATOR


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """`kind` is cron, every or at."""

    kind: str
    expr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """SQL of its own, for a named target or the default one."""

    text: str | None = None
    target: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSchedule(Operation):
    """Of a job that there is, or of SQL that becomes one."""

    name: str
    timing: Timing
    job: str | None = None
    body: Body | None = None
    if_not_exists: bool = False
    options: Options = field(default_factory=dict)

    @property
    def role(self) -> str:
        return OPERATOR if self.body is None else ADMIN

    @property
    def words(self) -> str:
        return "CREATE SCHEDULE" if self.body is None else "CREATE SCHEDULE … AS"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSchedule(Operation):
    """What is None stays as it is; an option that is None goes back to its default."""

    schedule: str
    timing: Timing | None = None
    job: str | None = None
    body: Body | None = None
    options: Options = field(default_factory=dict)

    @property
    def role(self) -> str:
        """Who says as whom SQL runs says as much as who says which."""
        return ADMIN if self.body is not None or "run_as" in self.options else OPERATOR

    @property
    def words(self) -> str:
        changed = "run_as" if self.body is None else "AS"
        return "ALTER SCHEDULE" if self.role == OPERATOR else f"ALTER SCHEDULE … SET {changed}"


PAUSE, RESUME, DROP, CANCEL = "PAUSE", "RESUME", "DROP", "CANCEL"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSchedules(Operation):
    """PAUSE, RESUME or DROP: one schedule, or those that a query finds. `found` are the numbers
    of those that it found already."""

    verb: str
    schedule: str | None = None
    query: str | None = None
    found: tuple[int, ...] | None = None
    reason: str | None = None
    if_exists: bool = False

    @property
    def words(self) -> str:
        return f"{self.verb} SCHEDULE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRuns(Operation):
    """PAUSE, RESUME or CANCEL the runs of a schedule, or of those that a query finds."""

    verb: str
    schedule: str | None = None
    query: str | None = None
    found: tuple[int, ...] | None = None
    reason: str | None = None

    @property
    def words(self) -> str:
        return f"{self.verb} JOBS FOR SCHEDULE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteSchedule(Operation):
    schedule: str

    @property
    def words(self) -> str:
        return "EXECUTE SCHEDULE"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunJob(Operation):
    job: str
    args: Mapping[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> str:
        return "RUN JOB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch(Operation):
    """Claims of all processes, on or off."""

    on: bool
    reason: str | None = None

    @property
    def words(self) -> str:
        return "RESUME DISPATCH" if self.on else "PAUSE DISPATCH"


# What a statement can begin with.
BEGINNINGS: Final = (
    "SHOW", "CREATE", "ALTER", "PAUSE", "RESUME", "DROP", "CANCEL", "EXECUTE", "RUN", "EXPLAIN",
    "SELECT", "WITH", "VALUES",
)  # fmt: skip
# What can be completed at a prompt.
KEYWORDS: Final = (
    *BEGINNINGS, "SCHEDULE", "SCHEDULES", "JOB", "JOBS", "RUNS", "FOR", "AS", "ON", "RECURRING",
    "EVERY", "AT", "OPTIONS", "SET", "REASON", "COUNT", "DISPATCH", "RUNNING", "PAUSED",
    "IF", "NOT", "EXISTS", "FROM", "WHERE", "ORDER BY", "GROUP BY", "LIMIT",
)  # fmt: skip
