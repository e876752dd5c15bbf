"""The catalog: jobs and schedules, by name; nobody's deploy undoes an operator's word."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rota.errors import Conflict, Invalid, Unknown
from rota.model.job import Job
from rota.model.retry import Retry
from rota.model.schedule import WAITING_FOR_RUN, Schedule
from rota.model.signature import Parameter, Signature
from rota.storage import operations
from rota.storage.operations.audit import Actor
from rota.storage.store import Store
from tests.conformance.support import (
    FAR,
    ME,
    Place,
    VirtualClock,
    all_runs,
    claim_one,
    corrupt_job,
    ledger,
    outcomes,
    put_job,
    put_schedule,
    settle,
    tick,
    together,
)

CODE = Actor(by="coder", via="code")

# Jobs


def test_a_job_comes_back_as_it_was_put(store: Store, clock: VirtualClock) -> None:
    job = Job(
        name="etl/load.daily",
        executor="sql",
        source="file",
        origin="jobs.d/etl",
        spec={"files": ["a.sql", "b.sql"], "target": "warehouse"},
        signature=Signature((Parameter(name="day", types=("string",), required=False),), open=True),
        description="Lädt alles",
        queue="heavy",
        priority=5,
        timeout=timedelta(minutes=90),
        retry=Retry(max_attempts=5, backoff="exponential", jitter=timedelta(seconds=1)),
        isolation="process",
        concurrency_key="warehouse",
        concurrency_limit=2,
        enabled=False,
        error="b.sql is missing",
    )
    store.write(operations.put_jobs, [job])
    assert store.read(operations.jobs_named, [job.name]) == {
        job.name: replace(job, version_at=clock())
    }


def test_the_same_version_keeps_its_instant(store: Store, clock: VirtualClock) -> None:
    first = store.read(operations.jobs_named, ["job"])["job"]
    clock.advance("1h")
    put_job(store)
    assert store.read(operations.jobs_named, ["job"])["job"] == first
    put_job(store, priority=1)
    assert store.read(operations.jobs_named, ["job"])["job"].version_at == clock()


@pytest.mark.parametrize("change", [{"enabled": False}, {"error": "cannot be imported"}])
def test_what_is_not_the_definition_is_kept_up_to_date_too(
    store: Store, change: dict[str, object]
) -> None:
    put_job(store, **change)
    (job,) = store.read(operations.list_jobs, limit=9)
    assert {name: getattr(job, name) for name in change} == change
    put_job(store)
    assert store.read(operations.list_jobs, limit=9)[0].error is None


def test_jobs_are_listed_by_name_in_pages(store: Store) -> None:
    for name in ("c", "a", "b"):
        put_job(store, name)
    assert [job.name for job in store.read(operations.list_jobs, limit=2)] == ["a", "b"]
    assert [job.name for job in store.read(operations.list_jobs, after="b", limit=9)] == [
        "c",
        "job",
    ]
    assert list(store.read(operations.jobs_named, ["b", "unheard-of"])) == ["b"]
    assert store.read(operations.jobs_named, []) == {}


def test_a_job_whose_row_is_corrupt_is_listed_with_the_reason(store: Store) -> None:
    put_job(store, "other")
    corrupt_job(store)
    every = {"words": None, "queue": None, "executor": None, "status": None, "after": ""}
    for found in (
        store.read(operations.list_jobs, limit=2),
        store.read(operations.find_jobs, limit=2, **every),
    ):
        broken, other = found
        assert (broken.name, broken.queue, other.name) == ("job", "default", "other")
        assert "its row cannot be read (KeyError" in str(broken.error)
        assert other.error is None
    for status, names in (("broken", ["job"]), ("enabled", ["other"])):
        for limit in (1, 2):
            found = store.read(operations.find_jobs, limit=limit, **every | {"status": status})
            assert [job.name for job in found] == names, (status, limit)
    assert list(store.read(operations.jobs_named, ["job", "other"])) == ["other"]
    put_job(store, priority=1)
    assert store.read(operations.list_jobs, limit=1)[0].error is None


def test_jobs_put_by_many_at_once_are_all_there(store: Store, place: Place) -> None:
    jobs = [Job(name=f"job-{number}", queue=f"queue-{number}") for number in range(10)]
    stores = [place.open() for _ in range(4)]
    orders = [jobs, jobs[::-1], jobs[5:] + jobs[:5], jobs]
    together(
        *[
            lambda pair=pair: pair[0].write(operations.put_jobs, pair[1])
            for pair in zip(stores, orders, strict=True)
        ]
    )
    assert (
        len(store.read(operations.list_jobs, limit=99))
        == len(store.read(operations.list_queues, limit=99))
        == 11
    )


# Schedules


def test_a_schedule_comes_back_as_it_was_put(store: Store, clock: VirtualClock) -> None:
    wanted = Schedule(
        name="nightly",
        job="job",
        kind="cron",
        expr="30 2 * * MON-FRI",
        timezone="Europe/Berlin",
        dst="literal",
        overlap="queue",
        overlap_key="job job",
        queue_max=3,
        on_error="pause",
        pause_after=2,
        catch_up="none",
        catch_up_limit=7,
        misfire_grace=timedelta(minutes=5),
        jitter=timedelta(seconds=1),
        spread=timedelta(seconds=2),
        starts_at=clock.after("1d"),
        ends_at=clock.after("99d"),
        args={"größe": [1, None, {"x": True}]},
        priority=-4,
        retry=Retry(max_attempts=2),
        owner="team",
    )
    made = store.write(operations.put_schedule, wanted, ME)
    assert made == replace(
        wanted, id=made.id, created_at=clock(), next_fire_at=wanted.first_fire(clock())
    )
    assert store.read(operations.schedule_named, "nightly") == made


def test_registering_the_same_again_changes_nothing(store: Store, clock: VirtualClock) -> None:
    first = put_schedule(store)
    clock.advance("15s")  # it is due and nobody has fired it
    assert put_schedule(store) == first
    assert len(store.read(operations.list_schedule_changes, first.id, before=10**9, limit=9)) == 1
    assert len(store.read(operations.list_audit, limit=9)) == 1


def test_registering_the_same_again_leaves_a_pause(store: Store) -> None:
    put_schedule(store)
    paused = store.write(operations.pause_schedule, "schedule", "incident", ME)
    assert put_schedule(store) == paused


def test_an_edit_never_unpauses(store: Store, clock: VirtualClock) -> None:
    put_schedule(store)
    store.write(operations.pause_schedule, "schedule", "incident", ME)
    for change in ({"priority": 5}, {"expr": "1h"}, {"enabled": False}, {"enabled": True}):
        edited = put_schedule(store, **change)
        assert (edited.paused, edited.paused_by) == (True, "operator")
        assert (edited.paused_reason, edited.paused_at) == ("incident", clock())
    clock.advance("1d")
    assert tick(store) == 0


@pytest.mark.parametrize("change", [{"args": {"n": 1}}, {"overlap": "skip"}, {"owner": "me"}])
def test_an_edit_of_something_else_leaves_the_cursor(
    store: Store, clock: VirtualClock, change: dict[str, object]
) -> None:
    first = put_schedule(store)
    clock.advance("15s")
    edited = put_schedule(store, **change)
    assert (edited.id, edited.created_at) == (first.id, first.created_at)
    assert edited.next_fire_at == first.next_fire_at
    assert tick(store) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"expr": "1m"},
        {"kind": "cron", "expr": "* * * * *"},
        {"first_run": "2020-01-01T00:00:00Z"},
        {"starts_at": "2020-01-01T00:00:00Z"},
    ],
)
def test_an_edit_of_the_timing_never_fires_the_past(
    store: Store, clock: VirtualClock, change: dict[str, object]
) -> None:
    schedule = put_schedule(store)
    clock.advance("1h")
    edited = put_schedule(store, **change)
    assert edited.next_fire_at is not None
    assert clock() < edited.next_fire_at <= clock.after("1m")
    assert tick(store) == 0
    (abandoned,) = ledger(store, schedule)
    assert (abandoned["outcome"], abandoned["count"]) == ("missed", 360)


def test_an_edit_keeps_when_it_fired_last(store: Store, clock: VirtualClock) -> None:
    put_schedule(store)
    clock.advance("10s")
    tick(store)
    assert put_schedule(store, expr="1h").last_fired_at == clock()


def test_an_edit_touches_no_run_already_made(store: Store, clock: VirtualClock) -> None:
    put_schedule(store)
    clock.advance("10s")
    tick(store)
    before = all_runs(store)
    put_schedule(store, expr="1h", overlap="allow", priority=9)
    store.write(operations.pause_schedule, "schedule", None, ME)
    store.write(operations.drop_schedule, "schedule", None, ME)
    assert all_runs(store) == before
    settle(store, claim_one(store))


def test_schedules_are_listed_by_name_in_pages(store: Store) -> None:
    for name in ("c", "a", "b"):
        put_schedule(store, name, job="other" if name == "b" else "job")
    assert [schedule.name for schedule in store.read(operations.list_schedules, limit=2)] == [
        "a",
        "b",
    ]
    assert [
        schedule.name for schedule in store.read(operations.list_schedules, after="b", limit=9)
    ] == ["c"]
    assert [
        schedule.name for schedule in store.read(operations.list_schedules, job="job", limit=9)
    ] == [
        "a",
        "c",
    ]


def test_a_schedule_made_by_many_at_once_exists_once(store: Store, place: Place) -> None:
    def put(one: Store) -> int:
        try:
            return put_schedule(one).id
        except Conflict:
            return put_schedule(one).id

    ids = together(*[lambda one=one: put(one) for one in [place.open() for _ in range(4)]])
    assert set(ids) == {schedule.id for schedule in store.read(operations.list_schedules, limit=9)}
    assert len(store.read(operations.list_audit, limit=9)) == 1


@pytest.mark.parametrize("act", ["pause_schedule", "resume_schedule", "drop_schedule"])
def test_a_schedule_that_does_not_exist_is_named(store: Store, act: str) -> None:
    with pytest.raises(Unknown, match="'nowhere'"):
        store.write(getattr(operations, act), "nowhere", None, ME)
    with pytest.raises(Unknown, match="'nowhere'"):
        store.read(operations.schedule_named, "nowhere")


@pytest.mark.parametrize(
    "never",
    [
        {"kind": "cron", "expr": "0 0 1 1 *", "ends_at": "2025-01-02T00:00:00Z"},
        {"ends_at": "2025-01-01T00:00:09Z"},
    ],
)
def test_what_will_never_occur_is_refused_when_it_is_saved(
    store: Store, clock: VirtualClock, never: dict[str, str]
) -> None:
    with pytest.raises(Invalid, match=r"'schedule'.*no occurrence from now on"):
        put_schedule(store, **never)
    assert store.read(operations.list_schedules, limit=9) == []
    before = put_schedule(store)
    with pytest.raises(Invalid, match=r"'schedule'.*no occurrence from now on"):
        put_schedule(store, **never)
    assert store.read(operations.schedule_named, "schedule") == before


# Definitions of code, and edits


def register(store: Store, **options: Any) -> Schedule:
    """As code does; every 10 seconds unless said otherwise."""
    options = {"job": "job", "kind": "every", "expr": "10s", **options}
    return store.write(operations.register_schedule, Schedule(name="schedule", **options), CODE)


def actions(store: Store, schedule: Schedule) -> list[tuple[str, str, str | None]]:
    found = store.read(operations.list_schedule_changes, schedule.id, before=1 << 62, limit=99)
    return [(row["action"], row["by"], row["reason"]) for row in reversed(found)]


EDITS: list[dict[str, Any]] = [
    {"expr": "10m"},
    {"kind": "cron", "expr": "0 5 * * *", "timezone": "Europe/Berlin"},
    {"enabled": False},
    {"overlap": "allow", "priority": 7, "args": {"n": 2}},
    {"job": "other"},
]


@pytest.mark.parametrize("edit", EDITS)
def test_code_that_says_the_same_again_keeps_an_operators_edit(
    store: Store, place: Place, clock: VirtualClock, edit: dict[str, Any]
) -> None:
    register(store, args={"n": 1})
    clock.advance("1s")
    edited = store.write(
        operations.put_schedule,
        replace(store.read(operations.schedule_named, "schedule"), **edit),
        ME,
    )
    assert set(edited.operator_changes()) == set(edit)
    for _ in range(2):
        clock.advance("1s")
        assert register(place.open(), args={"n": 1}) == edited
    assert store.read(operations.schedule_named, "schedule") == edited
    assert [one[:2] for one in actions(store, edited)] == [
        ("create", "coder"), ("alter", "operator"),
    ]  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_code_that_says_something_else_wins_as_a_whole(
    store: Store, clock: VirtualClock, edit: dict[str, Any]
) -> None:
    first = register(store)
    store.write(operations.put_schedule, replace(first, **edit), ME)
    store.write(operations.pause_schedule, "schedule", "incident", ME)
    after = register(store, queue_max=3)
    wanted = Schedule(name="schedule", job="job", kind="every", expr="10s", queue_max=3)
    assert after.definition() == wanted.definition()
    assert (after.id, after.operator_changes()) == (first.id, {})
    assert (after.paused, after.paused_reason) == (True, "incident")
    assert actions(store, after)[-1] == (
        "alter", "coder",
        "its definition in code or file changed; what was edited here is replaced",
    )  # fmt: skip


def test_what_an_edit_takes_back_differs_no_more(store: Store) -> None:
    first = register(store)
    put_schedule(store, expr="10m")
    assert store.read(operations.schedule_named, "schedule").operator_changes() == {"expr": "10s"}
    assert put_schedule(store).definition() == first.definition()
    assert store.read(operations.schedule_named, "schedule").operator_changes() == {}


def test_code_that_follows_an_edit_changes_nothing_and_is_known(store: Store) -> None:
    register(store)
    edited = put_schedule(store, expr="10m")
    followed = register(store, expr="10m")
    assert followed.definition() == edited.definition()
    assert (followed.operator_changes(), len(actions(store, edited))) == ({}, 2)
    assert store.read(operations.schedule_named, "schedule") == followed
    # The edit before belongs to the past: what is said again is the new definition.
    put_schedule(store, expr="1h")
    assert register(store, expr="10m").expr == "1h"
    assert register(store).expr == "10s"


def test_what_nobody_registered_is_compared_as_it_is(store: Store, place: Place) -> None:
    """Made by an operator, or by a version that did not know what code had said."""
    made = put_schedule(store)
    assert (made.registered, made.operator_changes()) == (None, {})
    same = register(store)
    assert same.definition() == made.definition()
    assert actions(store, made) == [("create", "operator", None)]
    assert put_schedule(store, expr="10m").expr == register(store).expr == "10m"
    place.execute(f"UPDATE {place.table('schedules')} SET registered = NULL")
    assert register(store).expr == "10s"
    assert actions(store, made)[-1] == ("alter", "coder", None)


def test_an_edit_cannot_say_what_code_said(store: Store) -> None:
    """A schedule that was read, and is written back, has the column of its row."""
    register(store)
    forged = replace(store.read(operations.schedule_named, "schedule"), expr="10m", registered="{}")
    store.write(operations.put_schedule, forged, ME)
    assert register(store).expr == "10m"
    fresh = replace(forged, name="fresh")
    assert store.write(operations.put_schedule, fresh, ME).registered is None


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '"x"', "[1]"])
def test_a_registration_that_cannot_be_read_is_written_anew(
    store: Store, place: Place, text: str
) -> None:
    register(store)
    place.execute(f"UPDATE {place.table('schedules')} SET registered = '{text}'")
    assert "job" in store.read(operations.schedule_named, "schedule").operator_changes()
    assert register(store).operator_changes() == {}


def test_a_broken_schedule_is_mended_by_its_code(store: Store, place: Place) -> None:
    register(store)
    place.execute(f"UPDATE {place.table('schedules')} SET expr = 'soon'")
    assert store.read(operations.schedule_named, "schedule").status == "BROKEN"
    assert register(store).status == "ACTIVE"


def test_a_schedule_registered_by_many_at_once_exists_once(store: Store, place: Place) -> None:
    made = together(*[lambda one=one: register(one) for one in [place.open() for _ in range(4)]])
    assert len({one.id for one in made}) == 1
    assert len(store.read(operations.list_audit, limit=9)) == 1


# Pause and resume


def test_a_pause_says_who_when_and_why(store: Store, clock: VirtualClock) -> None:
    before = put_schedule(store)
    clock.advance("1s")
    paused = store.write(operations.pause_schedule, "schedule", "incident", ME)
    assert (paused.paused, paused.paused_by) == (True, "operator")
    assert (paused.paused_reason, paused.paused_at) == ("incident", clock())
    assert paused.state == "paused by operator: incident"
    assert paused.next_fire_at == before.next_fire_at


def test_a_second_pause_keeps_the_first_reason(store: Store, clock: VirtualClock) -> None:
    put_schedule(store)
    first = store.write(operations.pause_schedule, "schedule", "incident", ME)
    clock.advance("1s")
    assert store.write(operations.pause_schedule, "schedule", "another", ME) == first
    assert len(store.read(operations.list_audit, limit=9)) == 2


def test_a_resume_records_what_was_missed_and_does_not_replay_it(
    store: Store, clock: VirtualClock
) -> None:
    schedule = put_schedule(store)
    store.write(operations.pause_schedule, "schedule", None, ME)
    clock.advance("35s")
    resumed = store.write(operations.resume_schedule, "schedule", "fixed", ME)
    assert (resumed.paused, resumed.paused_by, resumed.paused_reason) == (False, None, None)
    assert resumed.next_fire_at == clock.after("5s")
    assert tick(store) == 0
    (missed,) = ledger(store, schedule)
    assert (missed["outcome"], missed["count"], missed["run_id"]) == ("missed", 3, None)
    clock.advance("5s")
    assert tick(store) == 1


def test_a_resume_may_catch_up_with_one_run(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store)
    store.write(operations.pause_schedule, "schedule", None, ME)
    clock.advance("35s")
    resumed = store.write(operations.resume_schedule, "schedule", None, ME, catch_up="one")
    assert (resumed.paused, resumed.next_fire_at) == (False, clock.after("5s"))
    assert store.read(operations.schedule_named, "schedule").next_fire_at == resumed.next_fire_at
    assert [run.missed_count for run in all_runs(store)] == [3]
    assert outcomes(store, schedule) == ["fired", "coalesced"]


def test_a_resume_may_catch_up_with_all(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store, overlap="queue", catch_up_limit=2)
    store.write(operations.pause_schedule, "schedule", None, ME)
    clock.advance("55s")
    store.write(operations.resume_schedule, "schedule", None, ME, catch_up="all")
    assert [run.state for run in all_runs(store)] == ["queued", *["held"] * 4]
    assert outcomes(store, schedule) == ["fired"] * 5
    assert tick(store) == 0


def test_a_once_past_its_time_may_be_caught_up(store: Store, clock: VirtualClock) -> None:
    put_schedule(store, kind="once", expr=clock.after("10s").isoformat())
    store.write(operations.pause_schedule, "schedule", None, ME)
    clock.advance("1m")
    assert (
        store.write(operations.resume_schedule, "schedule", None, ME, catch_up="one").next_fire_at
        is None
    )
    assert len(all_runs(store)) == 1


def test_a_disabled_schedule_catches_up_with_nothing(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store)
    store.write(operations.pause_schedule, "schedule", None, ME)
    put_schedule(store, enabled=False)
    clock.advance("35s")
    store.write(operations.resume_schedule, "schedule", None, ME, catch_up="all")
    assert all_runs(store) == []
    assert outcomes(store, schedule) == ["missed"]


def test_a_resume_in_time_misses_nothing(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store)
    store.write(operations.pause_schedule, "schedule", None, ME)
    clock.advance("9s")
    store.write(operations.resume_schedule, "schedule", None, ME)
    clock.advance("1s")
    assert tick(store) == 1
    assert outcomes(store, schedule) == ["fired"]


def test_a_resume_of_what_is_not_paused_changes_nothing(store: Store) -> None:
    before = put_schedule(store)
    assert store.write(operations.resume_schedule, "schedule", None, ME) == before
    assert len(store.read(operations.list_audit, limit=9)) == 1


def test_a_paused_once_past_its_time_is_missed_and_says_so(
    store: Store, clock: VirtualClock
) -> None:
    schedule = put_schedule(store, kind="once", expr=clock.after("10s").isoformat())
    store.write(operations.pause_schedule, "schedule", None, ME)
    clock.advance("1m")
    resumed = store.write(operations.resume_schedule, "schedule", None, ME)
    assert resumed.next_fire_at is None
    assert resumed.state is not None
    assert "missed" in resumed.state
    assert tick(store) == 0
    assert outcomes(store, schedule) == ["missed"]


def test_a_delay_schedule_resumed_still_waits_for_its_run(
    store: Store, clock: VirtualClock
) -> None:
    put_schedule(store, anchor="delay")
    clock.advance("10s")
    tick(store)
    store.write(operations.pause_schedule, "schedule", None, ME)
    clock.advance("1h")
    assert (
        store.write(operations.resume_schedule, "schedule", None, ME).next_fire_at
        == WAITING_FOR_RUN
    )
    settle(store, claim_one(store))
    assert store.read(operations.schedule_named, "schedule").next_fire_at == clock.after("10s")


def test_enabling_again_counts_as_a_resume(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store)
    put_schedule(store, enabled=False)
    clock.advance("35s")
    enabled = put_schedule(store, enabled=True)
    assert enabled.next_fire_at == clock.after("5s")
    assert tick(store) == 0
    assert [(row["outcome"], row["count"]) for row in ledger(store, schedule)] == [("missed", 3)]


# Drop


def test_a_drop_keeps_ledger_changes_and_runs(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store)
    clock.advance("10s")
    tick(store)
    store.write(operations.drop_schedule, "schedule", "moved", ME)
    with pytest.raises(Unknown):
        store.read(operations.schedule_named, "schedule")
    assert len(ledger(store, schedule)) == len(all_runs(store)) == 1
    dropped, created = store.read(
        operations.list_schedule_changes, schedule.id, before=10**9, limit=9
    )
    assert (dropped["action"], dropped["reason"], dropped["after"]) == ("drop", "moved", None)
    assert created["action"] == "create"


def test_a_name_used_again_is_another_schedule(store: Store) -> None:
    first = put_schedule(store)
    store.write(operations.drop_schedule, "schedule", None, ME)
    assert put_schedule(store).id > first.id


# The trace


def test_every_change_is_kept_with_before_and_after(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store)
    put_schedule(store, expr="1m")
    store.write(operations.pause_schedule, "schedule", "incident", ME)
    store.write(operations.resume_schedule, "schedule", None, ME)
    changes = store.read(operations.list_schedule_changes, schedule.id, before=10**9, limit=9)[::-1]
    assert [change["action"] for change in changes] == ["create", "alter", "pause", "resume"]
    assert {(change["by"], change["at"]) for change in changes} == {("operator", clock())}
    assert [change["reason"] for change in changes] == [None, None, "incident", None]
    altered = changes[1]
    assert json.loads(altered["before"])["expr"] == "10s"
    assert json.loads(altered["after"])["expr"] == "1m"
    assert not json.loads(changes[2]["before"])["paused"]
    assert json.loads(changes[2]["after"])["paused"]
    assert (
        store.read(operations.list_schedule_changes, schedule.id, before=altered["id"], limit=9)
        == changes[:1]
    )
    audit = store.read(operations.list_audit, limit=9)[::-1]
    assert [row["action"] for row in audit] == [
        "create_schedule", "alter_schedule", "pause_schedule", "resume_schedule",
    ]  # fmt: skip


def test_the_ledger_is_read_in_pages_newest_first(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store, catch_up="all", overlap="allow")
    clock.advance("50s")
    tick(store)
    page = store.read(operations.list_occurrences, schedule.id, before=FAR, limit=2)
    assert [row["occurrence"] for row in page] == [clock(), clock() - timedelta(seconds=10)]
    rest = store.read(
        operations.list_occurrences, schedule.id, before=page[-1]["occurrence"], limit=9
    )
    assert len(rest) == 3


def test_an_instant_is_found_in_the_ledger(store: Store, clock: VirtualClock) -> None:
    schedule = put_schedule(store)
    clock.advance("45s")
    tick(store)
    first, stretch = ledger(store, schedule)
    assert store.read(operations.occurrence_at, schedule.id, first["occurrence"]) == first
    within = first["occurrence"] + timedelta(seconds=20)
    assert store.read(operations.occurrence_at, schedule.id, within) == stretch
    assert store.read(operations.occurrence_at, schedule.id, clock.after("5s")) is None
    assert store.read(operations.occurrence_at, schedule.id + 1, within) is None


def test_the_installation_is_known(store: Store) -> None:
    meta = store.read(operations.meta)
    assert meta["installation"]
    assert int(meta["schema_version"]) >= 1
