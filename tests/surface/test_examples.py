"""The example that `make up` starts: it loads, and its jobs do what their names say."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.cli.load import load_app
from tests.surface.conftest import Cli, Ends

ROOT = Path(__file__).parents[2]


def test_hello(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    app = load_app("examples.hello:app")
    assert {job.name for job in app.jobs()} == {
        "heartbeat", "ticker", "flaky", "minutely", "greet",
    }  # fmt: skip
    ends = Ends(app, 3)
    app.start(["worker"])
    try:
        for name in ("heartbeat", "ticker", "greet"):
            app.control.trigger(name)
        ends.wait()
        states = {run.job: run.state for run in app.control.runs()}
    finally:
        app.stop()
    assert states == {"heartbeat": "succeeded", "ticker": "succeeded", "greet": "succeeded"}
