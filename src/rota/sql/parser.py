"""The grammar: one function for each first word.

An error names what was expected, what was found, and where.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from rota.errors import Invalid
from rota.model.limits import PAGE, SQL_FILE_BYTES, STATEMENT_LENGTH, STATEMENTS, check_whole
from rota.sql.options import check_option, check_value
from rota.sql.reader import TEXT, Reader
from rota.sql.statements import (
    BEGINNINGS,
    AlterSchedule,
    Body,
    ChangeRuns,
    ChangeSchedules,
    CreateSchedule,
    Dispatch,
    ExecuteSchedule,
    Explain,
    RunJob,
    Select,
    ShowCreate,
    ShowJobs,
    ShowRuns,
    ShowSchedule,
    ShowSchedules,
    Statement,
    Timing,
)

COUNT = 5  # next times of EXPLAIN without COUNT
_TIMINGS = {"RECURRING": "cron", "EVERY": "every", "AT": "at"}
_EXAMPLES = {"RECURRING": "a cron expression", "EVERY": "a duration", "AT": "an instant"}


def parse(text: str, dialect: str) -> list[Statement]:
    """All statements of a text. Queries are written in `dialect`."""
    if len(text) > SQL_FILE_BYTES:
        raise Invalid(f"{len(text):,} characters of statements; the limit is {SQL_FILE_BYTES:,}")
    reader = Reader(text, dialect)
    statements: list[Statement] = []
    while True:
        while reader.accept_symbol(";"):
            pass
        reader.begin()
        if reader.is_over():
            return statements
        if len(statements) == STATEMENTS:
            raise Invalid(f"more than {STATEMENTS:,} statements in one text; divide it")
        start = reader.peek().start
        statement = _statement(reader)
        if reader.position - start > STATEMENT_LENGTH:
            raise Invalid(
                f"the statement at {reader.location(start)} has {reader.position - start:,} "
                f"characters; the limit is {STATEMENT_LENGTH:,}"
            )
        if not reader.is_over():
            reader.fail("the end of the statement")
        statements.append(statement)


def parse_one(text: str, dialect: str) -> Statement:
    """The only statement of a text."""
    statements = parse(text, dialect)
    if len(statements) != 1:
        raise Invalid(f"one statement is expected here, not {len(statements) or 'none'}")
    return statements[0]


def is_complete(text: str, dialect: str) -> bool:
    """True if a prompt may run the text: it ends with a semicolon, outside of quotes.

    A text with any other error is complete too, so that the error is shown."""
    if not text.rstrip().endswith(";"):
        return False
    try:
        parse(text, dialect)
    except Invalid as fault:
        return "is never closed" not in str(fault)
    return True


def _statement(reader: Reader) -> Statement:
    if reader.at("SELECT", "WITH", "VALUES"):
        return Select(sql=reader.query(closed=False))
    verb = reader.expect(*BEGINNINGS)
    return _VERBS[verb](reader)


def _show(reader: Reader) -> Statement:
    status = reader.accept("RUNNING", "PAUSED")
    if status is not None:
        reader.expect("SCHEDULES")
        return ShowSchedules(status=status)
    match reader.expect("SCHEDULES", "SCHEDULE", "JOBS", "RUNS", "CREATE", "RUNNING", "PAUSED"):
        case "SCHEDULES":
            return ShowSchedules()
        case "SCHEDULE":
            return ShowSchedule(schedule=reader.name("schedule"))
        case "CREATE":
            reader.expect("SCHEDULE")
            return ShowCreate(schedule=reader.name("schedule"))
        case "RUNS":
            if reader.accept("FOR") is None:
                return ShowRuns()
            reader.expect("JOB")
            return ShowRuns(job=reader.name("job"))
        case _:
            if reader.accept("FOR") is None:
                return ShowJobs()
            reader.expect("SCHEDULE")
            return ShowRuns(schedule=reader.name("schedule"))


def _create(reader: Reader) -> Statement:
    reader.expect("SCHEDULE")
    if_not_exists = False
    if reader.at("IF"):
        reader.take()
        reader.expect("NOT")
        reader.expect("EXISTS")
        if_not_exists = True
    name = reader.name("schedule")
    job, body = None, None
    if reader.expect("FOR", "AS") == "FOR":
        reader.expect("JOB")
        job = reader.name("job")
    else:
        text = _body(reader)
        target = reader.name("target") if reader.accept("ON") else None
        body = Body(text=text, target=target)
    timing = _timing(reader, reader.expect(*_TIMINGS))
    options = {}
    if not reader.is_over():
        if not reader.accept("WITH"):
            reader.fail("WITH SCHEDULE OPTIONS or the end of the statement", ("WITH",))
        reader.expect("SCHEDULE")
        reader.expect("OPTIONS")
        options = _options(reader, with_body=body is not None)
    return CreateSchedule(
        name=name, if_not_exists=if_not_exists, job=job, body=body, timing=timing, options=options
    )


def _body(reader: Reader) -> str:
    if reader.peek().kind != TEXT:
        reader.fail("SQL in $$ … $$")
    return reader.take().value.strip()


def _timing(reader: Reader, word: str) -> Timing:
    return Timing(kind=_TIMINGS[word], expr=reader.literal(_EXAMPLES[word]))


def _options(reader: Reader, *, with_body: bool) -> dict[str, Any]:
    """Options as name = value, …; with or without parentheses."""
    options: dict[str, Any] = {}
    closed = reader.accept_symbol("(")
    while True:
        _option(reader, options, with_body=with_body)
        if not reader.accept_symbol(","):
            break
    if closed:
        reader.expect_symbol(")")
    return options


def _option(reader: Reader, options: dict[str, Any], *, with_body: bool) -> None:
    location = reader.location(reader.peek().start)
    typed = reader.name("option").lower()
    name = check_option(typed, location, with_body=with_body)
    if name in options:
        raise Invalid(f"option {name!r} is given twice, again at {location}")
    reader.expect_symbol("=")
    options[name] = check_value(typed, reader.value(bare=True), location)


def _alter(reader: Reader) -> Statement:
    reader.expect("SCHEDULE")
    name = reader.name("schedule")
    reader.expect("SET")
    timing, job, text, target = None, None, None, None
    options: dict[str, Any] = {}
    while True:
        if word := reader.accept(*_TIMINGS):
            timing = _timing(reader, word)
        elif reader.accept("FOR"):
            reader.expect("JOB")
            job = reader.name("job")
        elif reader.accept("AS"):
            text = _body(reader)
        elif reader.accept("ON"):
            target = reader.name("target")
        else:
            # Only the execution knows whether the job is the schedule's own SQL.
            _option(reader, options, with_body=True)
        if not reader.accept_symbol(","):
            break
    body = None if text is None and target is None else Body(text=text, target=target)
    if job is not None and body is not None:
        raise Invalid("a schedule is FOR a JOB or has SQL of its own; set one of them")
    return AlterSchedule(schedule=name, timing=timing, job=job, body=body, options=options)


def _change(verb: str, *keywords: str) -> Callable[[Reader], Statement]:
    def parse_change(reader: Reader) -> Statement:
        match reader.expect(*keywords):
            case "DISPATCH":
                return Dispatch(on=verb == "RESUME", reason=_reason(reader))
            case "JOBS":
                reader.expect("FOR")
                if reader.expect("SCHEDULE", "SCHEDULES") == "SCHEDULES":
                    return ChangeRuns(verb=verb, query=_query(reader), reason=_reason(reader))
                name = reader.name("schedule")
                return ChangeRuns(verb=verb, schedule=name, reason=_reason(reader))
            case "SCHEDULES":
                return ChangeSchedules(verb=verb, query=_query(reader), reason=_reason(reader))
            case _:
                if_exists = False
                if verb == "DROP" and reader.accept("IF"):
                    reader.expect("EXISTS")
                    if_exists = True
                name = reader.name("schedule")
                return ChangeSchedules(
                    verb=verb, schedule=name, if_exists=if_exists, reason=_reason(reader)
                )

    return parse_change


def _query(reader: Reader) -> str:
    """A query in parentheses, or up to the end of the statement, then without a reason."""
    if reader.at("SELECT", "WITH", "VALUES"):
        return reader.query(closed=False)
    reader.expect_symbol("(")
    if not reader.at("SELECT", "WITH", "VALUES"):
        reader.fail("SELECT", ("SELECT",))
    query = reader.query(closed=True)
    reader.expect_symbol(")")
    return query


def _reason(reader: Reader) -> str | None:
    if reader.is_over():
        return None
    reader.expect("REASON", or_else="the end of the statement")
    return reader.literal("a reason")


def _execute(reader: Reader) -> Statement:
    reader.expect("SCHEDULE")
    return ExecuteSchedule(schedule=reader.name("schedule"))


def _run(reader: Reader) -> Statement:
    reader.expect("JOB")
    name, args = reader.name("job"), {}
    if reader.accept("WITH"):
        args = _arguments(reader)
    return RunJob(job=name, args=args)


def _arguments(reader: Reader) -> dict[str, Any]:
    """Arguments as (name = value, …), or as a JSON object in quotes."""
    if reader.peek().kind == TEXT:
        return json_object(reader.take().value, "WITH")
    args: dict[str, Any] = {}
    reader.expect_symbol("(")
    while not args or reader.accept_symbol(","):
        location, name = reader.location(reader.peek().start), reader.name("argument")
        if name in args:
            raise Invalid(f"argument {name!r} is given twice, again at {location}")
        reader.expect_symbol("=")
        args[name] = reader.value(bare=False)
    reader.expect_symbol(")")
    return args


def json_object(text: str, what: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as fault:
        raise Invalid(f"{what} is not JSON: {fault}") from None
    if not isinstance(value, dict):
        raise Invalid(f'{what} must be a JSON object, such as \'{{"to": "a@example.org"}}\'')
    return value


def _explain(reader: Reader) -> Statement:
    reader.expect("SCHEDULE")
    name, count = reader.name("schedule"), COUNT
    if not reader.is_over():
        reader.expect("COUNT", or_else="the end of the statement")
        count = check_whole(reader.value(bare=True), "COUNT", 1, PAGE)
    return Explain(schedule=name, count=count)


_VERBS: dict[str, Callable[[Reader], Statement]] = {
    "SHOW": _show,
    "CREATE": _create,
    "ALTER": _alter,
    "PAUSE": _change("PAUSE", "SCHEDULE", "SCHEDULES", "JOBS", "DISPATCH"),
    "RESUME": _change("RESUME", "SCHEDULE", "SCHEDULES", "JOBS", "DISPATCH"),
    "DROP": _change("DROP", "SCHEDULE", "SCHEDULES"),
    "CANCEL": _change("CANCEL", "JOBS"),
    "EXECUTE": _execute,
    "RUN": _run,
    "EXPLAIN": _explain,
}
