"""What the API says and does, noun by noun, on every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

import rota
from rota.model.job import Job
from rota.model.retry import Retry
from rota.storage import operations
from tests.web.support import Site, eventually, fresh_id, serving

V1 = "/api/v1"


@pytest.fixture
def client(working: Site) -> Iterator[httpx.Client]:
    with working.client("operator") as made:
        yield made


def ok(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    told = answer.json()
    assert told["status"] == answer.status_code
    return answer.status_code, told["code"]


def ended(client: httpx.Client, run_id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        run = ok(client.get(f"{V1}/runs/{run_id}"))
        return run if run["finished_at"] else None

    found: dict[str, Any] = eventually(look)
    return found


@pytest.mark.each_engine
def test_a_run_from_its_enqueue_to_its_end(client: httpx.Client) -> None:
    answer = client.post(f"{V1}/jobs/chatty/runs", json={"args": {"lines": 2}, "key": "once"})
    made = ok(answer, 201)
    assert answer.headers["location"] == f"{V1}/runs/{made['id']}"
    again = client.post(f"{V1}/jobs/chatty/runs", json={"args": {"lines": 2}, "key": "once"})
    assert ok(again, 201) == {"id": made["id"], "created": False}
    run = ended(client, made["id"])
    assert (run["state"], run["job"], run["queue"]) == ("succeeded", "chatty", "talk")
    assert run["result"] == {"lines": 2}
    assert run["created_by"] == "the-operator"
    (attempt,) = ok(client.get(f"{V1}/runs/{run['id']}/attempts"))
    assert attempt["outcome"] == "succeeded"
    path = f"{V1}/runs/{run['id']}/logs"
    eventually(lambda: len(ok(client.get(path))["items"]) == 2)
    last = ok(client.get(path, params={"limit": 1}))
    assert [line["text"] for line in last["items"]] == ["line 1"]
    earlier = ok(client.get(path, params={"limit": 1, "before": last["next"]}))
    assert [line["text"] for line in earlier["items"]] == ["line 0"]
    after = ok(client.get(path, params={"after": earlier["items"][0]["id"]}))
    assert [line["text"] for line in after["items"]] == ["line 1"]
    assert problem(client.post(f"{V1}/runs/{run['id']}/cancel", json={})) == (409, "conflict")
    redone = ok(client.post(f"{V1}/runs/{run['id']}/redo", json={"reason": "again"}))
    assert (redone["redo"], redone["notes"]) == (1, [])
    ended(client, run["id"])
    assert client.delete(f"{V1}/runs/{run['id']}").status_code == 204
    assert problem(client.get(f"{V1}/runs/{run['id']}")) == (404, "unknown")


def test_an_enqueue_may_say_attempts_and_timeout(client: httpx.Client) -> None:
    told = {"args": {"name": "Ada"}, "delay": "1h", "max_attempts": 7, "timeout": "90s"}
    made = ok(client.post(f"{V1}/jobs/greet/runs", json=told), 201)
    run = ok(client.get(f"{V1}/runs/{made['id']}"))
    assert (run["max_attempts"], run["timeout"]) == (7, "1m30s")
    for wrong in ({"max_attempts": 0}, {"timeout": "soon"}, {"timeout": 5}):
        assert problem(client.post(f"{V1}/jobs/greet/runs", json=told | wrong))[0] == 422


def test_a_job_tells_its_tags(working: Site, client: httpx.Client) -> None:
    job = Job(name="tagged", source="api", executor="sql", spec={"tags": ["finance"]})
    working.app.storage.write(operations.put_jobs, [job])
    assert ok(client.get(f"{V1}/jobs/tagged"))["tags"] == ["finance"]
    rows = {one["name"]: one["tags"] for one in ok(client.get(f"{V1}/jobs"))["items"]}
    assert (rows["tagged"], rows["greet"]) == (["finance"], [])


def test_a_run_that_waits_is_paused_resumed_and_cancelled(client: httpx.Client) -> None:
    run = ok(client.post(f"{V1}/jobs/greet/runs", json={"delay": "1h"}), 201)["id"]
    for verb, state in (("pause", "paused"), ("resume", "waiting"), ("cancel", "cancelled")):
        told = ok(client.post(f"{V1}/runs/{run}/{verb}", json={"reason": "because"}))
        assert told["state"] == state
    entries = ok(client.get(f"{V1}/audit", params={"limit": 3}))["items"]
    assert [(one["action"], one["before"], one["after"]) for one in entries] == [
        ("cancel_run", "waiting", "cancelled"),
        ("resume_run", "paused", "waiting"),
        ("pause_run", "waiting", "paused"),
    ]
    for one in entries:
        assert (one["by"], one["via"], one["reason"]) == (
            "the-operator",
            "http 127.0.0.1",
            "because",
        )
        assert one["thing"] == run


def test_a_name_with_a_slash_is_one_part_of_a_path(client: httpx.Client) -> None:
    job, schedule = "maintenance%2Fvacuum", "maintenance%2Fnightly"
    assert ok(client.get(f"{V1}/jobs/{job}"))["name"] == "maintenance/vacuum"
    assert ok(client.get(f"{V1}/schedules/{schedule}"))["name"] == "maintenance/nightly"
    paused = ok(client.post(f"{V1}/schedules/{schedule}/pause", json={"reason": "so"}))
    assert (paused["status"], paused["paused_reason"]) == ("PAUSED", "so")
    assert ok(client.post(f"{V1}/schedules/{schedule}/resume", json={}))["status"] == "ACTIVE"
    ended(client, ok(client.post(f"{V1}/schedules/{schedule}/trigger", json={}), 201)["id"])
    told = ok(client.get(f"{V1}/runs", params={"schedule": "maintenance/nightly"}))["items"]
    assert [run["schedule"] for run in told] == ["maintenance/nightly"]
    assert problem(client.get(f"{V1}/jobs/maintenance/vacuum")) == (404, "no-route")
    # What is encoded twice is another name, and no name holds a percent sign.
    assert problem(client.get(f"{V1}/jobs/maintenance%252Fvacuum")) == (422, "invalid")
    assert client.delete(f"{V1}/schedules/{schedule}").status_code == 204
    assert problem(client.get(f"{V1}/schedules/{schedule}")) == (404, "unknown")


def test_a_schedule_is_created_and_edited_by_its_version(client: httpx.Client) -> None:
    told = {"name": "nightly", "job": "greet", "cron": "0 3 * * *", "timezone": "Europe/Berlin",
            "args": {"name": "Eve"}, "retry": {"max_attempts": 4}}  # fmt: skip
    answer = client.post(f"{V1}/schedules", json=told)
    made = ok(answer, 201)
    assert (made["kind"], made["expr"], made["owner"]) == ("cron", "0 3 * * *", "the-operator")
    assert made["retry"]["max_attempts"] == 4
    etag = answer.headers["etag"]
    assert etag == f'"{made["version"]}"'
    assert problem(client.post(f"{V1}/schedules", json=told)) == (409, "conflict")
    path = f"{V1}/schedules/nightly"
    assert client.get(path).headers["etag"] == etag

    def edit(match: str | None, **new: Any) -> httpx.Response:
        headers = {} if match is None else {"If-Match": match}
        return client.patch(path, json=new, headers=headers)

    assert problem(edit(None, overlap="skip")) == (422, "invalid")
    edited = edit(etag, overlap="skip", queue_max=3)
    assert (ok(edited)["overlap"], edited.json()["queue_max"]) == ("skip", 3)
    assert edited.json()["next_fire_at"] == made["next_fire_at"]
    assert problem(edit(etag, overlap="wait")) == (412, "outdated")
    assert ok(edit(edited.headers["etag"], overlap=None, queue_max=None))["overlap"] == "wait"
    assert ok(edit("*", every="5m", retry=None))["expr"] == "5m"
    assert ok(client.get(path))["retry"] is None
    assert problem(edit("*", cron="61 * * * *")) == (422, "invalid")
    assert problem(edit("*", job="nobody")) == (422, "invalid")
    assert problem(edit("*", args={"nonsense": 1})) == (422, "invalid")
    changes = ok(client.get(f"{path}/changes", params={"limit": 2}))
    assert changes["items"][0]["after"]["expr"] == "5m"
    assert changes["items"][0]["by"] == "the-operator"
    more = ok(client.get(f"{path}/changes", params={"before": changes["next"]}))
    assert more["items"][-1]["action"] == "create"
    for wrong in ({"job": "nobody"}, {"cron": None}, {"every": "1h"}, {"nonsense": 1}):
        assert (
            problem(client.post(f"{V1}/schedules", json={**told, "name": "x", **wrong}))[0] == 422
        )


def test_a_dropped_schedule_keeps_its_history(working: Site, client: httpx.Client) -> None:
    made = ok(client.post(f"{V1}/schedules/hourly/trigger", json={}), 201)["id"]
    assert (
        client.delete(f"{V1}/schedules/hourly", params={"reason": "not needed"}).status_code == 204
    )
    path = f"{V1}/schedules/hourly"
    gone = client.get(path)
    assert problem(gone) == (404, "unknown")
    assert "'hourly' was dropped by the-operator at" in gone.json()["detail"]
    runs = ok(client.get(f"{V1}/runs", params={"schedule": "hourly"}))["items"]
    assert made in [run["id"] for run in runs]
    (last, *_) = ok(client.get(f"{path}/changes"))["items"]
    assert (last["action"], last["by"], last["reason"]) == ("drop", "the-operator", "not needed")
    assert ok(client.get(f"{path}/occurrences"))["next"] is None


TRIES = {"max_attempts": 7, "backoff": "quadratic", "delay": "2s", "retry_jitter": "1s"}
WANTED = Retry(max_attempts=7, backoff="quadratic", delay=timedelta(seconds=2),
               jitter=timedelta(seconds=1), max_delay=timedelta(minutes=9))  # fmt: skip


def test_retries_have_one_set_of_names_on_every_surface(
    working: Site, client: httpx.Client
) -> None:
    """Alone or together in `retry`; what is not told is as the job has it."""
    app = working.app

    @app.job("slow", max_delay="9m", delay="8m")
    def slow() -> None: ...

    told = {"job": "slow", "every": "1h"}
    nested = {"jitter" if name == "retry_jitter" else name: TRIES[name] for name in TRIES}
    ways: list[Callable[[str], object]] = [
        lambda name: app.schedule(name, **told, **TRIES),
        lambda name: app.schedule(name, **told, retry=nested),
        lambda name: app.schedule(name, **told, retry=TRIES),
        lambda name: client.post(f"{V1}/schedules", json={"name": name, **told, **TRIES}),
        lambda name: client.post(f"{V1}/schedules", json={"name": name, **told, "retry": TRIES}),
        lambda name: client.post(f"{V1}/schedules", json={"name": name, **told, "retry": nested}),
        lambda name: client.post(
            f"{V1}/sql",
            json={"sql": f"CREATE SCHEDULE {name} FOR JOB slow EVERY '1h' WITH SCHEDULE OPTIONS "
                  "(max_attempts = 7, backoff = quadratic, delay = '2s', retry_jitter = '1s')"},
        ),
    ]  # fmt: skip
    for number, way in enumerate(ways):
        way(f"s{number}")
        assert app.storage.read(operations.schedule_named, f"s{number}").retry == WANTED, number
    made = app.control.trigger("s3")
    assert app.storage.read(operations.get_run, made.id).max_attempts == 7


def test_an_edit_of_retries_keeps_what_it_does_not_tell(
    working: Site, client: httpx.Client
) -> None:
    def edit(**told: object) -> dict[str, Any]:
        path, match = f"{V1}/schedules/hourly", {"If-Match": "*"}
        return dict(ok(client.patch(path, json=told, headers=match))["retry"] or {})

    job = working.app.control.job(working.app.control.schedule("hourly").job).retry.to_dict()
    assert edit(max_attempts=9) == {**job, "max_attempts": 9}
    assert edit(retry={"delay": "7s"}) == {**job, "max_attempts": 9, "delay": "7s"}
    assert edit(max_attempts=None, max_delay="1h1m") == {
        **job, "delay": "7s", "max_delay": "1h1m",
    }  # fmt: skip
    assert edit(retry=None, backoff="none") == {**job, "backoff": "none"}
    assert edit(backoff=None) == {}
    for wrong in ({"max_attempts": 0}, {"delay": 3, "retry": {"delay": "1s"}},
                  {"delay": "1s", "retry": {"delay": "1s"}}, {"retry": {"tries": 3}}):  # fmt: skip
        refused = client.patch(f"{V1}/schedules/hourly", json=wrong, headers={"If-Match": "*"})
        assert problem(refused) == (422, "invalid"), wrong


def test_an_edit_that_sends_back_what_was_shown_keeps_the_secrets(
    working: Site, client: httpx.Client
) -> None:
    dsn = "postgresql://me:geheim@db/shop"
    deep = {"to": dsn, "auth": {"token": "t0p", "as": "me"}}
    told = {"name": "deep", "job": "deep", "every": "1h", "args": deep}
    ok(client.post(f"{V1}/schedules", json={**told, "args": {"given": deep}}), 201)
    path, match = f"{V1}/schedules/deep", {"If-Match": "*"}
    shown = ok(client.get(path))["args"]
    assert "geheim" not in str(shown)
    assert "t0p" not in str(shown)
    shown["given"]["auth"]["as"] = "you"
    ok(client.patch(path, json={"args": shown}, headers=match))
    kept = {"given": {"to": dsn, "auth": {"token": "t0p", "as": "you"}}}
    assert working.app.storage.read(operations.schedule_named, "deep").args == kept
    shown["given"]["to"] = shown["given"]["to"].replace("/shop", "/other")
    refused = client.patch(path, json={"args": shown}, headers=match)
    assert problem(refused) == (422, "invalid")
    assert "argument given.to is [redacted] in part" in refused.json()["detail"]
    assert working.app.storage.read(operations.schedule_named, "deep").args == kept


def test_a_schedule_with_sql_of_its_own_keeps_its_job(working: Site) -> None:
    with working.client("admin") as client:
        ok(client.post(f"{V1}/sql", json={"sql": "CREATE SCHEDULE own AS 'SELECT 1' EVERY '1h'"}))
        answer = client.patch(
            f"{V1}/schedules/own", json={"job": "greet"}, headers={"If-Match": "*"}
        )
        assert problem(answer) == (422, "invalid")
        assert ok(client.get(f"{V1}/schedules/own"))["job"] == "own"


def test_a_schedule_explains_itself(client: httpx.Client) -> None:
    told = ok(client.get(f"{V1}/schedules/maintenance%2Fnightly/explain", params={"count": 3}))
    assert len(told["coming"]) == 3
    assert "03:00" in told["words"]
    assert told["reasons"] == []
    why = ok(client.get(f"{V1}/schedules/hourly/why", params={"at": "2020-01-01T00:00:00Z"}))
    assert "2020-01-01" in why["told"]
    coming = ok(client.post(f"{V1}/next", json={"cron": "30 2 * * *", "timezone": "Europe/Berlin"}))
    assert coming["words"].startswith("At 02:30")
    assert len(coming["coming"]) == 10
    assert problem(client.post(f"{V1}/next", json={"cron": "61 * * * *"})) == (422, "invalid")


def test_schedules_come_with_what_became_of_their_last_occurrences(
    tmp_path: Path, database: str
) -> None:
    def often(app: rota.Rota) -> None:
        app.schedule("often", job="greet", every="1s", first_run="2020-01-01T00:00:00Z")

    with serving(tmp_path, database, parts=("scheduler", "worker", "web"), define=often) as site:
        with site.client() as client:

            def recent() -> list[dict[str, Any]]:
                told = ok(client.get(f"{V1}/schedules", params={"recent": 30}))["items"]
                (found,) = [one["recent"] for one in told if one["name"] == "often"]
                return [one for one in found if one["state"] == "succeeded"]

            newest = eventually(recent)[0]
            assert newest["outcome"] in ("fired", "coalesced")
            assert newest["run_id"]
            page = ok(client.get(f"{V1}/schedules/often/occurrences", params={"limit": 1}))
            older = client.get(f"{V1}/schedules/often/occurrences", params={"before": page["next"]})
            assert page["items"][0] not in ok(older)["items"]
        plain = ok(site.client().get(f"{V1}/schedules"))["items"]
        assert {one["recent"] for one in plain} == {None}


def test_a_body_of_which_nothing_is_needed_may_be_left_out(client: httpx.Client) -> None:
    made = ok(client.post(f"{V1}/jobs/chatty/runs"), 201)
    ended(client, made["id"])
    assert ok(client.post(f"{V1}/runs/{made['id']}/redo"))["redo"] == 1
    ok(client.post(f"{V1}/queues/talk/pause"))
    assert problem(client.post(f"{V1}/runs/cancel")) == (422, "invalid")
    assert problem(client.post(f"{V1}/runs/{made['id']}/redo", content="no")) == (422, "invalid")
    paths = ok(client.get(f"{V1}/openapi.json"))["paths"]
    bodies = {
        (method, path.removeprefix(V1)): told["requestBody"]
        for path, methods in paths.items()
        for method, told in methods.items()
        if "requestBody" in told
    }
    for path, needed in {
        "/runs/{run}/redo": False, "/jobs/{job}/runs": False, "/runs/redo": True, "/sql": True,
    }.items():  # fmt: skip
        assert bodies["post", path].get("required", False) is needed, path
        (shape,) = bodies["post", path]["content"].values()
        assert set(shape["schema"]) == {"$ref"}


def test_dead_runs_are_grouped_and_redone_together(client: httpx.Client) -> None:
    runs = [
        ok(client.post(f"{V1}/jobs/broken/runs", json={"args": {"number": number}}), 201)["id"]
        for number in range(3)
    ]
    for run in runs:
        assert ended(client, run)["state"] == "dead"
    told = ok(client.get(f"{V1}/dead"))
    (group,) = told["groups"]
    assert (group["job"], group["runs"]) == ("broken", 3)  # the numbers in the errors differ
    assert "geheim" not in str(told)
    assert ok(client.get(f"{V1}/runs/count", params={"state": "dead"})) == {
        "count": 3,
        "more": False,
    }
    nothing = {"state": "dead", "group": "0" * 16}
    assert ok(client.post(f"{V1}/runs/redo", json=nothing))["done"] == 0
    asked = {"state": "dead", "group": group["group"], "limit": 2, "reason": "bread is there"}
    first = ok(client.post(f"{V1}/runs/redo", json=asked))
    assert (first["done"], first["left_out"]) == (2, 0)
    rest = ok(client.post(f"{V1}/runs/redo", json={**asked, "before": first["next"]}))
    assert (rest["done"], rest["next"]) == (1, None)
    for run in runs:
        assert eventually(lambda run=run: ok(client.get(f"{V1}/runs/{run}"))["attempt"] == 2)
        ended(client, run)
    deleted = ok(client.post(f"{V1}/runs/delete", json={"state": "dead", "job": "broken"}))
    assert deleted["done"] == 3
    assert problem(client.post(f"{V1}/runs/redo", json={"state": "queued"})) == (422, "invalid")


def test_runs_come_in_pages_by_filters_that_are_known(client: httpx.Client) -> None:
    made = [
        ok(client.post(f"{V1}/jobs/greet/runs", json={"delay": "1h"}), 201)["id"] for _ in range(5)
    ]
    seen: list[str] = []
    before = None
    while True:
        asked = {"limit": 2, "state": "waiting", "job": "greet"} | (
            {} if before is None else {"before": before}
        )
        page = ok(client.get(f"{V1}/runs", params=asked))
        seen += [run["id"] for run in page["items"]]
        before = page["next"]
        if before is None:
            break
    assert seen == made[::-1]
    assert ok(client.get(f"{V1}/runs", params={"queue": "nowhere"}))["items"] == []
    for wrong in (
        {"stat": "dead"},
        {"state": "tired"},
        {"limit": 501},
        {"limit": 0},
        {"job": "a b"},
    ):
        assert problem(client.get(f"{V1}/runs", params=wrong)) == (422, "invalid")
    assert problem(client.get(f"{V1}/runs?limit=1&limit=2")) == (422, "invalid")
    assert problem(client.get(f"{V1}/runs", params={"schedule": "nobody"})) == (404, "unknown")
    cancelled = ok(client.post(f"{V1}/runs/cancel", json={"state": "waiting", "job": "greet"}))
    assert cancelled["done"] == 5


@pytest.mark.each_engine
def test_the_overview_says_what_is_wrong(working: Site, client: httpx.Client) -> None:
    told = ok(client.get(f"{V1}/overview"))
    assert told["dispatch"] == "on"
    assert told["schedules"]["schedules"] == 2
    assert [one for one in told["problems"] if one["severity"] == "error"] == []
    ok(client.post(f"{V1}/dispatch/pause", json={"reason": "the house is on fire"}))
    ok(client.post(f"{V1}/queues/talk/pause", json={"reason": "too loud"}))
    ok(client.post(f"{V1}/jobs/chatty/runs", json={}), 201)
    ok(client.post(f"{V1}/schedules/hourly/pause", json={"reason": "for a while"}))
    told = ok(client.get(f"{V1}/overview"))
    problems = {(one["kind"], one["name"]): one for one in told["problems"]}
    assert "the house is on fire" in problems["dispatch", None]["message"]
    assert told["problems"][0]["kind"] == "dispatch", "the worst comes first"
    assert "too loud" in problems["waiting", "chatty"]["message"]
    assert "for a while" in problems["paused", "hourly"]["message"]
    assert told["runs"]["queued"] == 1
    ok(client.post(f"{V1}/dispatch/resume"))
    ok(client.post(f"{V1}/queues/talk/resume"))
    run = ok(client.post(f"{V1}/jobs/broken/runs", json={}), 201)["id"]
    ended(client, run)
    problems = {
        (one["kind"], one["name"]): one for one in ok(client.get(f"{V1}/overview"))["problems"]
    }
    assert "no bread" in problems["dead", "broken"]["message"]
    assert ("dispatch", None) not in problems
    assert problem(client.post(f"{V1}/queues/nowhere/resume")) == (404, "unknown")
    working.app.storage.now()


def test_the_timeline_has_what_was_and_what_comes(client: httpx.Client) -> None:
    run = ok(client.post(f"{V1}/jobs/greet/runs", json={}), 201)["id"]
    ended(client, run)
    now = datetime.now(UTC)
    asked = {"since": (now - timedelta(hours=1)).isoformat(),
             "until": (now + timedelta(hours=30)).isoformat()}  # fmt: skip
    told = ok(client.get(f"{V1}/timeline", params=asked))
    assert [one["id"] for one in told["runs"]] == [run]
    coming = [one for one in told["coming"] if one["schedule"] == "hourly"]
    assert 28 <= len(coming) <= 30
    assert coming[0]["seconds"] is not None  # what runs of its job took
    times = [one["at"] for one in told["coming"]]
    assert times == sorted(times)
    assert any(one["schedule"] == "maintenance/nightly" for one in told["coming"])
    backwards = {"since": asked["until"], "until": asked["since"]}
    assert problem(client.get(f"{V1}/timeline", params=backwards)) == (422, "invalid")


@pytest.mark.each_engine
def test_sql_asks_for_the_role_of_each_statement(working: Site) -> None:
    def say(role: str | None, sql: str) -> httpx.Response:
        with working.client(role, Origin=working.url) as client:
            return client.post(f"{V1}/sql", json={"sql": sql})

    (result,) = ok(say(None, "SELECT name FROM schedules ORDER BY name"))["results"]
    assert result["rows"] == [["hourly"], ["maintenance/nightly"]]
    assert [column["name"] for column in result["columns"]] == ["name"]
    assert len(ok(say("viewer", "SHOW SCHEDULES; SHOW JOBS"))["results"]) == 2
    assert problem(say(None, "PAUSE SCHEDULE hourly")) == (401, "unauthenticated")
    assert problem(say("viewer", "SHOW JOBS; PAUSE SCHEDULE hourly")) == (403, "forbidden")
    assert working.app.control.schedule("hourly").paused is False
    ok(say("operator", "PAUSE SCHEDULE hourly REASON 'x'"))
    assert working.app.control.schedule("hourly").paused_by == "the-operator"
    create = "CREATE SCHEDULE own AS $$ SELECT 1 $$ EVERY '1h'"
    assert problem(say("operator", create)) == (403, "forbidden")
    ok(say("admin", create))
    refused = {
        "PAUSE SCHEDULE hourly": "PAUSE SCHEDULE is for the role operator",
        "RESUME JOBS FOR SCHEDULE hourly": "RESUME JOBS FOR SCHEDULE is for the role operator",
        "PAUSE DISPATCH": "PAUSE DISPATCH is for the role operator",
        "RUN JOB greet": "RUN JOB is for the role operator",
        "ALTER SCHEDULE own SET run_as = 'x'": "ALTER SCHEDULE … SET run_as is for the role admin",
        create: "CREATE SCHEDULE … AS is for the role admin",
    }
    for sql, told in refused.items():
        assert told in say("viewer", sql).json()["detail"]
    half = say("admin", "PAUSE SCHEDULE own; SHOW JOBS; PAUSE SCHEDULE nope; SHOW JOBS")
    assert problem(half) == (404, "unknown")
    detail = half.json()["detail"]
    assert detail.startswith("statement 3 of 4: schedule 'nope' does not exist")
    assert detail.endswith("; the 2 before it were done, the one after it was not done")
    assert working.app.control.schedule("own").paused
    first = say("admin", "PAUSE SCHEDULE nope; SHOW JOBS; SHOW JOBS").json()["detail"]
    assert first.endswith("lists them; the 2 after it were not done")
    for wrong in ("rubbish", "SELECT * FROM _rota_tokens", "SELECT hash FROM tokens", ""):
        assert problem(say("admin", wrong))[0] == 422


@pytest.mark.each_engine
def test_workers_queues_locks_and_files_are_listed(working: Site, client: httpx.Client) -> None:
    (worker,) = ok(client.get(f"{V1}/workers"))["items"]
    assert worker["alive"] is True
    assert "greet" in worker["jobs"]
    queues = ok(client.get(f"{V1}/queues"))
    assert {one["name"] for one in queues["items"]} >= {"default", "talk"}
    assert queues["next"] is None
    with working.app.lock("the key"), working.app.lock("another"):
        page = ok(client.get(f"{V1}/locks", params={"limit": 1}))
        assert ([one["name"] for one in page["items"]], page["next"]) == (["another"], "another")
        following = ok(client.get(f"{V1}/locks", params={"after": page["next"]}))
        assert ([one["name"] for one in following["items"]], following["next"]) == (
            ["the key"],
            None,
        )
    assert ok(client.get(f"{V1}/queues", params={"after": "zzz"}))["items"] == []
    assert ok(client.get(f"{V1}/workers", params={"after": worker["id"]}))["items"] == []
    for noun in ("workers", "queues", "locks"):
        assert problem(client.get(f"{V1}/{noun}", params={"limit": 501}))[0] == 422
        assert client.get(f"{V1}/{noun}", params={"after": "\0"}).status_code in (200, 400, 422)
    assert ok(client.get(f"{V1}/files"))["items"] == []
    assert problem(client.get(f"{V1}/files/nothing/content")) == (404, "unknown")
    assert problem(client.delete(f"{V1}/files/nothing")) == (404, "unknown")


def test_a_kept_file_is_downloaded_and_never_shown(tmp_path: Path) -> None:
    def keep(app: rota.Rota) -> None:
        @app.job
        def report(ctx: rota.Context) -> None:
            ctx.storage.put("report.html", b"<script>alert(1)</script>", content_type="text/html")

    with (
        serving(tmp_path, parts=("worker", "web"), define=keep) as site,
        site.client("operator") as client,
    ):
        ended(client, ok(client.post(f"{V1}/jobs/report/runs", json={}), 201)["id"])
        (file,) = ok(client.get(f"{V1}/files"))["items"]
        assert file["name"] == "report.html"
        answer = client.get(f"{V1}/files/{file['id']}/content")
        assert answer.content == b"<script>alert(1)</script>"
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment")
        assert client.delete(f"{V1}/files/{file['id']}").status_code == 204
        assert ok(client.get(f"{V1}/files"))["items"] == []


def test_the_sql_of_a_run_is_shown_with_the_names_of_its_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP", "geheim")
    folder = tmp_path / "jobs.d" / "report"
    folder.mkdir(parents=True)
    (folder / "job.toml").write_text("schedule = false\n")
    (folder / "01_read.sql").write_text("SELECT '${SHOP}' AS shop, length('${SHOP}') AS n")
    with (
        serving(tmp_path, parts=("worker", "web"), jobs_dir=str(tmp_path / "jobs.d")) as site,
        site.client("operator") as client,
    ):
        run = ok(client.post(f"{V1}/jobs/report/trigger", json={}), 201)["id"]
        assert ended(client, run)["state"] == "succeeded"
        (text,) = ok(client.get(f"{V1}/runs/{run}/texts"))
        assert text["names"] == ["SHOP"]
        assert "${SHOP}" in text["text"]
        (step,) = ok(client.get(f"{V1}/runs/{run}/steps"))
        assert (step["name"], step["status"]) == ("01_read.sql", "succeeded")


def test_what_does_not_exist_is_a_problem_by_its_name(client: httpx.Client) -> None:
    for path in (
        "jobs/nobody",
        "schedules/nobody",
        f"runs/{fresh_id()}",
        f"runs/{fresh_id()}/logs",
    ):
        assert problem(client.get(f"{V1}/{path}")) == (404, "unknown")
    assert problem(client.post(f"{V1}/jobs/nobody/runs", json={})) == (404, "unknown")
    assert problem(client.post(f"{V1}/jobs/greet/runs", json={"args": {"x": 1}})) == (
        422,
        "invalid",
    )
    assert problem(client.post(f"{V1}/jobs/greet/runs", json={"arg": {}})) == (422, "invalid")
    assert problem(client.post(f"{V1}/jobs/greet/runs", content=b"{")) == (422, "invalid")


def test_health_is_told_without_a_token_and_the_stop_ends_it(site: Site) -> None:
    with site.client(**{"X-Forwarded-For": "198.51.100.7"}) as client:
        assert ok(client.get("/healthz"))["status"] == "ok"
        assert ok(client.get("/readyz"))["status"] == "ok"
        site.web.drain()
        assert client.get("/readyz").status_code == 503
        assert ok(client.get("/healthz"))["status"] == "ok"
        assert client.get("/events").status_code == 401
    with site.client() as client:
        assert problem(client.get("/events")) == (503, "stopping")


def test_a_run_that_nobody_alive_can_run_says_why(tmp_path: Path) -> None:
    with serving(tmp_path) as site, site.client("operator") as client:  # no worker
        made = ok(client.post(f"{V1}/jobs/chatty/runs", json={}), 201)
        told = ok(client.get(f"{V1}/runs/{made['id']}"))["reason"]
        assert told.startswith("no live worker knows the job 'chatty'; ")
        (listed,) = ok(client.get(f"{V1}/runs"))["items"]
        assert listed["reason"] == told
