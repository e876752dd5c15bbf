"""`rota up --log-format json`: one object a line, every one with the same names, no secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.surface.conftest import Cli
from tests.surface.test_up import Up

APP = """
    import logging
    import rota

    app = rota.Rota()

    @app.job(max_attempts=1)
    def say(ctx: rota.Context, token: str) -> None:
        ctx.logger.info("two\\nlines with %s", token)
        logging.getLogger("library").warning("also postgresql://me:geheim@db")
        raise RuntimeError(f"failed with {token}")
"""

NAMES = {
    "time", "level", "event", "source", "job", "run_id", "attempt", "duration", "message", "error",
}  # fmt: skip


@pytest.fixture
def up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Up]:
    (tmp_path / "shop.py").write_text(dedent(APP))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    up = Up("shop:app", "--log-format", "json")
    yield up
    up.process.kill()
    up.process.wait(20)


def test_each_line_is_an_object_with_the_same_names(up: Up, cli: Cli) -> None:
    run = _enqueue(up, cli)
    up.wait_for('"event": "job.failed"')
    up.stop()
    lines: list[dict[str, Any]] = [json.loads(line) for line in up.lines]
    assert all(line.keys() == NAMES for line in lines)

    ended = _one(lines, "attempt.failed")
    assert (ended["job"], ended["run_id"], ended["attempt"]) == ("say", run, 1)
    assert ended["duration"] >= 0
    assert ended["error"].endswith("RuntimeError: failed with [redacted]")
    assert _one(lines, "attempt.started")["duration"] is None
    said = next(line for line in lines if line["message"].startswith("two"))
    assert said["message"] == "two\nlines with [redacted]"
    assert (said["job"], said["run_id"], said["attempt"]) == ("say", run, 1)
    library = next(line for line in lines if line["source"] == "library")
    assert library["message"] == "also postgresql://me:[redacted]@db"
    assert (library["job"], library["level"]) == (None, "warning")


def _enqueue(up: Up, cli: Cli) -> str:
    assert up.process.stdout is not None
    up.process.stdout.readline()  # the store is there once the screen is
    answer = cli("enqueue", "say", "--arg", "token=canary-value", "--json").json
    return str(answer["id"])


def _one(lines: list[dict[str, Any]], event: str) -> dict[str, Any]:
    (found,) = (line for line in lines if line["event"] == event)
    return found


@pytest.mark.usefixtures("clean_logging")
def test_an_unknown_format_is_refused(cli: Cli) -> None:
    answer = cli("up", "--log-format", "xml")
    assert answer.code == 2
    assert answer.error == "rota: log format 'xml' is unknown; use text or json"
