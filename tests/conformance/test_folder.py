"""Jobs of files as rows: which version counts, who may have a name, how one is retired."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from rota.errors import Conflict, Invalid, Unknown
from rota.flow import control_runs
from rota.flow.control import Control
from rota.flow.fire import fire as fire_plans
from rota.model.definition import Definition
from rota.model.job import Job
from rota.model.schedule import Schedule
from rota.storage import operations
from rota.storage.store import Store
from tests.conformance.support import (
    ME,
    ORIGIN,
    Place,
    VirtualClock,
    all_runs,
    claim_one,
    corrupt_job,
    enqueue,
    ledger,
    plans,
    put_definition,
    put_job,
    together,
)

NAME = "accounting"


def version(store: Store) -> str:
    found: str = store.read(operations.jobs_named, [NAME])[NAME].spec["version"]
    return found


def put_worker(store: Store, *jobs: str, origin: str | None = ORIGIN, name: str = "other") -> None:
    row = {
        "id": name, "host": "h", "pid": 1, "version": "0", "tzdata": "0", "origin": origin,
        "jobs": msgspec.json.encode(jobs).decode(), "queues": "[]", "slots": 1, "stuck": 0,
    }  # fmt: skip
    store.write(operations.put_worker, row)


def retire(store: Store, name: str = NAME) -> bool:
    return store.write(operations.retire_job, name, ORIGIN, "me", ME, live_seconds=30)


def tick(store: Store) -> int:
    return fire_plans(store, plans(store), store.read(operations.jobs_named, [NAME])).runs


# Versions


def test_a_definition_is_a_job_and_its_schedule(store: Store, clock: VirtualClock) -> None:
    assert put_definition(store) is None
    (known,) = store.read(operations.registered, ORIGIN, limit=9)
    job, schedule = (
        store.read(operations.jobs_named, [NAME])[NAME],
        store.read(operations.schedule_named, NAME),
    )
    assert (known.name, known.version, known.error, known.retired) == (
        NAME, job.version, None, False,
    )  # fmt: skip
    assert known.version_at == clock()
    assert (schedule.job, schedule.next_fire_at) == (NAME, clock.after("1m"))


def test_the_same_definition_changes_nothing(store: Store, clock: VirtualClock) -> None:
    put_definition(store)
    before = (
        store.read(operations.registered, ORIGIN, limit=9),
        store.read(operations.schedule_named, NAME),
    )
    clock.advance("30s")
    put_definition(store)
    assert (
        store.read(operations.registered, ORIGIN, limit=9),
        store.read(operations.schedule_named, NAME),
    ) == before
    assert len(store.read(operations.list_audit, limit=9)) == 1


def test_the_version_does_not_depend_on_the_place() -> None:
    one = Job(name="x", executor="sql", spec={"folder": "/a", "version": "1"})
    assert one.version == replace(one, spec={"folder": "/b", "version": "1"}).version
    assert one.version != replace(one, spec={"folder": "/a", "version": "2"}).version


def test_a_version_that_was_seen_earlier_stands_back(store: Store, clock: VirtualClock) -> None:
    put_definition(store, version="old", every="1h")
    clock.advance("1m")
    put_definition(store, version="new")
    clock.advance("1m")
    put_definition(store, version="old", every="1h", changed=False)
    assert version(store) == "new"
    assert store.read(operations.schedule_named, NAME).expr == "1m"


def test_a_version_that_nobody_has_seen_is_the_latest(store: Store, clock: VirtualClock) -> None:
    put_definition(store, version="old")
    clock.advance("1m")
    put_definition(store, version="new", changed=False)
    assert version(store) == "new"


def test_a_change_back_that_was_seen_counts(store: Store, clock: VirtualClock) -> None:
    for text in ("old", "new", "old"):
        put_definition(store, version=text)
        clock.advance("1m")
    assert version(store) == "old"
    put_definition(store, version="new", changed=False)
    assert version(store) == "old"


# Errors


def test_a_bad_edit_keeps_the_last_good_version_and_shows_the_error(
    store: Store, clock: VirtualClock
) -> None:
    put_definition(store)
    clock.advance("1s")
    put_definition(store, version="bad", error="job.toml line 1: no")
    job = store.read(operations.jobs_named, [NAME])[NAME]
    assert (job.error, job.enabled, job.spec["version"]) == ("job.toml line 1: no", True, "one")
    assert store.read(operations.schedule_named, NAME).enabled
    clock.advance("1s")
    put_definition(store)
    assert store.read(operations.jobs_named, [NAME])[NAME].error is None


def test_a_file_that_never_was_good_is_seen(store: Store) -> None:
    put_definition(store, version="bad", error="no")
    job = store.read(operations.jobs_named, [NAME])[NAME]
    assert (job.error, job.enabled) == ("no", False)
    assert store.read(operations.list_schedules, limit=9) == []


def test_one_refused_definition_harms_no_other(store: Store, clock: VirtualClock) -> None:
    past = Definition(
        job=Job(name="never", executor="sql", source="file", origin=ORIGIN),
        schedule=Schedule(
            name="never", job="never", kind="cron", expr="0 0 * * *", ends_at=clock.after("1s")
        ),
    )
    good = Definition(job=Job(name="good", executor="sql", source="file", origin=ORIGIN))
    refused = store.write(operations.put_definitions, [past, good], ME, changed=(), live_seconds=30)
    assert list(refused) == ["never"]
    assert "no occurrence" in refused["never"]
    assert [one.name for one in store.read(operations.registered, ORIGIN, limit=9)] == ["good"]


def test_a_large_folder_costs_a_few_statements(place: Place) -> None:
    points: list[str] = []
    store = place.open(probe=points.append)
    store.migrate()
    wanted = [
        Definition(
            job=Job(name=f"job{number}", executor="sql", source="file", origin=ORIGIN),
            schedule=Schedule(name=f"job{number}", job=f"job{number}", kind="every", expr="1m"),
        )
        for number in range(30)
    ]

    def cost() -> int:
        points.clear()
        assert (
            store.write(operations.put_definitions, wanted, ME, changed=(), live_seconds=30) == {}
        )
        return sum(point.endswith(".before") for point in points)

    assert cost() < 20, points
    assert [one.name for one in store.read(operations.registered, ORIGIN, limit=99)] == sorted(
        one.name for one in wanted
    )
    made = store.read(operations.schedule_named, "job7")
    assert made.next_fire_at is not None
    assert cost() < 8, points
    assert store.read(operations.schedule_named, "job7") == made
    (change,) = store.read(operations.list_schedule_changes, made.id, before=1 << 62, limit=9)
    assert change["action"] == "create"


def test_schedule_false_switches_the_schedule_off(store: Store) -> None:
    before = put_definition(store) or store.read(operations.schedule_named, NAME)
    put_definition(store, version="two", every=None)
    after = store.read(operations.schedule_named, NAME)
    assert not after.enabled
    assert (after.id, after.next_fire_at) == (before.id, before.next_fire_at)  # type: ignore[union-attr]


# Edits


def edit(store: Store, **changes: Any) -> Schedule:
    return store.write(
        operations.put_schedule, replace(store.read(operations.schedule_named, NAME), **changes), ME
    )


@pytest.mark.parametrize("changed", [True, False])
@pytest.mark.parametrize("change", [{"expr": "1h"}, {"enabled": False}, {"job": "other"}])
def test_a_file_that_says_the_same_again_keeps_an_operators_edit(
    store: Store, clock: VirtualClock, changed: bool, change: dict[str, Any]
) -> None:
    put_definition(store)
    edited = edit(store, **change)
    clock.advance("1s")
    assert put_definition(store, changed=changed) is None
    # Other SQL is another version of the job, and says nothing new of its schedule.
    assert put_definition(store, version="two", changed=changed) is None
    assert version(store) == "two"
    assert store.read(operations.schedule_named, NAME) == edited


@pytest.mark.parametrize("change", [{"expr": "1h"}, {"enabled": False}, {"job": "other"}])
def test_a_file_with_another_schedule_wins_as_a_whole(
    store: Store, clock: VirtualClock, change: dict[str, Any]
) -> None:
    put_definition(store)
    edit(store, **change)
    clock.advance("1s")
    assert put_definition(store, version="two", queue_max=3) is None
    after = store.read(operations.schedule_named, NAME)
    assert (after.job, after.expr, after.queue_max, after.enabled) == (NAME, "1m", 3, True)
    assert after.operator_changes() == {}
    (last, *_) = store.read(operations.list_schedule_changes, after.id, before=1 << 62, limit=9)
    assert "what was edited here is replaced" in last["reason"]


@pytest.mark.parametrize("away", ["retired", "schedule = false"])
@pytest.mark.parametrize("change", [{"expr": "1h"}, {"enabled": False}])
def test_what_comes_back_is_as_its_file_says(
    store: Store, clock: VirtualClock, away: str, change: dict[str, Any]
) -> None:
    put_definition(store)
    edit(store, **change)
    if away == "retired":
        retire(store)
    else:
        put_definition(store, version="two", every=None)
    assert not store.read(operations.schedule_named, NAME).enabled
    assert store.read(operations.schedule_named, NAME).operator_changes() == {}
    clock.advance("10m30s")
    put_definition(store)
    after = store.read(operations.schedule_named, NAME)
    assert (after.expr, after.enabled, after.operator_changes()) == ("1m", True, {})
    assert tick(store) == 0


# Names


def test_a_name_of_a_living_app_is_not_taken_over(store: Store, clock: VirtualClock) -> None:
    put_job(store, NAME)
    put_worker(store, NAME, origin=None)
    refused = put_definition(store)
    assert refused is not None
    assert "belongs to an app already" in refused
    clock.advance("31s")
    assert put_definition(store) is None


def test_a_name_of_another_origin_is_not_taken_over(store: Store) -> None:
    put_definition(store, origin="there")
    put_worker(store, NAME, origin="there")
    refused = put_definition(store)
    assert refused is not None
    assert "origin 'there'" in refused


def test_a_name_of_a_statement_is_not_taken_over_as_long_as_its_job_is_there(store: Store) -> None:
    job = Job(name=NAME, executor="sql", source="api", spec={"sql": "SELECT 1"})
    store.write(
        operations.put_schedule, Schedule(name=NAME, job=NAME, kind="every", expr="1h"), ME, job
    )
    before = store.read(operations.jobs_named, [NAME]), store.read(operations.schedule_named, NAME)
    for error in (None, "no"):
        refused = put_definition(store, error=error)
        assert refused is not None
        assert "belongs to a statement already" in refused
    assert (
        store.read(operations.jobs_named, [NAME]),
        store.read(operations.schedule_named, NAME),
    ) == before
    run_id = enqueue(store, job=NAME)
    store.write(operations.drop_schedule, NAME, None, ME)
    assert store.read(operations.jobs_named, [NAME])[NAME].retired, "a run of it has not ended"
    assert put_definition(store) is None
    assert store.read(operations.get_run, run_id).state == "queued"


def test_what_is_broken_takes_over_no_name(store: Store) -> None:
    put_job(store, NAME)
    put_definition(store, "other", origin="there")
    before = store.read(operations.jobs_named, [NAME, "other"])
    for name in (NAME, "other"):  # nobody alive has them
        assert put_definition(store, name, error="no") is not None
    assert store.read(operations.jobs_named, [NAME, "other"]) == before
    assert retire(store, "other") is False
    for name in (NAME, "other"):
        assert put_definition(store, name) is None


def test_a_schedule_of_another_job_is_not_taken_over(store: Store) -> None:
    store.write(
        operations.put_schedule, Schedule(name=NAME, job="job", kind="every", expr="1h"), ME
    )
    refused = put_definition(store)
    assert refused is not None
    assert "for job 'job'" in refused
    assert store.read(operations.registered, ORIGIN, limit=9) == []


# Retiring


def test_a_retired_job_fires_nothing_and_keeps_its_schedule(
    store: Store, clock: VirtualClock
) -> None:
    put_definition(store)
    before = store.read(operations.schedule_named, NAME)
    assert retire(store)
    after = store.read(operations.schedule_named, NAME)
    assert (after.id, after.next_fire_at, after.enabled) == (before.id, before.next_fire_at, False)
    assert store.read(operations.registered, ORIGIN, limit=9)[0].retired
    clock.advance("10m")
    assert tick(store) == 0


def test_what_returns_fires_nothing_of_the_past(store: Store, clock: VirtualClock) -> None:
    put_definition(store)
    retire(store)
    clock.advance("10m30s")
    put_definition(store, changed=False)
    schedule = store.read(operations.schedule_named, NAME)
    assert schedule.enabled
    assert schedule.next_fire_at == clock.after("30s")
    assert tick(store) == 0
    assert [row["outcome"] for row in ledger(store, schedule)] == ["missed"]


def test_a_pause_survives_retirement_and_return(store: Store, clock: VirtualClock) -> None:
    put_definition(store)
    store.write(operations.pause_schedule, NAME, "incident", ME)
    retire(store)
    clock.advance("1m")
    put_definition(store)
    schedule = store.read(operations.schedule_named, NAME)
    assert (schedule.paused, schedule.paused_reason, schedule.enabled) == (True, "incident", True)


def test_what_a_live_worker_of_the_origin_has_is_not_retired(
    store: Store, clock: VirtualClock
) -> None:
    put_definition(store)
    put_worker(store, NAME)
    assert not retire(store)
    assert store.read(operations.listed_elsewhere, ORIGIN, "me", live_seconds=30) == {NAME}
    assert store.read(operations.listed_elsewhere, "there", "me", live_seconds=30) == set()
    clock.advance("31s")
    assert retire(store)


def test_our_own_list_does_not_keep_a_job(store: Store) -> None:
    put_definition(store)
    put_worker(store, NAME, name="me")
    put_worker(store, NAME, name="stranger", origin="there")
    assert retire(store)


def test_a_job_of_another_origin_is_not_retired(store: Store) -> None:
    put_definition(store, origin="there")
    put_job(store, "code")
    assert not retire(store)
    assert not retire(store, "code")
    assert not retire(store, "nothing")


def test_runs_that_wait_for_a_retired_job_are_found(store: Store, clock: VirtualClock) -> None:
    put_definition(store, catch_up="all")
    clock.advance("3m")
    while tick(store):
        pass
    assert len(all_runs(store)) == 3
    assert store.read(operations.unstarted_retired_runs, ORIGIN, limit=9) == []
    retire(store)
    found = store.read(operations.unstarted_retired_runs, ORIGIN, limit=9)
    assert found == [run.id for run in reversed(all_runs(store))]
    assert store.read(operations.unstarted_retired_runs, ORIGIN, limit=2) == found[:2]
    for run_id in found:
        store.write(operations.cancel_run, run_id, "gone", ME, running=False)
    assert store.read(operations.unstarted_retired_runs, ORIGIN, limit=9) == []
    assert store.read(operations.unstarted_retired_runs, "there", limit=9) == []


def test_versions_are_forgotten_in_the_end(place: Place, store: Store, clock: VirtualClock) -> None:
    for number in range(110):
        put_definition(store, version=str(number))
        clock.advance("1s")
    ((count,),) = place.execute(f"SELECT count(*) FROM {place.table('job_versions')}")
    assert count == 100
    assert (
        timedelta(seconds=1)
        == clock() - store.read(operations.registered, ORIGIN, limit=1)[0].version_at
    )


def test_a_cancel_of_what_has_not_started_leaves_a_running_one_alone(store: Store) -> None:
    run_id = enqueue(store)
    claim_one(store)
    store.write(operations.cancel_run, run_id, "gone", ME, running=False)
    run = store.read(operations.get_run, run_id)
    assert (run.state, run.cancel_requested_at, run.reason) == ("running", None, None)


def test_a_row_that_cannot_be_read_is_written_again_and_concerns_no_other(store: Store) -> None:
    assert put_definition(store) is None
    corrupt_job(store, NAME)
    wanted = [
        Definition(
            job=Job(
                name=name, executor="sql", source="file", origin=ORIGIN,
                spec={"folder": "/somewhere", "version": "one"},
            )
        )
        for name in (NAME, "later")
    ]  # fmt: skip
    assert store.write(operations.put_definitions, wanted, ME, changed=(), live_seconds=30) == {}
    assert sorted(store.read(operations.jobs_named, [NAME, "later"])) == [NAME, "later"]


def test_a_row_that_cannot_be_read_belongs_to_its_origin(store: Store) -> None:
    put_definition(store)
    put_worker(store, NAME)
    corrupt_job(store, NAME)
    assert "belongs to origin" in str(put_definition(store, origin="elsewhere"))


@pytest.mark.parametrize("fault", [Unknown("not installed"), Invalid("could not be loaded")])
def test_runs_that_only_another_process_can_end_are_left_to_it(
    store: Store, fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_runs, "PAGE", 2)
    for name in (NAME, "other"):
        put_definition(store, name=name)
        retire(store, name)
    behind = enqueue(store, job="other")
    left = [enqueue(store, job=NAME) for _ in range(3)]
    ended = enqueue(store, job="other")
    looks = Counter[str]()

    def termination_hook_of(name: str) -> None:
        looks[name] += 1
        assert looks[name] < 9, "again and again"
        if name == NAME:
            raise fault

    control = Control(store, actor=ME, termination_hook_of=termination_hook_of)
    assert control.cancel_retired(ORIGIN) == 2
    assert {store.read(operations.get_run, one).state for one in (ended, behind)} == {"cancelled"}
    assert {store.read(operations.get_run, run_id).state for run_id in left} == {"queued"}
    with pytest.raises(Conflict, match=f"where its executor is installed: {fault}"):
        control.cancel(left[0])


def test_scripts_that_are_owed_are_taken_once(store: Store) -> None:
    assert not store.write(operations.take_scripts, "store")
    store.write(operations.owe_scripts, "store")
    assert not store.write(operations.take_scripts, "other")
    assert store.write(operations.take_scripts, "store")
    assert not store.write(operations.take_scripts, "store")
    store.write(operations.owe_scripts, "store")
    assert sorted(together(*[lambda: store.write(operations.take_scripts, "store")] * 4)) == [
        False,
        False,
        False,
        True,
    ]
