"""Lists as people search them: jobs, the audit, queues with what they do, dead runs of an error."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.errors import Invalid
from rota.flow.control import Control
from rota.model.definition import Definition
from rota.model.job import Job
from rota.model.retry import ONCE
from rota.storage import operations
from rota.storage.operations.audit import Actor
from rota.storage.store import Store
from tests.conformance.support import (
    ME,
    ORIGIN,
    VirtualClock,
    claim,
    enqueue,
    put_definition,
    put_job,
    put_schedule,
    settle,
    worker_row,
)

ADA = Actor(by="ada", via="http")


def control(store: Store) -> Control:
    return Control(store, actor=ME, termination_hook_of=lambda job: None)


def names(store: Store, **told: Any) -> list[str]:
    return [job.name for job in control(store).find_jobs(**told)]


def die(store: Store, text: str, *, job: str = "job") -> str:
    run_id = enqueue(store, job=job)
    (run,) = claim(store, 1, jobs=[job])
    settle(store, run, "failed", retry=ONCE, error=text)
    return run_id


def put_broken(store: Store, *names: str) -> None:
    """As a folder registers files that it cannot use."""
    broken = [
        Job(
            name=name,
            executor="sql",
            source="file",
            origin=ORIGIN,
            spec={"version": "broken"},
            enabled=False,
            error="1.sql:3: a ' is never closed",
        )
        for name in names
    ]
    wanted = [Definition(job=job, schedule=None) for job in broken]
    store.write(operations.put_definitions, wanted, ME, changed=set(names), live_seconds=30)


def test_jobs_are_found_by_words_queue_executor_and_status(store: Store) -> None:
    put_job(store, "mail/send", description="Tells CUSTOMERS", queue="mail")
    put_job(store, "job")
    put_job(store, "off", enabled=False)
    put_job(store, "bad", error="line 3: no such column", executor="sql")
    assert names(store, words="MAIL") == ["mail/send"]
    assert names(store, words="customers") == ["mail/send"]
    assert names(store, words="%") == []
    assert names(store, queue="mail") == ["mail/send"]
    assert names(store, executor="sql") == ["bad"]
    assert names(store, status="disabled") == ["off"]
    assert names(store, status="broken") == ["bad"]
    assert "mail/send" in names(store, status="enabled")
    assert not {"off", "bad"} & set(names(store, status="enabled"))
    assert names(store, after="mail/send", limit=1) == ["off"]
    with pytest.raises(Invalid, match="use enabled, disabled, broken, retired"):
        names(store, status="late")


def test_a_retired_job_is_listed_only_where_it_is_asked_for(store: Store) -> None:
    put_job(store, "job")
    put_broken(store, "gone", "bad")
    assert store.write(operations.retire_job, "gone", ORIGIN, "me", ME, live_seconds=30)
    assert names(store) == ["bad", "job"]
    assert names(store, status="broken") == ["bad"]
    assert names(store, words="gone") == []
    assert "gone" not in names(store, status="disabled")
    assert names(store, status="retired") == ["gone"]
    assert [job["name"] for job in control(store).jobs()] == ["bad", "job"]
    assert [job["name"] for job in control(store).jobs(status="retired")] == ["gone"]
    assert control(store).job("gone").retired
    assert [one["name"] for one in control(store).problems() if one["kind"] == "broken"] == ["bad"]


@pytest.mark.parametrize(
    ("died", "told"), [(1, "1 run of 'job' died within"), (2, "2 runs of 'job' died within")]
)
def test_one_run_and_two_runs(store: Store, died: int, told: str) -> None:
    for _ in range(died):
        die(store, "no bread")
    assert [one["message"] for one in control(store).problems() if told in one["message"]]


def test_a_job_has_the_first_of_its_schedules_and_their_number(store: Store) -> None:
    put_job(store, "alone")
    put_job(store, "other")
    for number in range(5):
        put_schedule(store, f"s{number}", expr="1m")
    put_schedule(store, "of-other", job="other", expr="1m")
    found = control(store).schedules_of(control(store).find_jobs())
    assert {job: (count, [one.name for one in some]) for job, (count, some) in found.items()} == {
        "job": (5, ["s0", "s1", "s2"]),
        "other": (1, ["of-other"]),
    }


def test_a_broken_file_tells_since_when_its_last_good_version_is_there(
    store: Store, clock: VirtualClock
) -> None:
    good_at = clock()
    put_definition(store, "daily")
    clock.advance("1h")
    put_broken(store, "daily", "never")
    jobs = {job.name: job for job in control(store).find_jobs(status="broken")}
    assert jobs["daily"].version_at == clock()
    assert control(store).good_since(jobs.values()) == {"daily": good_at, "never": None}


def test_a_queue_tells_its_depth_by_state_and_what_ended(store: Store, clock: VirtualClock) -> None:
    enqueue(store)
    (run,) = claim(store, 1)
    settle(store, run)
    clock.advance("6m")  # longer ago than a rate looks back
    for _ in range(10):
        enqueue(store)
    for run in claim(store, 5):
        settle(store, run)
    claim(store, 2)
    enqueue(store, due_at=clock.after("1h"))
    put_job(store, "elsewhere", queue="mail")
    mail, rest = sorted(control(store).queue_work(), key=lambda one: one["name"] != "mail")
    assert rest["depths"] == {"queued": 3, "running": 2, "held": 0, "waiting": 1, "paused": 0}
    assert rest["ended_per_minute"] == 1.0
    assert mail["depths"]["queued"] == 0
    assert mail["ended_per_minute"] == 0.0


def test_queues_workers_and_locks_come_in_pages(store: Store) -> None:
    for name in ("b", "a", "B", "c"):
        store.write(operations.acquire_lock, f"lock of {name}", "me", 60)
        store.write(operations.put_worker, worker_row(f"host-{name}"))
        put_job(store, name, queue=f"queue-{name}")
        enqueue(store, job=name, queue=f"queue-{name}")
    look = control(store)
    lists = [(look.locks, "name"), (look.workers, "id"), (look.queues, "name"),
             (look.queue_work, "name")]  # fmt: skip
    for one, key in lists:
        everything = [row[key] for row in one()]
        assert len(everything) >= 4
        found: list[str] = []
        for _ in everything:
            page = one(after=found[-1] if found else "", limit=3)
            found += [row[key] for row in page]
        assert found == everything
        with pytest.raises(Invalid, match="limit"):
            one(limit=501)


def test_a_rate_looks_at_the_latest_runs_where_many_end(
    store: Store, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.flow.lists.RATE_RUNS", 4)
    for _ in range(2):
        for _ in range(3):
            enqueue(store)
        for run in claim(store, 3):
            settle(store, run)
        clock.advance("1m")
    (queue,) = control(store).queue_work()
    assert queue["ended_per_minute"] == 2.0  # four in two minutes


def test_a_depth_that_was_cut_short_is_named(
    store: Store, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_job(store, "elsewhere", queue="mail")
    for where in ("flow.lists", "storage.operations.queues"):
        monkeypatch.setattr(f"rota.{where}.METRIC_DEPTH", 2)
    enqueue(store)
    enqueue(store, due_at=clock.after("1h"))
    assert [one["capped"] for one in control(store).queue_work()] == [[], []]
    enqueue(store)
    enqueue(store, job="elsewhere", queue="mail", due_at=clock.after("1h"))
    capped = {one["name"]: one["capped"] for one in control(store).queue_work()}
    assert capped == {"default": ["queued", "waiting"], "mail": ["waiting"]}


def test_the_audit_is_found_by_who_what_and_words(store: Store) -> None:
    put_job(store, "elsewhere", queue="mail")
    store.write(operations.pause_queue, "mail", "The Server moves", ADA)
    store.write(operations.resume_queue, "mail", ME)
    store.write(operations.pause_queue, "default", None, ME)

    def found(**told: Any) -> list[tuple[str, str]]:
        return [(row["action"], row["thing"]) for row in control(store).find_audit(**told)]

    assert found(by="ada") == [("pause_queue", "mail")]
    assert found(action="pause_queue") == [("pause_queue", "default"), ("pause_queue", "mail")]
    assert found(words="MAI") == [("resume_queue", "mail"), ("pause_queue", "mail")]
    assert found(words="server") == [("pause_queue", "mail")]
    (newest,) = control(store).find_audit(action="pause_queue", limit=1)
    assert found(action="pause_queue", before=newest["id"]) == [("pause_queue", "mail")]


def test_dead_runs_of_one_error_are_paged(store: Store, clock: VirtualClock) -> None:
    wanted = [die(store, f"order {number} is gone") for number in range(3)]
    die(store, "another thing")
    put_job(store, "other")
    die(store, "order 1 is gone", job="other")
    clock.advance("1s")
    look = control(store)
    (group,) = [one for one in look.dead_groups()["groups"] if one["runs"] == 3]
    first, following = look.dead_runs(group["group"], limit=2)
    assert [row["id"] for row in first] == wanted[:0:-1]
    second, last = look.dead_runs(group["group"], before=following, limit=2)
    assert [row["id"] for row in second] == wanted[:1]
    assert last is None
    assert timedelta() <= group["last_at"] - group["first_at"]
