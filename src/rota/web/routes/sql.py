"""The SQL console: statements, and queries over the views."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any

from msgspec import Meta

from rota.errors import RotaError
from rota.model.duration import format_duration
from rota.model.limits import SQL_AT_ONCE, STATEMENT_LENGTH
from rota.model.result import Result
from rota.model.roles import VIEWER
from rota.sql.execute import Statements
from rota.web.errors import Refused, busy
from rota.web.models import RequestModel, ResponseModel
from rota.web.routing import Ask

MOST_STATEMENTS = 100


class Sql(RequestModel):
    """One statement or several, with semicolons between them."""

    sql: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=STATEMENT_LENGTH,
            examples=["SHOW SCHEDULES", "SELECT job_name, state FROM runs LIMIT 10"],
        ),
    ]


class ColumnOut(ResponseModel):
    name: str
    type: str


class ResultOut(ResponseModel):
    """`more`: there were more rows than anybody may ask for at once."""

    columns: list[ColumnOut]
    rows: list[list[Any]]
    more: bool


class Results(ResponseModel):
    results: list[ResultOut]


class Places:
    """So many statements at once: each may take half a minute of a thread."""

    def __init__(self) -> None:
        self._taken, self._guard = 0, threading.Lock()

    def __enter__(self) -> None:
        with self._guard:
            if self._taken >= SQL_AT_ONCE:
                raise busy(f"{SQL_AT_ONCE} statements run already; try again")
            self._taken += 1

    def __exit__(self, *fault: object) -> None:
        with self._guard:
            self._taken -= 1


_places = Places()


def run_sql(ask: Ask, body: Sql) -> Results:
    """Do what statements say, and answer with rows. Queries and SHOW are for viewers, changes are
    for operators, and to say which SQL runs, on which target and as whom is for admins."""
    # A thread works on after its request was given up, and its place is taken until it has ended.
    with _places:
        return _run(ask, body.sql)


def _run(ask: Ask, text: str) -> Results:
    settings = ask.app.settings
    statements = Statements(
        ask.control,
        timezone=settings.timezone,
        targets={*settings.targets, "store"},
    )
    parsed = statements.parse(text)
    if len(parsed) > MOST_STATEMENTS:
        raise Refused(422, "invalid", f"at most {MOST_STATEMENTS} statements at once")
    for statement in parsed:
        role = statement.role
        if role != VIEWER:
            ask.need(role, statement.description)
    results = []
    for number, statement in enumerate(parsed, start=1):
        with _numbered(number, len(parsed)):
            results.append(_out(statements.execute(statement)))
    return Results(results=results)


@contextmanager
def _numbered(number: int, of: int) -> Iterator[None]:
    """An answer is whole or a problem: the problem says what became of the other statements. It
    cannot of this one, which may be about many things, and be done to some."""
    try:
        yield
    except RotaError as fault:
        if of > 1:
            others = (
                (number - 1, "before it", "done"),
                (of - number, "after it", "not done"),
            )
            told = ", ".join(_those(*one) for one in others if one[0])
            fault.args = (f"statement {number} of {of}: {fault}; {told}",)
        raise


def _those(count: int, where: str, became: str) -> str:
    return f"the one {where} was {became}" if count == 1 else f"the {count} {where} were {became}"


def _out(result: Result) -> ResultOut:
    columns = zip(result.names, result.columns, strict=True)
    return ResultOut(
        columns=[ColumnOut(name=name, type=column.type) for name, column in columns],
        rows=[[_plain(value) for value in row] for row in result.rows],
        more=result.more,
    )


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat() if value.tzinfo is None else value.astimezone(UTC).isoformat()
        case date() | time():
            return value.isoformat()
        case timedelta():
            return format_duration(value)
        case dict():
            return {str(name): _plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case _:
            return value
