"""The parsed statements; `execute` runs them.

`role` is the role that a statement requires: viewer to read, operator to operate, admin to define
which SQL runs and as which database role.
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
    def description(self) -> str:
        """The first words of the statement that decide its role."""
        return "SHOW, EXPLAIN and SELECT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Select(Statement):
    """A query over the views, in the dialect of the database."""

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
    """The SQL of a schedule, for a named target or the default one."""

    text: str | None = None
    target: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSchedule(Operation):
    """A schedule for an existing job, or for SQL that becomes its job."""

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
    def description(self) -> str:
        return "CREATE SCHEDULE" if self.body is None else "CREATE SCHEDULE … AS"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSchedule(Operation):
    """Fields that are None stay unchanged; an option with the value None gets its default."""

    schedule: str
    timing: Timing | None = None
    job: str | None = None
    body: Body | None = None
    options: Options = field(default_factory=dict)

    @property
    def role(self) -> str:
        """ADMIN also for run_as: to choose the role that SQL runs as is to choose the SQL."""
        return ADMIN if self.body is not None or "run_as" in self.options else OPERATOR

    @property
    def description(self) -> str:
        changed = "run_as" if self.body is None else "AS"
        return "ALTER SCHEDULE" if self.role == OPERATOR else f"ALTER SCHEDULE … SET {changed}"


PAUSE, RESUME, DROP, CANCEL = "PAUSE", "RESUME", "DROP", "CANCEL"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSchedules(Operation):
    """PAUSE, RESUME or DROP of one schedule, or of those that a query finds.

    `ids` is the result of the query once it has run."""

    verb: str
    schedule: str | None = None
    query: str | None = None
    ids: tuple[int, ...] | None = None
    reason: str | None = None
    if_exists: bool = False

    @property
    def description(self) -> str:
        return f"{self.verb} SCHEDULE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRuns(Operation):
    """PAUSE, RESUME or CANCEL the runs of a schedule, or of those that a query finds."""

    verb: str
    schedule: str | None = None
    query: str | None = None
    ids: tuple[int, ...] | None = None
    reason: str | None = None

    @property
    def description(self) -> str:
        return f"{self.verb} JOBS FOR SCHEDULE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteSchedule(Operation):
    schedule: str

    @property
    def description(self) -> str:
        return "EXECUTE SCHEDULE"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunJob(Operation):
    job: str
    args: Mapping[str, Any] = field(default_factory=dict)

    @property
    def description(self) -> str:
        return "RUN JOB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch(Operation):
    """Switches the claims of all processes on or off."""

    on: bool
    reason: str | None = None

    @property
    def description(self) -> str:
        return "RESUME DISPATCH" if self.on else "PAUSE DISPATCH"


# First words of statements.
BEGINNINGS: Final = (
    "SHOW", "CREATE", "ALTER", "PAUSE", "RESUME", "DROP", "CANCEL", "EXECUTE", "RUN", "EXPLAIN",
    "SELECT", "WITH", "VALUES",
)  # fmt: skip
# Words that a prompt completes.
KEYWORDS: Final = (
    *BEGINNINGS, "SCHEDULE", "SCHEDULES", "JOB", "JOBS", "RUNS", "FOR", "AS", "ON", "RECURRING",
    "EVERY", "AT", "OPTIONS", "SET", "REASON", "COUNT", "DISPATCH", "RUNNING", "PAUSED",
    "IF", "NOT", "EXISTS", "FROM", "WHERE", "ORDER BY", "GROUP BY", "LIMIT",
)  # fmt: skip
