"""Hostile strings go through every surface unharmed, and harm none: as arguments, results, errors,
log lines and reasons they come out as they went in, but for what no database can store; as names
they are refused by one rule, everywhere alike.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import rota
from rota.cli.main import main
from rota.cli.up_log import HumanLines, JsonLines, _say
from rota.errors import Invalid, RotaError
from rota.flow.events import RunEvent
from rota.web.server import Web
from tests.api.support import wait_until
from tests.support.postgres import Server
from tests.surface.conftest import Ends
from tests.web.support import CONTEXT

STRINGS = {
    "quotes": """it's "quoted" `and` \\back\\slashed\\ ''twice''""",
    "sql": "'; DROP TABLE runs; -- $$ $1 :name %s %(x)s {} ${HOME} $${",
    "markup": "<script>alert(1)</script><img src=x onerror=alert(1)>&amp;]]>",
    "ansi": "\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b[2J\x9b31m",
    "lines": "first\nsecond\r\nthird\rfourth\x0bfifth\u2028sixth\u0085seventh",
    "direction": "\u202etxt.exe\u202c \u2066x\u2069 \u200f\u200b\ufeff",
    "long": "0123456789" * 1_000,
    "path": "../../etc/hosts",
    "nul": "a\0b",
    "stream": "data: x\n\nevent: end\ndata: {}\n\n",
    "emoji": "naïve ☃ 𝄞 👩‍👩‍👧",
    "blank": " \t ",
}
HALF = "half \ud800"  # of a character: no database can store it
ENGINES = ("sqlite", "duckdb", "postgres")
# What a terminal obeys, or a reader cannot see.
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def stored(text: str) -> str:
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


