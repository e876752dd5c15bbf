"""Prepare control rows: parse each statement, check the requester's role, run in one transaction.

Statements that only read are executed outside of that transaction. So is the query of a statement
about many schedules: no other writer should wait for it.
"""

from __future__ import annotations

import json
from typing import Any

from rota.app import Rota
from rota.errors import Invalid
from rota.flow.control import Control
from rota.model.control_row import ControlReply, ControlRequest, done
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
from rota.storage.inside import StoreInside
from rota.storage.operations.audit import Actor

VIA = "control"  # in the audit log
UNKNOWN_USER = "unknown"  # file engines have no user names


class ControlRows:
    """The control rows of an app that executes them."""

    def __init__(self, app: Rota) -> None:
        self.app = app

    def plan(self, request: ControlRequest) -> Plan:
        control = self.app.control_as(Actor(by=request.requested_by or UNKNOWN_USER, via=VIA))
        statement = parse_one(request.statement, control.dialect)
        _check(statement, request)
        statements = self.statements(control)
        if statement.role == VIEWER:
            result = statements.execute(statement)
            return Plan(self, control, _redacted(request, statement), statement, result)
        if isinstance(statement, ChangeSchedules | ChangeRuns):
            statement = statements.resolve_query(statement)
        return Plan(self, control, _redacted(request, statement), statement)

    def statements(self, control: Control) -> Statements:
        # Targets are not checked here: another process may have one that this process has not.
        return Statements(control, timezone=self.app.settings.timezone)


class Plan:
    """A checked statement. `result` is set if it only reads, and was executed already."""

    def __init__(
        self,
        rows: ControlRows,
        control: Control,
        redacted_text: str,
        statement: Statement,
        result: Result | None = None,
    ) -> None:
        self.rows, self.control, self.redacted_text = rows, control, redacted_text
        self.statement, self.result = statement, result
        self._ended: list[Run] = []

    def do(self, store: StoreInside) -> ControlReply:
        self._ended.clear()
        if self.result is not None:
            return done(self.redacted_text, self.result)
        within = self.control.within(store, ended=self._ended.append)
        return done(self.redacted_text, self.rows.statements(within).execute(self.statement))

    def done(self) -> None:
        if self.result is None:
            self.control.changed()
        for run in self._ended:
            self.control.ended(run)


def _check(statement: Statement, request: ControlRequest) -> None:
    if isinstance(statement, Select):
        raise Invalid("a control row takes statements; query the views themselves for rows")
    if statement.role == ADMIN and request.role != ADMIN:
        raise Invalid(
            f"{request.requested_by} may not say which SQL runs, on which target or in which role; "
            "only admins may: members of the role that owns the store"
        )


def _redacted(request: ControlRequest, statement: Statement) -> str:
    """The text of the statement without the secrets of its arguments."""
    args: dict[str, Any] = {}
    if isinstance(statement, RunJob):
        args.update(statement.args)
    elif isinstance(statement, CreateSchedule | AlterSchedule):
        args.update(schedule_options(statement.options).get("args") or {})
    # In the text of a statement a quote inside a value is doubled.
    written = json.loads(json.dumps(args).replace("'", "''"))
    return redact_text(request.statement, secrets_of(args, written))
