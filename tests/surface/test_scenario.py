"""The commands tell a story exactly as it happened: start 5, pause 2, fail 1, drop 1."""

from __future__ import annotations

from collections import Counter

from rota.life import open_local_socket
from tests.surface.conftest import Cli
from tests.surface.scenario import DROPPED, ERROR, FAILED, PAUSED, WHY_PAUSED, scenario


def test_the_commands_tell_the_story(cli: Cli, database: str) -> None:
    with scenario() as (app, told):
        door = open_local_socket(app)
        try:
            schedules = {one["name"]: one for one in cli("schedules", "--json").json}
            runs = cli("runs", "--limit", "100", "--json").json
            jobs = cli("jobs", "--json").json
            dead = cli("runs", "--state", "dead", "--json").json
            workers = cli("workers", "--json").json
            gone = cli("show", DROPPED, "--json").json
            asked = [one for one in reversed(app.control.audit()) if one["reason"]]
        finally:
            if door is not None:
                door.stop()
    assert {name: one["status"] for name, one in schedules.items()} == told.schedules
    assert {schedules[name]["paused_reason"] for name in PAUSED} == {WHY_PAUSED}
    assert sorted(job["name"] for job in jobs) == list(told.jobs)
    assert {run["job"]: run["state"] for run in runs} == told.runs
    assert len(runs) == told.started
    assert Counter(run["state"] for run in runs) == told.states
    assert [run["job"] for run in dead] == [FAILED]
    assert ERROR in dead[0]["error"]
    assert sum(worker["alive"] for worker in workers) == told.workers
    assert [(one["action"], one["thing"], one["reason"]) for one in asked] == list(told.actions)
    assert "schedule" not in gone  # dropped; its job and the run it made are there
    assert [run["state"] for run in gone["runs"]] == ["succeeded"]
