"""Canary secrets are found nowhere: not in logs, history, views, answers, metrics or processes.

A `rota up` with everything planted runs on each engine; commands without its environment, its own
API, a role of PostgreSQL that may only read the views, and the raw tables are searched. What is
stored as it is, because runs need it, is `PRIVATE`.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import duckdb
import httpx
import psycopg
import pytest

from tests.api.support import wait_until
from tests.support.postgres import Server
from tests.surface.canaries import ENVIRONMENT, PLANTED, echoing, found, make_folder
from tests.surface.conftest import Cli
from tests.surface.test_up import Up

# What runs need; no view has it.
PRIVATE = {("runs", "args"), ("schedules", "args"), ("jobs", "spec"), ("job_texts", "text")}
VIEWS = (
    "jobs", "job_queue", "job_runs", "schedules", "occurrences", "runs", "attempts", "steps",
    "events", "workers", "queues", "dead",
)  # fmt: skip
ARGS = {"password": PLANTED["argument"], "deep": {"list": [{"api_key": PLANTED["deep"]}]}}
JOBS = (
    "arguments", "traceback", "header", "settings", "storage", "leaky", "books", "away", "command",
    "request",
)  # fmt: skip
REASONS = {
    "traceback": "ValueError", "header": "Authorization", "settings": "Settings(",
    "storage": "nowhere", "leaky": "no entry with", "books": "02_fail.sql", "away": "127.0.0.1",
    "command": "code 3", "request": "500",
}  # fmt: skip
HIDDEN = "[redacted]"


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param != "postgres":
        yield f"{request.param}:///{tmp_path}/store.db"
        return
    server: Server = request.getfixturevalue("postgres_server")
    role = f"canary_{os.getpid()}"
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} SUPERUSER LOGIN PASSWORD '{PLANTED['database']}'")
        try:
            with server.database() as made:
                parts = urlsplit(made)
                user = f"{role}:{quote(PLANTED['database'], safe='')}"
                yield parts._replace(netloc=f"{user}@{parts.hostname}:{parts.port}").geturl()
        finally:
            connection.execute(f"DROP ROLE {role}")


@pytest.fixture
def up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, cli: Cli) -> Iterator[Up]:
    """Everything planted. Commands of the test know the store, and nothing else of it."""
    with ExitStack() as stack:
        make_folder(tmp_path, stack.enter_context(echoing()))
        yield from start(monkeypatch, url)


def start(monkeypatch: pytest.MonkeyPatch, url: str) -> Iterator[Up]:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("ROTA_DATABASE", url)
    monkeypatch.setattr("rota.cli.store.BUSY_SECONDS", 60.0)  # the door opens after the screen
    processes = "1" if url.startswith("duckdb") else "2"
    with monkeypatch.context() as planted:
        for name, value in ENVIRONMENT.items():
            planted.setenv(name, value)
        options = ("--port", "0", "--json", "--log-level", "debug", "--processes", processes)
        up = Up("shop:app", *options)
    yield up
    up.process.kill()
    up.process.wait(20)


def screen(up: Up) -> dict[str, Any]:
    assert up.process.stdout is not None
    lines = []
    for line in up.process.stdout:
        lines.append(line)
        if line == "}\n":
            break
    assert lines, up.lines
    told: dict[str, Any] = json.loads("".join(lines))
    return told


class Surfaces:
    """All that can be seen, by where."""

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}

    def add(self, where: str, text: object) -> None:
        self.seen[where] = self.seen.get(where, "") + str(text) + "\n"

    def check(self) -> None:
        leaks = {where: found(text) for where, text in self.seen.items()}
        assert {where: seen for where, seen in leaks.items() if seen} == {}


def test_canaries_are_found_nowhere(up: Up, cli: Cli, url: str, tmp_path: Path) -> None:
    seen = Surfaces()
    told = screen(up)
    seen.add("screen", json.dumps(told))
    token = Path(".rota/token").read_text().strip()
    with httpx.Client(
        base_url=told["web"]["url"], headers={"Authorization": f"Bearer {token}"}, timeout=20
    ) as api:
        ids = act(cli, api, seen)
        if not url.startswith("duckdb"):
            ask_by_rows(url, seen)
        wait_until(lambda: all(run["state"] in ("succeeded", "dead") for run in runs(cli)))
        states = {run["job"]: run["state"] for run in runs(cli)}
        good = ("arguments", "asked")
        assert states == {job: "succeeded" if job in good else "dead" for job in states}
        assert set(states) >= set(JOBS)
        errors = {run["job"]: run["error"] for run in runs(cli)}
        for job, words in REASONS.items():  # they did what they are here for
            assert words in errors[job], errors[job]
        look_at_processes(up, seen)  # first: a child that has nothing to do leaves after a minute
        look_with_commands(cli, ids, seen)
        look_with_api(api, ids, seen)
    code, rest = up.stop()
    assert code == 0
    seen.add("stdout", rest)
    seen.add("stderr", "\n".join(up.lines))
    look_at_tables(url, seen)
    if url.startswith("postgresql"):
        look_as_viewer(url, seen)
    seen.check()
    for where in ("rota logs", "rota show", "stderr", "table runs", "table logs", "/api/v1/runs",
                  "table schedule_changes", "table audit", "control rows"):  # fmt: skip
        if not (where == "control rows" and url.startswith("duckdb")):
            assert HIDDEN in seen.seen[where], where


def runs(cli: Cli) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cli("runs", "--json").json
    return found


def act(cli: Cli, api: httpx.Client, seen: Surfaces) -> list[str]:
    """Use every way in; the ids of the runs that were made."""
    ids = []
    for job in JOBS:
        takes = job in ("arguments", "traceback", "storage")
        args = ["--args", json.dumps(ARGS)] if takes else []
        answer = cli("enqueue", job, *args, "--json")
        ids.append(answer.json["id"])
        seen.add("rota enqueue", answer.out + answer.err)
    secret = {**ARGS, "password": PLANTED["schedule"]}
    made = api.post(
        "/api/v1/schedules",
        json={"name": "planted", "job": "arguments", "every": "9d", "args": secret},
    )
    assert made.status_code == 201, made.text
    seen.add("POST schedules", made.text)
    edited = cli("schedule", "planted", "--every", "8d", "--args", json.dumps(secret))
    seen.add("rota schedule", edited.out + edited.err)
    assert edited.code == 0
    reason = f"the password={PLANTED['argument'].replace(chr(39), '')} was seen"
    seen.add("rota pause", cli("pause", "planted", "--reason", reason).out)
    return ids


def ask_by_rows(url: str, seen: Surfaces) -> None:
    """Control rows, one that is done and two that are refused; they stay in the table."""
    table = "rota_control" if url.startswith("sqlite") else "rota.control"
    written = "'" + PLANTED["argument"].replace("'", "''") + "'"
    statements = (
        f"RUN JOB asked WITH (password = {written})",
        f"RUN JOB nobody WITH (password = {written})",
        f"RUN JOB asked WITH (password = {written}, no_such = 1)",
    )
    with opened(url) as connection:
        mark = "?" if url.startswith("sqlite") else "%s"
        for statement in statements:
            connection.execute(f"INSERT INTO {table} (statement) VALUES ({mark})", (statement,))
        connection.commit()

        def answered() -> bool:
            connection.commit()
            found = connection.execute(f"SELECT status FROM {table}").fetchall()
            return len(found) == 3 and all(status != "asked" for (status,) in found)

        wait_until(answered)
        for row in connection.execute(f"SELECT * FROM {table}").fetchall():
            seen.add("control rows", row)


def opened(url: str) -> Any:
    if url.startswith("sqlite"):
        return closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=20))
    return psycopg.connect(url)


def look_with_commands(cli: Cli, ids: list[str], seen: Surfaces) -> None:
    asked = [
        ("jobs",), ("schedules",), ("runs",), ("queues",), ("workers",), ("locks",), ("doctor",),
        ("show", "planted"), ("explain", "planted"), *(("show", job) for job in JOBS),
        *(("show", one) for one in ids), *(("logs", one) for one in ids),
    ]  # fmt: skip
    for words in asked:
        for form in ((), ("--json",)):
            answer = cli(*words, *form)
            assert answer.code in (0, 1), answer.err
            seen.add(f"rota {words[0]}", answer.out + answer.err)
    statements = [
        *(f"SELECT * FROM {view}" for view in VIEWS),
        "SHOW SCHEDULES", "SHOW JOBS", "SHOW RUNS", "SHOW SCHEDULE planted",
        "SHOW CREATE SCHEDULE planted", "EXPLAIN SCHEDULE planted",
        "SELECT no_such FROM runs WHERE error = 'x'",
    ]  # fmt: skip
    for statement in statements:
        for form in ((), ("--json",)):
            answer = cli("sql", "-c", statement, *form)
            assert answer.code == (0 if "no_such" not in statement else answer.code), answer.err
            seen.add("rota sql", answer.out + answer.err)


def look_with_api(api: httpx.Client, ids: list[str], seen: Surfaces) -> None:
    document = api.get("/api/v1/openapi.json").json()
    places = {
        "{job}": list(JOBS), "{schedule}": ["planted"], "{run}": ids, "{file}": ["none"],
        "{queue}": ["default"], "{token}": ["none"],
    }  # fmt: skip
    for path, methods in document["paths"].items():
        if "get" not in methods or path.endswith(("/stream", "/events")):
            continue
        name = next((name for name in places if name in path), "")
        for value in places.get(name, [""]):
            params = {"at": "2026-01-01T00:00:00Z"} if path.endswith("/why") else {}
            answer = api.get(path.replace(name, value) if name else path, params=params)
            assert answer.status_code < 500, (path, answer.text)
            seen.add(path, answer.text + str(answer.headers))
    for statement in (f"SELECT * FROM {view}" for view in VIEWS):
        answer = api.post("/api/v1/sql", json={"sql": statement})
        assert answer.status_code == 200, answer.text
        seen.add("/api/v1/sql", answer.text)
    metrics = api.get("/metrics")
    assert metrics.status_code == 200
    seen.add("/metrics", metrics.text)


def look_at_processes(up: Up, seen: Surfaces) -> None:
    """The arguments of everything that `rota up` started; there are children of jobs among it."""
    told = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(None, 2) for line in told.splitlines()]
    family, size = {up.process.pid}, 0
    while len(family) > size:
        size = len(family)
        family |= {int(pid) for pid, parent, *_ in rows if int(parent) in family}
    assert len(family) > 1
    for pid in family:
        with suppress(OSError):  # it has ended meanwhile
            seen.add("processes", Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "))
    assert "rota" in seen.seen["processes"]


def look_at_tables(url: str, seen: Surfaces) -> None:
    """Everything that is stored, but for what runs need."""
    for table, columns, rows in tables(url):
        shown = [place for place, name in enumerate(columns) if (table, name) not in PRIVATE]
        assert len(shown) < len(columns) or table not in {name for name, _ in PRIVATE}
        for row in rows:
            seen.add(f"table {table}", [row[place] for place in shown])


def tables(url: str) -> Iterator[tuple[str, list[str], list[Any]]]:
    connection: Any
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB '_rota_*'"
        prefix, cut = "", "_rota_"
    elif url.startswith("duckdb"):
        connection = duckdb.connect(url.removeprefix("duckdb:///"))
        names = "SELECT table_name FROM duckdb_tables() WHERE schema_name = '_rota_data'"
        prefix, cut = "_rota_data.", ""
    else:
        connection = psycopg.connect(url)
        names = "SELECT tablename FROM pg_tables WHERE schemaname = 'rota_data'"
        prefix, cut = "rota_data.", ""
    try:
        found = [name for (name,) in connection.execute(names).fetchall()]
        assert {"runs", "audit", "logs"} <= {name.removeprefix(cut) for name in found}
        for name in found:
            cursor = connection.execute(f'SELECT * FROM {prefix}"{name}"')
            columns = [column[0] for column in cursor.description]
            yield name.removeprefix(cut), columns, cursor.fetchall()
    finally:
        connection.close()


def look_as_viewer(url: str, seen: Surfaces) -> None:
    """A role of its own, that may read the views and nothing else."""
    with psycopg.connect(url, autocommit=True) as connection:
        role = f"rota_reader_{os.getpid()}"
        connection.execute(f"CREATE ROLE {role}")
        try:
            connection.execute(f"GRANT USAGE ON SCHEMA rota TO {role}")
            for view in VIEWS:
                connection.execute(f"GRANT SELECT ON rota.{view} TO {role}")
            connection.execute(f"SET ROLE {role}")
            for view in VIEWS:
                for row in connection.execute(f"SELECT * FROM rota.{view}").fetchall():
                    seen.add(f"view {view}", row)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("SELECT args FROM rota_data.runs")
        finally:
            connection.execute("RESET ROLE")
            connection.execute(f"DROP OWNED BY {role}")
            connection.execute(f"DROP ROLE {role}")


def test_the_search_finds_what_it_looks_for() -> None:
    for value in PLANTED.values():
        assert found(f"before {value} after")
    assert found("dmFsdWU6Y2FuYXJ5LWFyZy04S3AncQ==")
    assert not found("nothing to see: canary")


@pytest.mark.parametrize("command", ["runs", "doctor", "up", "migrate", "enqueue"])
def test_a_password_that_is_not_encoded_is_told_by_no_command(cli: Cli, command: str) -> None:
    url = "postgresql://shop:can@ry/w#rd@127.0.0.1:5432/shop"
    words = (command, *(("job",) if command == "enqueue" else ()))
    for form in ((), ("--json",)):
        answer = cli(*words, "--database", url, *form)
        assert answer.code == 2, answer
        assert "percent-encode @ / # : ? in its password (p@ss is p%40ss)" in answer.err
        assert not any(part in answer.out + answer.err for part in ("can@", "ry/w", "w#rd", "#rd"))