@dataclass
class World:
    """A Rota that runs, with a run for every string that told it, and one that died of it."""

    app: rota.Rota
    web: Web
    token: str
    told: dict[str, str]
    died: dict[str, str]

    def cli(self, *args: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main([*args])
        return code, out.getvalue(), err.getvalue()

    def json(self, *args: str) -> Any:
        code, out, err = self.cli(*args, "--json")
        assert code == 0, err
        return json.loads(out)

    def get(self, path: str, **params: str) -> httpx.Response:
        return self.ask("GET", path, params=params)

    def ask(self, method: str, path: str, **what: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.request(
            method, self.web.url + path, headers=headers, timeout=20, verify=CONTEXT, **what
        )


@pytest.fixture(scope="module", params=ENGINES)
def address(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[str]:
    if request.param != "postgres":
        yield f"{request.param}:///{tmp_path_factory.mktemp('hostile')}/store.db"
        return
    server: Server = request.getfixturevalue("postgres_server")
    with server.database() as url:
        yield url


@pytest.fixture(scope="module")
def world(address: str, tmp_path_factory: Any) -> Iterator[World]:
    folder, before = tmp_path_factory.mktemp("world"), Path.cwd()
    os.chdir(folder)
    os.environ["ROTA_DATABASE"] = address
    app = rota.Rota(address, port=0)

    @app.job(max_attempts=1)
    def echo(ctx: rota.Context, value: str, deep: dict[str, Any]) -> dict[str, Any]:
        ctx.logger.info("%s", value)
        assert deep == {value: [value]}
        return {"value": value, "deep": deep}

    @app.job(max_attempts=1)
    def fail(ctx: rota.Context, value: str) -> None:
        raise RuntimeError(value)

    web = app._web = Web(app, wrong_tokens=10**9)
    ends = Ends(app, 2 * len(STRINGS))
    app.start(("scheduler", "worker", "web"))
    try:
        told, died = {}, {}
        for name, value in STRINGS.items():
            told[name] = app.enqueue("echo", {"value": value, "deep": {value: [value]}}).id
            died[name] = app.enqueue("fail", {"value": value}).id
        ends.wait()
        # Lines are written a moment after their run has ended.
        wait_until(lambda: all(app.control.logs(run_id) for run_id in told.values()))
        web.wait_ready()
        token = app.control.create_token("hostile", "admin")[1]
        yield World(app, web, token, told, died)
    finally:
        app.stop(grace="1s")
        os.chdir(before)
        del os.environ["ROTA_DATABASE"]


def echoed(value: str) -> dict[str, Any]:
    return {"value": value, "deep": {value: [value]}}


# As arguments, results, errors and log lines: each test asks for all strings at once, if it can.


@pytest.mark.each_engine
def test_python(world: World, subtests: pytest.Subtests) -> None:
    control = world.app.control
    for name, value in STRINGS.items():
        with subtests.test(name):
            run = control.run(world.told[name])
            assert run.state == "succeeded", run.error
            assert json.loads(run.args) == echoed(value)
            assert json.loads(run.result or "") == echoed(value)
            (line,) = control.logs(run.id)
            if name == "long":
                assert value.startswith(line["text"][:900])
            else:
                assert line["text"] == stored(value)
            dead = control.run(world.died[name])
            assert (dead.error or "").endswith(f"RuntimeError: {stored(value)}".rstrip("\n"))
            (attempt,) = control.attempts(dead.id)
            assert attempt["error"] == dead.error


def test_commands_for_programs(world: World, subtests: pytest.Subtests) -> None:
    control = world.app.control
    runs = {run["id"]: run for run in world.json("runs", "--limit", "100")}
    for name, value in STRINGS.items():
        with subtests.test(name):
            told = world.json("show", world.told[name])
            assert told["run"]["args"] == echoed(value)
            assert told["run"]["result"] == echoed(value)
            dead = control.run(world.died[name])
            assert world.json("show", dead.id)["run"]["error"] == dead.error
            assert [line["text"] for line in world.json("logs", world.told[name])] == [
                line["text"] for line in control.logs(world.told[name])
            ]
            assert runs[dead.id]["error"] == dead.error


def test_commands_for_people(world: World, subtests: pytest.Subtests) -> None:
    """Nothing in it moves a cursor, turns the direction of text, or passes for a line of ours."""

    def lines(*words: str) -> list[str]:
        code, out, err = world.cli(*words)
        assert code == 0, err
        assert not OBEYED.search(out), (words, OBEYED.findall(out))
        assert err == "" or not OBEYED.search(err)
        return out.splitlines()

    assert len(lines("runs", "--limit", "100")) == 2 * len(STRINGS) + 1  # each, and the head
    for name in STRINGS:
        with subtests.test(name):
            for run_id in (world.told[name], world.died[name]):
                lines("show", run_id)
                lines("logs", run_id)


@pytest.mark.each_engine
def test_views(world: World) -> None:
    errors = {run_id: world.app.control.run(run_id).error for run_id in world.died.values()}
    query = "SELECT run_id, error FROM runs WHERE error IS NOT NULL"

    def by_id(rows: Iterable[Any]) -> dict[str, Any]:
        return dict(rows)

    assert by_id(tuple(row.values()) for row in world.json("sql", "-c", query)) == errors
    assert by_id(world.app.control.select(query).rows) == errors
    answer = world.ask("POST", "/api/v1/sql", json={"sql": query})
    assert by_id(answer.json()["results"][0]["rows"]) == errors
    for other in (
        "SELECT run_id, detail FROM events WHERE kind = 'job.failed'",
        "SELECT run_id, error FROM dead",
    ):
        assert by_id(tuple(row.values()) for row in world.json("sql", "-c", other)) == errors
    code, out, err = world.cli("sql", "-c", query)
    assert code == 0, err
    assert not OBEYED.search(out)


@pytest.mark.each_engine
def test_a_string_in_a_statement_is_a_string(world: World, subtests: pytest.Subtests) -> None:
    for name, value in STRINGS.items():
        written = "'" + value.replace("'", "''") + "'"
        with subtests.test(name):
            if "\0" in value:
                with pytest.raises(Invalid, match="NUL"):
                    world.app.control.select(f"SELECT {written} AS x")
            else:
                assert world.app.control.select(f"SELECT {written} AS x").rows == ((value,),)


@pytest.mark.each_engine
def test_http(world: World, subtests: pytest.Subtests) -> None:
    for name, value in STRINGS.items():
        with subtests.test(name):
            answer = world.get(f"/api/v1/runs/{world.told[name]}")
            assert answer.headers["content-type"].startswith("application/json")
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.json()["args"] == echoed(value)
            assert answer.json()["result"] == echoed(value)
            dead = world.get(f"/api/v1/runs/{world.died[name]}").json()
            assert dead["error"] == world.app.control.run(world.died[name]).error
            lines = world.get(f"/api/v1/runs/{world.told[name]}/logs").json()["items"]
            assert [line["text"] for line in lines] == [
                line["text"] for line in world.app.control.logs(world.told[name])
            ]


def test_a_run_that_is_made_over_http_has_what_was_sent(
    world: World, subtests: pytest.Subtests
) -> None:
    for name, value in STRINGS.items():
        with subtests.test(name):
            body = {"args": echoed(value), "delay": "9d"}
            answer = world.ask("POST", "/api/v1/jobs/echo/runs", json=body)
            assert answer.status_code in (200, 201, 202), answer.text
            made = world.app.control.run(answer.json()["id"])
            assert json.loads(made.args) == echoed(value)
            world.app.control.delete(made.id)


def test_event_streams(
    world: World, subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One frame a line of the log, whatever is in it, and one at the end."""
    monkeypatch.setattr("rota.web.streams.LOG_LOOK_SECONDS", 0.01)  # it has ended long ago
    for name in STRINGS:
        with subtests.test(name):
            text = world.get(f"/api/v1/runs/{world.told[name]}/logs/stream").text
            frames = [frame for frame in text.split("\n\n") if "data:" in frame]
            events = [re.findall(r"^event: ?(.*)$", frame, re.MULTILINE) for frame in frames]
            assert events == [["log"], ["end"]]
            (data,) = re.findall(r"^data: ?(.*)$", frames[0], re.MULTILINE)
            assert json.loads(data)["text"] == world.app.control.logs(world.told[name])[0]["text"]


def test_the_feed_of_events(world: World) -> None:
    """Whatever an error holds, a frame of the feed is a few lines, and its data one of JSON."""
    headers = {"Authorization": f"Bearer {world.token}"}
    address = world.web.url + "/events"
    with httpx.stream("GET", address, headers=headers, timeout=20, verify=CONTEXT) as answer:
        lines = answer.iter_lines()
        next(line for line in lines if line == "event: hello")  # the feed has begun
        runs = [world.app.enqueue("fail", {"value": value}).id for value in STRINGS.values()]
        awaited = set(runs)
        for line in lines:
            field, _, value = line.partition(":")
            assert field in ("", "id", "event", "data", "retry"), line
            if field == "data":
                told = json.loads(value)
                if told.get("error") is not None:
                    awaited.discard(told.get("run_id"))
                    if not awaited:
                        break
    assert not awaited
    for run in runs:
        wait_until(lambda run=run: world.app.control.run(run).state == "dead")
        world.app.control.delete(run)


@pytest.mark.parametrize("name", STRINGS)
def test_log_lines(name: str) -> None:
    event = RunEvent(
        name="echo", run_id="1", attempt=1, duration_ms=5.0,
        scheduled_at=datetime.now(UTC), error=STRINGS[name],
    )  # fmt: skip
    seen: list[str] = []
    handler = logging.Handler()
    for formatter in (JsonLines(), HumanLines()):
        handler.setFormatter(formatter)
        handler.emit = lambda record: seen.append(handler.format(record))  # type: ignore[method-assign]
        logger = logging.getLogger("rota.up")
        logger.addHandler(handler)
        level = logger.level
        logger.setLevel("INFO")
        _say("attempt.failed", event, STRINGS[name])
        logger.removeHandler(handler)
        logger.setLevel(level)
    machine, human = seen
    assert "\n" not in machine
    assert machine.isascii()
    told = json.loads(machine)
    assert (told["message"], told["error"]) == (STRINGS[name], STRINGS[name])
    assert not OBEYED.search(human)
    assert all(line.startswith("    ") for line in human.splitlines()[1:])


def test_reasons(world: World, subtests: pytest.Subtests) -> None:
    for name, value in STRINGS.items():
        with subtests.test(name):
            run = world.app.enqueue("fail", {"value": "x"}, delay="9d")
            world.app.control.cancel(run.id, value)
            reason = world.app.control.run(run.id).reason or ""
            assert reason == stored(value) or ("cut" in reason and name == "long")
            entry = next(row for row in world.app.control.audit() if row["thing"] == run.id)
            assert entry["reason"] == reason
            code, out, err = world.cli("show", run.id)
            assert code == 0, err
            assert not OBEYED.search(out)
            world.app.control.delete(run.id)


def test_metrics_are_whole(world: World) -> None:
    page = world.get("/metrics").text
    families = list(text_string_to_metric_families(page))
    jobs = {
        sample.labels["job"]
        for family in families for sample in family.samples if "job" in sample.labels
    }  # fmt: skip
    assert jobs == {"echo", "fail"}


def test_half_of_a_character_is_refused_before_it_is_stored(world: World) -> None:
    with pytest.raises(Invalid, match="half of a surrogate pair"):
        world.app.enqueue("fail", {"value": HALF})
    with pytest.raises(Invalid):
        world.app.control.select(f"SELECT '{HALF}'")
    body = b'{"args": {"value": "half \\ud800"}}'
    headers = {"Authorization": f"Bearer {world.token}", "Content-Type": "application/json"}
    url = world.web.url + "/api/v1/jobs/fail/runs"
    answer = httpx.post(url, content=body, headers=headers, timeout=20)
    assert 400 <= answer.status_code < 500, answer.text


# As names

Refusal = Callable[[World, str], object]


def _refused_by_command(world: World, *words: str) -> None:
    code, out, err = world.cli(*words)
    assert code in (1, 2), (words, out)
    assert not OBEYED.search(err.rstrip("\n"))
    assert "Traceback" not in err
    raise Invalid(err)


def _refused_over_http(world: World, method: str, path: str, body: object = None) -> None:
    answer = world.ask(method, path, json=body)
    assert 400 <= answer.status_code < 500, (answer.status_code, answer.text)
    assert answer.headers["content-type"] == "application/problem+json"
    raise Invalid(answer.text)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


NAMES: dict[str, Refusal] = {
    "a job": lambda world, name: world.app.job(name)(lambda: None),
    "the queue of a job": lambda world, name: world.app.job("new", queue=name)(lambda: None),
    "a schedule": lambda world, name: world.app.schedule(name, job="echo", every="1h"),
    "the job of a schedule": lambda world, name: world.app.schedule("new", job=name, every="1h"),
    "what is enqueued": lambda world, name: world.app.enqueue(name),
    "a queue": lambda world, name: world.app.enqueue("fail", {"value": "x"}, queue=name),
    "a queue that is paused": lambda world, name: world.app.control.pause_queue(name),
    "a token": lambda world, name: world.app.control.create_token(name, "viewer"),
    "a schedule of a statement": lambda world, name: _refused_by_command(
        world, "sql", "-c", f"CREATE SCHEDULE {_quoted(name)} FOR JOB echo EVERY '1h'"
    ),
    "a schedule of a command": lambda world, name: _refused_by_command(
        world, "schedule", "--job", "fail", "--every", "1h", "--", name
    ),
    "a job of a command": lambda world, name: _refused_by_command(world, "enqueue", "--", name),
    "a schedule of a request": lambda world, name: _refused_over_http(
        world, "POST", "/api/v1/schedules", {"name": name, "job": "fail", "every": "1h"}
    ),
    "a token of a request": lambda world, name: _refused_over_http(
        world, "POST", "/api/v1/tokens", {"name": name, "role": "viewer"}
    ),
}


@pytest.mark.parametrize("address", ["sqlite"], indirect=True)  # the rule knows of no engine
@pytest.mark.parametrize("place", NAMES)
def test_names_are_refused_by_one_rule(world: World, subtests: pytest.Subtests, place: str) -> None:
    before = _counts(world)
    for name, value in STRINGS.items():
        with subtests.test(name):
            with pytest.raises((RotaError, ValueError)) as caught:
                NAMES[place](world, value)
            assert not OBEYED.search(str(caught.value).rstrip("\n")), str(caught.value)
            assert len(str(caught.value)) < 3_000
    assert _counts(world) == before


def _counts(world: World) -> object:
    control = world.app.control
    return (
        [job["name"] for job in control.jobs()],
        [one.name for one in control.schedules()],
        [queue["name"] for queue in control.queues()],
        control.overview()["runs"],
        [one["name"] if isinstance(one, dict) else one.name for one in control.tokens()],
    )


def test_looking_for_a_thing_of_that_name_finds_nothing(
    world: World, subtests: pytest.Subtests
) -> None:
    for name, value in STRINGS.items():
        with subtests.test(name):
            for words in (("show", "--", value), ("runs", "--job", value),
                          ("explain", "--", value), ("logs", "--", value),
                          ("pause", "--", value)):  # fmt: skip
                code, out, err = world.cli(*words)
                assert code in (1, 2), (words, out, err)
                assert not OBEYED.search(err.rstrip("\n"))
                assert "Traceback" not in err
            answer = world.get("/api/v1/runs", job=value)
            nothing = answer.status_code == 200 and answer.json()["items"] == []
            assert nothing or 400 <= answer.status_code < 500
