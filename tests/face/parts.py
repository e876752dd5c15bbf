"""What the public face is made of: each part as plain data that a file can hold."""

from __future__ import annotations

import inspect
import io
import re
import tempfile
from collections.abc import Callable
from contextlib import closing, redirect_stdout
from dataclasses import fields, is_dataclass
from typing import Any

import rota
from rota import testing
from rota.cli.commands import GROUPS
from rota.cli.main import main
from rota.config import Settings
from rota.executors.context import Lock
from rota.executors.keeping import Storage
from rota.executors.registry import BUILT_IN
from rota.flow import events
from rota.flow.control import Control
from rota.jobsd import manifest
from rota.model.bodies import KEYS
from rota.model.options import RETRY_OPTIONS, SCHEDULE_OPTIONS, TIMINGS
from rota.model.run import Enqueued, Run
from rota.model.transitions import STATES
from rota.model.views import VIEWS
from rota.sql.execute import Statements
from rota.storage.store import open_store
from rota.task import HeldLock
from rota.web.metrics import Metrics
from rota.web.openapi import describe
from tests.docs.test_python_page import OF_EXECUTORS, OF_ROTA, OF_SURFACES, public
from tests.face.session import answers
from tests.face.shapes import schema_of

# A line of help: `  --job NAME: Only runs of this job. [required]`
_OPTION = re.compile(r"  (?P<names>\S.*?): (?P<text>.*?)(?P<required> \[required\])?")


def commands() -> dict[str, Any]:
    """Every command with its arguments and options, as its help says them."""
    return {
        command.name: {"help": command.help, "takes": arguments_of(command.name)}
        for group in GROUPS.values()
        for command in group
    }


def arguments_of(name: str) -> dict[str, str]:
    answer = io.StringIO()
    with redirect_stdout(answer):
        assert main([name, "--help"]) == 0
    lines = [_OPTION.fullmatch(line.rstrip()) for line in answer.getvalue().splitlines()]
    return {
        line["names"]: line["text"] + (" (required)" if line["required"] else "")
        for line in lines
        if line is not None
    }


def http() -> dict[str, Any]:
    """Every route: parameters, body, answers and role."""
    document = describe()
    shapes = document["components"]["schemas"]
    return {
        f"{method.upper()} {path}": route_of(operation, shapes)
        for path, operations in sorted(document["paths"].items())
        for method, operation in sorted(operations.items())
    }


def route_of(operation: dict[str, Any], shapes: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": operation["operationId"],
        "noun": operation["tags"],
        "role": operation["x-rota-role"],
        "security": operation["security"],
    }
    for parameter in sorted(operation.get("parameters", ()), key=lambda one: one["name"]):
        told.setdefault("parameters", {})[f"{parameter['in']} {parameter['name']}"] = {
            "required": parameter.get("required", False),
            "schema": schema_of(parameter["schema"], shapes),
        }
    if body := operation.get("requestBody"):
        told["body"] = {"required": body.get("required", False), **content_of(body, shapes)}
    told["answers"] = {
        status: content_of(answer, shapes)
        for status, answer in sorted(operation["responses"].items())
        # What goes wrong is told in one shape everywhere; it stands once, below 400.
        if status < "400" or status == "400"
    }
    told["problems"] = sorted(status for status in operation["responses"] if status >= "400")
    return told


def content_of(told: dict[str, Any], shapes: dict[str, Any]) -> dict[str, Any]:
    return {
        media: schema_of(content["schema"], shapes)
        for media, content in told.get("content", {}).items()
    }


def views(url: str) -> dict[str, Any]:
    """Names and types of the columns of every view, in their order."""
    store = open_store(url)
    try:
        store.migrate()
    finally:
        store.close()
    if url.startswith("sqlite"):
        return _sqlite_views(url)
    return _duckdb_views(url) if url.startswith("duckdb") else _postgres_views(url)


def _sqlite_views(url: str) -> dict[str, Any]:
    import sqlite3

    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        return {
            view: {row[1]: row[2] for row in connection.execute(f"PRAGMA table_info(rota_{view})")}
            for view in VIEWS
        }


def _duckdb_views(url: str) -> dict[str, Any]:
    import duckdb

    with duckdb.connect(url.removeprefix("duckdb:///")) as connection:
        return {
            view: {
                row[0]: row[1] for row in connection.execute(f"DESCRIBE _rota.{view}").fetchall()
            }
            for view in VIEWS
        }


def _postgres_views(url: str) -> dict[str, Any]:
    import psycopg

    columns = (
        "SELECT column_name, data_type FROM information_schema.columns "
        "WHERE table_schema = 'rota' AND table_name = %s ORDER BY ordinal_position"
    )
    functions = (
        "SELECT p.proname || '(' || pg_get_function_arguments(p.oid) || ')', "
        "pg_get_function_result(p.oid) FROM pg_proc AS p "
        "JOIN pg_namespace AS n ON n.oid = p.pronamespace WHERE n.nspname = 'rota' ORDER BY 1"
    )
    with psycopg.connect(url) as connection:
        told: dict[str, Any] = {
            view: dict(connection.execute(columns, [view]).fetchall())
            for view in (*VIEWS, "control")
        }
        told["functions"] = dict(connection.execute(functions).fetchall())
    return told


