"""What control rows say: each is read, checked against who asks, and made ready to be done in one
transaction.

What only looks is answered from outside that transaction, and so is the query of a statement about
many schedules: nobody else should wait while it is asked.
"""

from __future__ import annotations

import json
from typing import Any

from rota.app import Rota
from rota.errors import Invalid
from rota.flow.control import Control
from rota.model.control_row import Asked, Reply, done
from rota.model.redact import redact_text, secrets_of
from rota.model.result import Result
from rota.model.roles import ADMIN, VIEWER
from rota.model.run import Run
from rota.sql.execute import Statements
from rota.sql.options import schedule_options
from rota.sql.parser import parse_one
from rota.sql.statements import (
    AlterSchedule,
    ChangeRuns,
    ChangeSchedules,
    CreateSchedule,
    RunJob,
    Select,
    Statement,
)
from rota.storage.protocol import Actor, Storage

VIA = "control"  # what the audit says
SOMEBODY = "unknown"  # a file does not know who writes to it


class ControlRows:
    """Of the app that answers them."""

    def __init__(self, app: Rota) -> None:
        self.app = app

    def plan(self, asked: Asked) -> Plan:
        control = self.app.control_as(Actor(by=asked.requested_by or SOMEBODY, via=VIA))
        statement = parse_one(asked.statement, control.dialect)
        _check(statement, asked)
        statements = self.statements(control)
        if statement.role == VIEWER:
            told = statements.execute(statement)
            return Plan(self, control, _kept(asked, statement), statement, told)
        if isinstance(statement, ChangeSchedules | ChangeRuns):
            statement = statements.look_up(statement)
        return Plan(self, control, _kept(asked, statement), statement)

    def statements(self, control: Control) -> Statements:
        # Which targets there are is not known here: another process may have one.
        return Statements(control, timezone=self.app.settings.timezone)


class Plan:
    """`told` is the answer of what only looked."""

    def __init__(
        self,
        rows: ControlRows,
        control: Control,
        kept: str,
        statement: Statement,
        told: Result | None = None,
    ) -> None:
        self.rows, self.control, self.kept = rows, control, kept
        self.statement, self.told = statement, told
        self._ended: list[Run] = []

    def do(self, storage: Storage) -> Reply:
        self._ended.clear()
        if self.told is not None:
            return done(self.kept, self.told)
        within = self.control.within(storage, ended=self._ended.append)
        return done(self.kept, self.rows.statements(within).execute(self.statement))

    def done(self) -> None:
        if self.told is None:
            self.control.changed()
        for run in self._ended:
            self.control.ended(run)


def _check(statement: Statement, asked: Asked) -> None:
    if isinstance(statement, Select):
        raise Invalid("a control row takes statements; ask the views themselves for rows")
    if statement.role == ADMIN and asked.role != ADMIN:
        raise Invalid(
            f"{asked.requested_by} may not say which SQL runs, on which target or as whom; only "
            "admins may: members of the role that owns the store"
        )


def _kept(asked: Asked, statement: Statement) -> str:
    """The text without what its arguments, or its shape, mark as secret."""
    args: dict[str, Any] = {}
    if isinstance(statement, RunJob):
        args.update(statement.args)
    elif isinstance(statement, CreateSchedule | AlterSchedule):
        args.update(schedule_options(statement.options).get("args") or {})
    # In the text a quote within a value is written twice.
    written = json.loads(json.dumps(args).replace("'", "''"))
    return redact_text(asked.statement, secrets_of(args, written))
