"""The API and its metrics tell a story as it happened: start 5, pause 2, fail 1, drop 1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import rota
from rota.model.roles import VIEWER
from rota.web.routing import PUBLIC
from rota.web.server import Web
from rota.web.table import ROUTES
from tests.surface.scenario import DROPPED, ERROR, FAILED, PAUSED, WHY_PAUSED, scenario


@contextmanager
def client(app: rota.Rota) -> Iterator[httpx.Client]:
    """Of a server for an app that runs already."""
    app.settings = replace(app.settings, port=0)
    web = Web(app)
    web.start()
    try:
        web.wait_ready()
        token = app.control.create_token("reader", "viewer")[1]
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=web.url, headers=headers, timeout=20) as made:
            yield made
    finally:
        web.stop()


def every_path(schedule: dict[str, Any], run: dict[str, Any], api: httpx.Client) -> list[str]:
    """Each GET route that a viewer may ask and that ends, about things that are there."""
    (group,) = api.get("/api/v1/dead").json()["groups"]
    parts = {
        "{schedule:name}": schedule["name"],
        "{job:name}": schedule["job"],
        "{run:run}": run["id"],
        "{group}": group["group"],
    }
    paths = []
    for route in ROUTES:
        path = route.path
        for part, value in parts.items():
            path = path.replace(part, quote(value, safe=""))
        if route.method == "GET" and route.role in (PUBLIC, VIEWER) and path != "/events":
            paths.append(f"{path}?state=dead" if path.endswith("/count") else path)
    return [path for path in paths if "{" not in path]


def test_the_api_tells_the_story(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rota.web.metrics.WAIT_SECONDS", 60.0)  # or its figures may be left out
    with scenario(database) as (app, told), client(app) as api:

        def items(path: str, **params: str) -> list[dict[str, Any]]:
            answer = api.get(f"/api/v1/{path}", params=params)
            assert answer.status_code == 200, answer.text
            told = answer.json()
            found: list[dict[str, Any]] = told if isinstance(told, list) else told["items"]
            return found

        schedules = {one["name"]: one for one in items("schedules")}
        runs, dead = items("runs"), items("runs", state="dead")
        jobs, workers, audit = items("jobs"), items("workers"), items("audit")
        gone = api.get(f"/api/v1/schedules/{DROPPED}")
        overview = api.get("/api/v1/overview").json()
        refused = {
            path: answer.text
            for path in every_path(schedules[next(iter(PAUSED))], dead[0], api)
            if (answer := api.get(path)).status_code != 200
        }
        metrics = list(text_string_to_metric_families(api.get("/metrics").text))

    assert refused == {}
    assert {name: one["status"] for name, one in schedules.items()} == told.schedules
    assert {schedules[name]["paused_reason"] for name in PAUSED} == {WHY_PAUSED}
    assert sorted(job["name"] for job in jobs) == list(told.jobs)
    assert {run["job"]: run["state"] for run in runs} == told.runs
    assert Counter(run["state"] for run in runs) == told.states
    assert [run["job"] for run in dead] == [FAILED]
    assert ERROR in dead[0]["error"]
    assert len(workers) == told.workers
    asked = [one for one in reversed(audit) if one["reason"]]
    assert [(one["action"], one["thing"], one["reason"]) for one in asked] == list(told.actions)
    assert gone.status_code == 404
    assert {state: count for state, count in overview["runs"].items() if count} == told.states
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in metrics for sample in family.samples
    }  # fmt: skip
    for job, state in told.runs.items():
        assert samples["rota_runs_total", *sorted((job, state))] == 1
    assert samples["rota_runs_started_total",] == told.started
    assert samples["rota_fires_total", "fired"] == told.fires["fired"]
    for status, count in told.statuses.items():
        assert samples["rota_schedules", status] == count
    assert samples["rota_workers",] == told.workers