def python() -> dict[str, Any]:
    """Everything that programs import and call, with parameters and defaults."""
    told: dict[str, Any] = {}
    for name in rota.__all__:
        value = getattr(rota, name)
        if not inspect.isclass(value):
            told[f"rota.{name}"] = type(value).__name__
        elif issubclass(value, BaseException):
            told[f"rota.{name}"] = [base.__name__ for base in value.__mro__[1:-2]]
        else:
            hidden = {"Rota": OF_ROTA, "Context": OF_EXECUTORS}.get(name, set())
            told[f"rota.{name}"] = members(value, hidden)
    of_control = members(Control, OF_SURFACES)
    others = (Run, Enqueued, HeldLock, Lock, Storage, events.RunEvent)
    told |= {one.__name__: members(one) for one in others}
    told |= {f"rota.testing.{name}": members(getattr(testing, name), OF_ROTA) for name in TESTING}
    told["Control"] = of_control
    for name in MADE_BY_ROTA:
        del told[name][""]  # how one is made is the affair of Rota
    return told


# Programs are given these, and make none.
MADE_BY_ROTA = (
    "Control", "HeldLock", "Storage", "rota.Context", "rota.ContextTask", "rota.Task",
    "rota.testing.Driver",
)  # fmt: skip
TESTING = ("Clock", "Driver", "TestApp", "in_memory")


def members(value: Any, hidden: set[str] | frozenset[str] = frozenset()) -> Any:
    if not inspect.isclass(value):
        return signature(value)
    told = {"": signature(value)}
    for name in public(value):
        if name in hidden:
            continue
        member = inspect.getattr_static(value, name, None)
        if isinstance(member, property):
            told[name] = "property"
        else:
            member = getattr(member, "__func__", member)
            told[name] = signature(member) if callable(member) else "attribute"
    return told


def signature(function: Any) -> str:
    """Names, kinds and defaults; types are for checkers, and have tests of their own."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return "()"
    bare = [
        one.replace(annotation=one.empty, default=... if callable(one.default) else one.default)
        if one.default is not one.empty
        else one.replace(annotation=one.empty)
        for one in found.parameters.values()
    ]
    return str(found.replace(parameters=bare, return_annotation=found.empty))


def words() -> dict[str, Any]:
    """Settings, keys of job.toml, options, events, states and executors, by their names."""
    return {
        "settings": settings(),
        "job.toml": {
            "sql": sorted(manifest.KNOWN[manifest.SQL_FILE]),
            "python": sorted(manifest.KNOWN[manifest.PYTHON]),
            **{executor: sorted(KEYS[executor]) for executor in KEYS},
        },
        "options of a schedule": sorted({*TIMINGS, *SCHEDULE_OPTIONS, *RETRY_OPTIONS}),
        "executors": sorted(BUILT_IN),
        "states": list(STATES),
        "events for listeners": list(events.NAMES),
        "views": list(VIEWS),
        "metrics": metrics(),
    }


def settings() -> dict[str, str]:
    told = {}
    for one in fields(Settings):
        value = getattr(Settings(), one.name)
        for part in fields(value) if is_dataclass(value) else ():
            told[f"{one.name}.{part.name}"] = f"{part.type} = {getattr(value, part.name)!r}"
        if not is_dataclass(value):
            told[one.name] = f"{one.type} = {value!r}"
    return told


def metrics() -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        app = rota.Rota(f"sqlite:///{folder}/rota.db")
        app.job("job")(lambda: None)
        app.control.cancel(app.enqueue("job").id)
        try:
            return {
                family.name: f"{family.type}({', '.join(getattr(family, '_labelnames', ()))})"
                for family in Metrics(app).collect()
            }
        finally:
            app.close()


def statements() -> dict[str, list[str]]:
    """The columns that each SHOW and EXPLAIN answers with."""
    with tempfile.TemporaryDirectory() as folder:
        app = rota.Rota(f"sqlite:///{folder}/rota.db")
        app.job("greet")(lambda: None)
        app.schedule("nightly", job="greet", cron="0 3 * * *")
        app.load()
        app.enqueue("greet")
        sql = Statements(app.control, timezone="UTC", targets={"store"})
        try:
            return {
                text: list(sql.execute(statement).names)
                for text in ASKED
                for statement in sql.parse(text)
            }
        finally:
            app.close()


ASKED = (
    "SHOW SCHEDULES", "SHOW RUNNING SCHEDULES", "SHOW PAUSED SCHEDULES", "SHOW SCHEDULE nightly",
    "SHOW JOBS", "SHOW JOBS FOR SCHEDULE nightly", "SHOW RUNS", "SHOW RUNS FOR JOB greet",
    "SHOW CREATE SCHEDULE nightly", "EXPLAIN SCHEDULE nightly COUNT 2",
    "PAUSE SCHEDULE nightly", "RESUME SCHEDULE nightly", "EXECUTE SCHEDULE nightly",
    "RUN JOB greet", "ALTER SCHEDULE nightly SET overlap = skip", "PAUSE DISPATCH",
    "RESUME DISPATCH", "CANCEL JOBS FOR SCHEDULE nightly", "DROP SCHEDULE nightly",
)  # fmt: skip

PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "commands": commands,
    "http": http,
    "python": python,
    "words": words,
    "answers": answers,
    "statements": statements,
}
