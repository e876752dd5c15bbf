"""Views: what people read with plain SQL is true at every moment of a run, on every engine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rota.model.retry import ONCE
from rota.model.run import ClaimedRun
from rota.model.steps import StepDone, StepFile
from rota.storage import operations
from rota.storage.operations.steps import StepKey
from rota.storage.store import Store
from tests.conformance.support import (
    ME,
    Place,
    VirtualClock,
    claim,
    claim_one,
    enqueue,
    overwrite,
    put_job,
    put_schedule,
    rescue,
    settle,
    tick,
)

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
LOAD = StepFile(number=1, name="01_load.sql", text="SELECT 1")
CHECK = StepFile(number=2, name="02_check.sql", text="SELECT 2")
# The queries of the document that asked for these views. SQLite has no intervals.
EXAMPLES = [
    "SELECT * FROM _mallardb.jobs",
    "SELECT name, queued, running FROM _mallardb.jobs WHERE running OR queued > 0",
    """SELECT job_name, file_name, error_message, started_at
         FROM _mallardb.job_runs
        WHERE status = 'failed' AND started_at > NOW() - INTERVAL '24 hours'""",
    """SELECT job_name, AVG(finished_at - started_at) AS avg_duration
         FROM _mallardb.job_runs
        WHERE status = 'success' AND file_name IS NULL
        GROUP BY job_name""",
]
ON_SQLITE = [
    ("NOW() - INTERVAL '24 hours'", "datetime('now', '-24 hours')"),
    (
        "AVG(finished_at - started_at)",
        "AVG((julianday(finished_at) - julianday(started_at)) * 86400)",
    ),
]


def view(place: Place, name: str, where: str = "") -> list[dict[str, Any]]:
    """The rows of a view, as a client without Rota reads them; instants as Python has them."""
    return query(place, f"SELECT * FROM {place.view(name)} {where}")


def query(place: Place, sql: str) -> list[dict[str, Any]]:
    connection = place.autocommit()
    cursor = connection.execute(sql)
    names = [column[0] for column in cursor.description]
    rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    connection.close()
    return [{name: plain(name, value) for name, value in row.items()} for row in rows]


def plain(name: str, value: Any) -> Any:
    if isinstance(value, str) and name.endswith(("_at", "_until", "occurrence")):
        return datetime.fromisoformat(value)
    return str(value) if name == "run_id" and value is not None else value


def statuses(place: Place, **equal: str) -> list[tuple[str | None, str]]:
    """(file, status) of what began, in the order of ids."""
    where = " AND ".join(f"{name} = '{value}'" for name, value in equal.items())
    found = view(place, "job_runs", f"WHERE {where or '1 = 1'} ORDER BY id")
    return [(row["file_name"], row["status"]) for row in found]


def begin(store: Store, run: ClaimedRun, file: StepFile) -> StepKey:
    key = StepKey(seq=run.seq, attempt=run.attempt, number=file.number)
    store.write(operations.begin_step, key, file)
    return key


def do(store: Store, run: ClaimedRun, file: StepFile) -> None:
    store.write(operations.finish_step, begin(store, run, file), StepDone(rows=1), None)


# jobs


def test_a_job_is_shown_with_its_schedule_and_files(store: Store, place: Place) -> None:
    spec = {"folder": "/jobs.d/accounting", "files": ["01.sql", "02.sql", "03.sql"]}
    put_job(store, "accounting", executor="sql", spec=spec, timeout=timedelta(minutes=30))
    options = {"kind": "cron", "expr": "0 */15 * * * *", "queue_max": 3, "overlap": "queue"}
    put_schedule(store, "accounting", job="accounting", **options)
    (row,) = view(place, "jobs", "WHERE name = 'accounting'")
    assert row == {
        "name": "accounting",
        "schedule": "0 */15 * * * *",
        "enabled": True,
        "queue_max": 3,
        "timeout": "30m",
        "file_count": 3,
        "queued": 0,
        "running": False,
        "error": None,
    }


def test_a_job_without_a_schedule_is_shown_too(store: Store, place: Place) -> None:
    put_job(store, "cleanup", spec={"file": "/jobs.d/cleanup.py"}, enabled=False, error="broken")
    rows = {row["name"]: row for row in view(place, "jobs")}
    assert rows["job"]["schedule"] is rows["job"]["queue_max"] is rows["job"]["timeout"] is None
    assert (rows["job"]["enabled"], rows["job"]["file_count"]) == (True, 0)
    assert (rows["cleanup"]["enabled"], rows["cleanup"]["file_count"]) == (False, 1)
    assert rows["cleanup"]["error"] == "broken"


def test_of_several_schedules_the_one_named_like_the_job_is_shown(
    store: Store, place: Place
) -> None:
    put_schedule(store, "another", expr="10s")
    put_schedule(store, "third", expr="20s")
    assert [row["schedule"] for row in view(place, "jobs")] == ["every 10s"]
    put_schedule(store, "job", expr="1h", enabled=False)
    (row,) = view(place, "jobs")
    assert (row["schedule"], row["enabled"]) == ("every 1h", False)


def test_a_job_knows_who_waits_and_whether_it_runs(
    store: Store, place: Place, clock: VirtualClock
) -> None:
    def now() -> tuple[int, bool]:
        ((queued, running),) = place.execute(
            f"SELECT queued, running FROM {place.view('jobs')} WHERE name = 'job'"
        )
        return queued, bool(running)

    put_job(store, "other")
    assert now() == (0, False)
    enqueue(store, delay=timedelta(hours=1))
    assert now() == (0, False)
    first = enqueue(store, concurrency_key="one")
    enqueue(store, concurrency_key="one")
    assert store.read(operations.get_run, first).state == "queued"
    assert now() == (2, False)
    run = claim_one(store)
    assert now() == (1, True)
    settle(store, run, "failed")
    assert now() == (1, True), "between two attempts"
    clock.advance("1s")
    store.write(operations.promote, 100)
    assert now() == (1, True), "queued again"
    settle(store, claim_one(store))
    assert now() == (1, False)


# job_queue


def test_the_queue_shows_who_waits_and_who_has_begun(
    store: Store, place: Place, clock: VirtualClock
) -> None:
    enqueue(store, concurrency_key="one")
    clock.advance("1s")
    enqueue(store, concurrency_key="one")
    enqueue(store, delay=timedelta(hours=1))
    began = clock()
    run = claim_one(store)
    rows = view(place, "job_queue", "ORDER BY queued_at")
    assert [row["job_name"] for row in rows] == ["job", "job"]
    assert [row["queued_at"] for row in rows] == [began - timedelta(seconds=1), began]
    assert [row["started_at"] for row in rows] == [began, None]
    settle(store, run, "failed")
    rows = view(place, "job_queue", "ORDER BY queued_at")
    assert [row["started_at"] for row in rows] == [began, None]
    store.write(operations.cancel_run, run.id, None, ME)
    assert [row["started_at"] for row in view(place, "job_queue")] == [None]


# job_runs


def test_what_never_began_is_no_run(store: Store, place: Place) -> None:
    cancelled = enqueue(store)
    store.write(operations.cancel_run, cancelled, "no need", ME)
    enqueue(store)
    enqueue(store, delay=timedelta(hours=1))
    assert view(place, "job_runs") == []


def test_a_run_is_shown_from_its_beginning_to_its_end(
    store: Store, place: Place, clock: VirtualClock
) -> None:
    run_id = enqueue(store)
    began = clock()
    run = claim_one(store)
    (row,) = view(place, "job_runs")
    stable = row["id"]
    assert isinstance(stable, int)
    assert row == {
        "id": stable,
        "run_id": run_id,
        "job_name": "job",
        "record_type": "run",
        "file_name": None,
        "started_at": began,
        "finished_at": None,
        "status": "running",
        "error_message": None,
    }
    clock.advance("5s")
    settle(store, run)
    (row,) = view(place, "job_runs")
    assert (row["id"], row["status"], row["started_at"]) == (stable, "success", began)
    assert row["finished_at"] == began + timedelta(seconds=5)


def test_a_run_between_attempts_is_running_since_its_first(
    store: Store, place: Place, clock: VirtualClock
) -> None:
    enqueue(store)
    began = clock()
    for wait in ("1s", "10s"):
        settle(store, claim_one(store), "failed", error="no disk")
        assert statuses(place) == [(None, "running")]
        assert view(place, "job_runs")[0]["error_message"] is None
        clock.advance(wait)
        store.write(operations.promote, 100)
        assert statuses(place) == [(None, "running")], "queued again"
    settle(store, claim_one(store), "failed", error="no disk")
    (row,) = view(place, "job_runs")
    assert (row["status"], row["error_message"]) == ("failed", "no disk")
    assert (row["started_at"], row["finished_at"]) == (began, clock())


@pytest.mark.parametrize("kind", ["failed", "timed_out"])
def test_a_dead_run_has_failed(store: Store, place: Place, kind: str) -> None:
    enqueue(store)
    settle(store, claim_one(store), kind, error="told", retry=ONCE)
    (row,) = view(place, "job_runs")
    assert (row["status"], row["error_message"]) == ("failed", "told")


def test_a_run_that_was_cancelled_after_its_start_has_failed(store: Store, place: Place) -> None:
    run_id = enqueue(store)
    run = claim_one(store)
    store.write(operations.cancel_run, run_id, "too late", ME)
    assert statuses(place) == [(None, "running")]
    settle(store, run, "cancelled")
    (row,) = view(place, "job_runs")
    assert (row["status"], row["error_message"]) == ("failed", "too late")


def test_a_lost_run_has_failed(store: Store, place: Place, clock: VirtualClock) -> None:
    enqueue(store)
    claim_one(store)
    clock.advance("31s")
    rescue(store, max_lost=1)
    (row,) = view(place, "job_runs")
    assert (row["status"], row["error_message"]) == ("failed", "lease expired")


def test_a_redo_is_shown_as_the_run_that_it_is(
    store: Store, place: Place, clock: VirtualClock
) -> None:
    run_id = enqueue(store)
    settle(store, claim_one(store), "failed", retry=ONCE)
    clock.advance("1h")
    store.write(operations.redo_run, run_id, None, ME)
    assert statuses(place) == [(None, "running")]
    store.write(operations.promote, 100)
    settle(store, claim_one(store))
    (row,) = view(place, "job_runs")
    assert (row["status"], row["started_at"]) == ("success", clock())


def test_passwords_never_reach_a_view(store: Store, place: Place) -> None:
    enqueue(store)
    run = claim_one(store)
    store.write(operations.cancel_run, run.id, None, ME)
    settle(store, run, "failed", error="cannot reach postgresql://me:secret@host/db")
    (row,) = view(place, "job_runs")
    assert row["error_message"] == "cannot reach postgresql://me:[redacted]@host/db"


# Steps


def test_steps_are_shown_as_they_go(store: Store, place: Place, clock: VirtualClock) -> None:
    run_id = enqueue(store)
    began = clock()
    run = claim_one(store)
    load = begin(store, run, LOAD)
    assert statuses(place) == [(None, "running"), ("01_load.sql", "running")]
    clock.advance("2s")
    store.write(operations.finish_step, load, StepDone(rows=1), None)
    assert statuses(place) == [(None, "running"), ("01_load.sql", "success")]
    check = begin(store, run, CHECK)
    store.write(operations.end_step, check, "failed", "no such table")
    settle(store, run, "failed", error="02_check.sql: no such table")
    assert statuses(place, record_type="step") == [
        ("01_load.sql", "success"),
        ("02_check.sql", "failed"),
    ]
    first, second = view(place, "job_runs", "WHERE record_type = 'step' ORDER BY id")
    assert first["run_id"] == second["run_id"] == run_id
    assert (first["started_at"], first["finished_at"]) == (began, began + timedelta(seconds=2))
    assert (first["error_message"], second["error_message"]) == (None, "no such table")


def test_every_attempt_has_steps_of_its_own(
    store: Store, place: Place, clock: VirtualClock
) -> None:
    enqueue(store)
    run = claim_one(store)
    do(store, run, LOAD)
    store.write(operations.end_step, begin(store, run, CHECK), "timed_out", "timed out after 1s")
    settle(store, run, "timed_out", error="timed out after 1s")
    clock.advance("1s")
    store.write(operations.promote, 100)
    again = claim_one(store)
    do(store, again, CHECK)
    settle(store, again)
    assert statuses(place) == [
        (None, "success"),
        ("01_load.sql", "success"),
        ("02_check.sql", "failed"),
        ("02_check.sql", "success"),
    ]


def test_a_step_that_went_down_with_its_worker_has_failed(
    store: Store, place: Place, clock: VirtualClock
) -> None:
    enqueue(store)
    run = claim_one(store)
    do(store, run, LOAD)
    begin(store, run, CHECK)
    clock.advance("31s")
    rescue(store)
    (row,) = view(place, "job_runs", "WHERE file_name = '02_check.sql'")
    assert (row["status"], row["error_message"]) == ("failed", "lease expired")
    assert row["finished_at"] == clock()
    begin(store, claim_one(store), CHECK)
    assert statuses(place) == [
        (None, "running"),
        ("01_load.sql", "success"),
        ("02_check.sql", "failed"),
        ("02_check.sql", "running"),
    ]


def test_ids_are_unique_and_stay(store: Store, place: Place, clock: VirtualClock) -> None:
    for _ in range(3):
        enqueue(store)
    for run in claim(store, 3):
        do(store, run, LOAD)
        begin(store, run, CHECK)
        settle(store, run, "failed")
    before = {row["id"] for row in view(place, "job_runs")}
    assert len(before) == 9
    clock.advance("1s")
    store.write(operations.promote, 100)
    for run in claim(store, 3):
        do(store, run, CHECK)
        settle(store, run)
    after = [row["id"] for row in view(place, "job_runs")]
    assert len(after) == len(set(after)) == 12
    assert before < set(after)


# occurrences


def test_occurrences_tell_what_was_dropped(store: Store, place: Place, clock: VirtualClock) -> None:
    schedule = put_schedule(store, "busy", overlap="queue", queue_max=1)
    for _ in range(3):
        clock.advance("10s")
        tick(store)
    rows = view(place, "occurrences", "ORDER BY occurrence")
    assert [row["outcome"] for row in rows] == ["fired", "fired", "dropped"]
    assert {(row["schedule_id"], row["schedule_name"], row["job_name"]) for row in rows} == {
        (schedule.id, "busy", "job")
    }
    assert [row["run_id"] is not None for row in rows] == [True, True, False]
    assert (rows[2]["occurrence"], rows[2]["recorded_at"]) == (clock(), clock())
    assert "queue_max" in rows[2]["reason"]


def test_occurrences_of_a_dropped_schedule_keep_its_name(
    store: Store, place: Place, clock: VirtualClock
) -> None:
    put_schedule(store, "gone")
    clock.advance("10s")
    tick(store)
    store.write(operations.drop_schedule, "gone", None, ME)
    (row,) = view(place, "occurrences")
    assert (row["schedule_name"], row["job_name"]) == ("gone", None)


# schedules


def test_the_status_of_a_schedule_is_the_one_that_rota_shows(
    store: Store, place: Place, clock: VirtualClock
) -> None:
    put_schedule(store, "active")
    put_schedule(store, "disabled", enabled=False)
    put_schedule(store, "paused")
    store.write(operations.pause_schedule, "paused", "by hand", ME)
    put_schedule(store, "finished", kind="once", expr="2025-01-01T00:00:05Z")
    put_schedule(store, "waits", anchor="delay")
    overwrite(store, put_schedule(store, "broken"), error="no such zone")
    clock.advance("10s")
    tick(store)
    rows = {row["name"]: row for row in view(place, "schedules")}
    shown = {one.name: one.status for one in store.read(operations.list_schedules, limit=100)}
    assert {name: row["status"] for name, row in rows.items()} == shown
    assert len(set(shown.values())) == 5
    assert rows["active"]["next_fire_at"] == clock.after("10s")
    for name in ("waits", "finished", "paused", "disabled"):
        assert rows[name]["next_fire_at"] is None
    assert (rows["paused"]["paused_by"], rows["paused"]["paused_reason"]) == (ME.by, "by hand")


# runs, dead, attempts, steps


def test_runs_are_shown_in_every_state_without_arguments(store: Store, place: Place) -> None:
    waiting, queued = enqueue(store, delay=timedelta(hours=1)), enqueue(store, args='{"x": "key"}')
    rows = view(place, "runs", "ORDER BY seq")
    assert [(row["run_id"], row["state"]) for row in rows] == [
        (waiting, "waiting"),
        (queued, "queued"),
    ]
    assert "key" not in str(rows)
    assert view(place, "dead") == []
    settle(store, claim_one(store), "failed", error="told", retry=ONCE)
    (row,) = view(place, "dead")
    assert (row["run_id"], row["error"], row["failures"]) == (queued, "told", 1)


def test_every_attempt_is_shown_once(store: Store, place: Place, clock: VirtualClock) -> None:
    def shown() -> list[tuple[int, str | None]]:
        rows = view(place, "attempts", "ORDER BY started_at, number")
        return [(row["number"], row["outcome"]) for row in rows]

    run_id = enqueue(store)
    assert shown() == []
    run = claim_one(store)
    assert shown() == [(1, None)]
    settle(store, run)
    assert shown() == [(1, "succeeded")]
    store.write(operations.delete_run, run_id, None, ME)
    enqueue(store)
    settle(store, claim_one(store), "failed", error="told")
    assert shown() == [(1, "failed")]
    clock.advance("1s")
    store.write(operations.promote, 100)
    settle(store, claim_one(store))
    assert shown() == [(1, "failed"), (2, "succeeded")]


def test_steps_tell_how_they_ended(store: Store, place: Place, clock: VirtualClock) -> None:
    def shown() -> list[tuple[int, str, str]]:
        rows = view(place, "steps", "ORDER BY attempt, number")
        return [(row["attempt"], row["file_name"], row["status"]) for row in rows]

    enqueue(store)
    run = claim_one(store)
    do(store, run, LOAD)
    begin(store, run, CHECK)
    assert shown() == [(1, LOAD.name, "succeeded"), (1, CHECK.name, "running")]
    clock.advance("31s")
    rescue(store)
    again = claim_one(store)
    store.write(operations.end_step, begin(store, again, CHECK), "timed_out", "too slow")
    assert shown() == [
        (1, LOAD.name, "succeeded"),
        (1, CHECK.name, "lost"),
        (2, CHECK.name, "timed_out"),
    ]


# events, workers, queues


def test_events_tell_the_life_of_a_run(store: Store, place: Place, clock: VirtualClock) -> None:
    run_id = enqueue(store)
    clock.advance("1s")
    settle(store, claim_one(store), "failed", error="told")
    clock.advance("1s")
    store.write(operations.promote, 100)
    run = claim_one(store)
    clock.advance("1s")
    settle(store, run)
    rows = view(place, "events", f"WHERE run_id = '{run_id}' ORDER BY happened_at, kind")
    assert [(row["kind"], row["attempt"]) for row in rows] == [
        ("run.created", None),
        ("attempt.failed", 1),
        ("attempt.started", 1),
        ("attempt.started", 2),
        ("attempt.succeeded", 2),
        ("job.completed", 2),
    ]
    assert {row["name"] for row in rows} == {"job"}
    assert rows[1]["detail"] == "told"


def test_what_people_did_is_told(store: Store, place: Place, clock: VirtualClock) -> None:
    """In the history of its schedule, also of one that is gone, and among the events."""
    kept, gone = put_schedule(store, name="kept"), put_schedule(store, name="gone")
    clock.advance("1s")
    store.write(operations.pause_schedule, "kept", "a reason", ME)
    store.write(operations.drop_schedule, "gone", None, ME)
    changes = view(place, "schedule_changes", "ORDER BY id")
    assert [(row["schedule_id"], row["schedule_name"], row["action"]) for row in changes] == [
        (kept.id, "kept", "create"),
        (gone.id, "gone", "create"),
        (kept.id, "kept", "pause"),
        (gone.id, "gone", "drop"),
    ]
    assert (changes[2]["changed_by"], changes[2]["reason"]) == (ME.by, "a reason")
    assert changes[2]["changed_at"] == clock()
    (paused,) = view(place, "events", "WHERE kind = 'pause_schedule'")
    assert (paused["name"], paused["run_id"], paused["attempt"]) == ("kept", None, None)
    assert paused["detail"] == f"{ME.by} via {ME.via}: a reason"


def test_queues_tell_what_lies_in_them(store: Store, place: Place, clock: VirtualClock) -> None:
    oldest = clock()
    enqueue(store)
    clock.advance("1s")
    enqueue(store, priority=1)
    claim_one(store)
    store.write(operations.pause_queue, "default", "full", ME)
    (row,) = view(place, "queues", "WHERE name = 'default'")
    assert (row["queued"], row["running"], row["oldest_at"]) == (1, 1, oldest)
    assert (bool(row["paused"]), row["reason"], row["paused_by"]) == (True, "full", ME.by)


# The document's own queries


def examples(place: Place) -> list[str]:
    found = [one.replace("_mallardb.", place.view_prefix) for one in EXAMPLES]
    if place.engine == "sqlite":
        for theirs, ours in ON_SQLITE:
            found = [one.replace(theirs, ours) for one in found]
    return found


def test_the_queries_of_the_document_give_true_answers(
    store: Store, place: Place, clock: VirtualClock
) -> None:
    clock.moment = datetime.now().astimezone() - timedelta(days=2)
    enqueue(store)
    settle(store, claim_one(store), "cancelled")  # two days ago
    clock.advance("47h")
    enqueue(store)
    run = claim_one(store)
    do(store, run, LOAD)
    store.write(operations.end_step, begin(store, run, CHECK), "failed", "no such table")
    settle(store, run, "cancelled", error="no such table")
    for seconds in (10, 20):
        enqueue(store)
        run = claim_one(store)
        do(store, run, LOAD)
        clock.advance(f"{seconds}s")
        settle(store, run)
    put_job(store, "idle")
    enqueue(store)
    enqueue(store)
    claim_one(store)

    everything, busy, failed, average = (query(place, one) for one in examples(place))
    assert sorted(row["name"] for row in everything) == ["idle", "job"]
    assert busy == [{"name": "job", "queued": 1, "running": True}]
    assert sorted((row["file_name"] or "", row["error_message"]) for row in failed) == [
        ("", "no such table"),
        ("02_check.sql", "no such table"),
    ]
    ((job, duration),) = [tuple(row.values()) for row in average]
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    assert (job, round(seconds, 2)) == ("job", 15.0)


# The same rows, handed on


def test_the_rows_that_are_handed_on_are_those_of_the_views(store: Store, place: Place) -> None:
    enqueue(store)
    do(store, claim_one(store), LOAD)
    put_job(store, "idle")
    enqueue(store)
    for name, count in {"jobs": 2, "job_queue": 2, "job_runs": 2}.items():
        shown, told = view(place, name), store.read(operations.view_rows, name, runs=10, limit=10)
        named = [dict(zip(shown[0], row.values(), strict=True)) for row in told]
        plainly = [{key: plain(key, value) for key, value in row.items()} for row in named]
        assert len(plainly) == len(shown) == count, name
        assert [row for row in plainly if row not in shown] == [], name


def test_a_bound_on_runs_keeps_what_failed(store: Store) -> None:
    for kind in ("failed", "succeeded", "succeeded", "succeeded"):
        enqueue(store)
        settle(store, claim_one(store), kind, retry=ONCE)

    def shown(**bounds: int) -> list[str]:
        return [row["status"] for row in store.read(operations.view_rows, "job_runs", **bounds)]

    assert shown(runs=2, limit=10) == ["success", "success", "failed"]
    assert shown(runs=9, limit=2) == ["success", "success"]


# Plans: however long the history is, these read a part of it that an index finds

# Of each view, a question with a condition; benchmarks/views.py times these and more.
QUESTIONS = [
    "job_runs WHERE job_name = 'job' LIMIT 50",
    "job_runs WHERE run_id = '00000000-0000-0000-0000-000000000000'",
    "attempts WHERE job_name = 'job' AND outcome = 'failed' LIMIT 50",
    "attempts WHERE run_id = '00000000-0000-0000-0000-000000000000'",
    "steps WHERE job_name = 'job' AND status = 'failed' LIMIT 50",
    "events WHERE name = 'job' AND run_id = '00000000-0000-0000-0000-000000000000'",
    "dead WHERE finished_at > '2025-01-01' ORDER BY finished_at DESC LIMIT 50",
    "occurrences WHERE schedule_id = 7 ORDER BY occurrence DESC LIMIT 50",
    "occurrences WHERE schedule_name = 's' LIMIT 50",
    "occurrences WHERE job_name = 'job' LIMIT 50",
    "schedule_changes WHERE schedule_id = 7 ORDER BY id DESC LIMIT 50",
    "schedule_changes WHERE schedule_name = 's' LIMIT 50",
    "schedules WHERE name = 's'",
    "schedules WHERE job_name = 'job' LIMIT 50",
    "runs WHERE schedule_id = 7 ORDER BY seq DESC LIMIT 50",
    "runs WHERE run_id = '00000000-0000-0000-0000-000000000000'",
    "jobs WHERE name = 'job'",
]
LARGE = ("runs", "occurrences", "attempts", "steps", "step_marks", "schedules", "schedule_changes")
# These hold what is open, and the few that died, were cancelled or dropped: not the history.
OPEN = "claim|lease|held|due|paused|dead|died|cancelled|dropped"


def walks(place: Place, question: str) -> list[str]:
    """The large tables that would be read as a whole."""
    asked = f"SELECT * FROM {place.view(question)}"
    if place.engine == "sqlite":
        plan = [row[3] for row in place.execute(f"EXPLAIN QUERY PLAN {asked}")]
        # A SCAN names the alias; what is no alias of a large table is a view or a subquery.
        names = (*LARGE, "s", "o", "r", "a", "m", "c")
        scans = [re.fullmatch(r"SCAN (?:_rota_)?(\w+)( USING .*)?", line) for line in plan]
        return [
            scan[0]
            for scan in scans
            if scan and scan[1] in names and not re.search(rf"_({OPEN})$", scan[2] or "")
        ]
    connection = place.autocommit()
    connection.execute("SET enable_seqscan = off")  # with no rows it would be right
    ((plan,),) = connection.execute(f"EXPLAIN (FORMAT JSON) {asked}").fetchall()
    connection.close()
    return [
        f"{node['Node Type']} {node.get('Index Name', '')} on {node['Relation Name']}"
        for node in nodes(plan[0]["Plan"])
        if node.get("Relation Name") in LARGE
        and node["Node Type"] in ("Seq Scan", "Index Scan", "Index Only Scan")
        and "Index Cond" not in node
        and not re.search(rf"_({OPEN})$", node.get("Index Name", ""))
    ]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


@pytest.mark.own_store  # what a server knows of rows that were here before would change its plans
def test_every_condition_leads_to_an_index(store: Store, place: Place) -> None:
    if place.engine == "duckdb":
        pytest.skip("it has no indexes, and needs none")
    assert {question: found for question in QUESTIONS if (found := walks(place, question))} == {}


def test_a_walk_is_seen(store: Store, place: Place) -> None:
    if place.engine != "duckdb":
        assert walks(place, "runs WHERE worker_id = 'w'")


# The page


def described() -> dict[str, list[str]]:
    """The views of the page with their columns, in order."""
    sections = re.split(r"^### `(\w+)`$", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]
    return {
        name: re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE)
        for name, text in zip(sections[::2], sections[1::2], strict=True)
    }


def test_the_page_describes_every_view_and_column(store: Store, place: Place) -> None:
    listed = {
        "sqlite": "SELECT substr(name, 6) FROM sqlite_master WHERE type = 'view'"
        " AND name LIKE 'rota\\_%' ESCAPE '\\'",
        "postgres": "SELECT viewname FROM pg_views WHERE schemaname = 'rota'",
        "duckdb": "SELECT view_name FROM duckdb_views() WHERE schema_name = '_rota'",
    }[place.engine]
    names = [name for (name,) in place.execute(listed)]
    columns = {}
    for name in names:
        connection = place.autocommit()
        cursor = connection.execute(f"SELECT * FROM {place.view(name)} LIMIT 0")
        columns[name] = [column[0] for column in cursor.description]
        connection.close()
    assert columns == described()
