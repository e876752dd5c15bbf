"""Every policy of time and failure, in virtual time on every engine, with the ledger checked."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from rota.errors import Unknown
from rota.flow.control import Control
from rota.flow.events import Events
from rota.flow.fire import REFUSED_PAUSE, Fire
from rota.flow.home import adopt, check_home
from rota.flow.promote import Promote
from rota.flow.prune import count_uncounted
from rota.flow.settle import Settler
from rota.model.job import Job
from rota.model.outcome import Outcome
from rota.model.retry import ONCE, Retry
from rota.model.run import ClaimedRun, Run
from rota.model.schedule import WAITING_FOR_RUN, Schedule
from rota.storage import operations
from rota.storage.operations.firing import NOTHING_FIRED, Broken
from rota.storage.store import Store
from tests.conformance.support import ME, Place, VirtualClock, sweep
from tests.support.operations import replace_operation

LEASE = timedelta(days=30)
MINUTE = timedelta(minutes=1)


class World:
    """One process in virtual time: it fires, promotes and claims; the test ends the runs."""

    def __init__(self, place: Place, clock: VirtualClock, retry: Retry = ONCE) -> None:
        self.place, self.clock = place, clock
        self.job = Job(name="job", retry=retry)
        self.running: list[ClaimedRun] = []
        self.restart()
        self.store.write(operations.put_jobs, [self.job])

    def restart(self) -> None:
        """A new process: nothing is remembered but what the rows say."""
        self.store = self.place.open()
        self.fire = Fire(self.store, monotonic=lambda: self.clock().timestamp(), fired=lambda: None)
        self.promote = Promote(self.store, promoted=lambda: None)
        self.settler = Settler(
            self.store,
            jobs={"job": self.job},
            max_lost=3,
            events=Events(),
            termination_hook_of=lambda name: None,
            random_value=lambda: 0.0,
        )
        self.control = Control(self.store, actor=ME, termination_hook_of=lambda name: None)

    def put(self, kind: str = "every", expr: str = "1m", **options: object) -> Schedule:
        made = Schedule(name="s", job="job", kind=kind, expr=expr, **options)  # type: ignore[arg-type]
        return self.store.write(operations.put_schedule, made, ME)

    def look(self) -> list[ClaimedRun]:
        """Everything that is due now fires, is promoted and claimed; what was claimed."""
        while self.fire.step() == 0.0:
            pass
        while self.promote.step() == 0.0:
            pass
        claimed = self.store.write(
            operations.claim, "w", queues=(), jobs=["job"], limit=1000, lease=LEASE
        )
        self.running += claimed
        return claimed

    def pass_time(self, span: str, step: str = "1m") -> None:
        """Let time pass with a look at every step."""
        end = self.clock.after(span)
        while self.clock() < end:
            self.clock.advance(step)
            self.look()

    def end(self, run: ClaimedRun, kind: str = "succeeded") -> None:
        self.running.remove(run)
        self.settler.settle_now(
            [(run, Outcome(kind=kind, error=None if kind != "failed" else "x"))]
        )

    def runs(self, *states: str) -> list[Run]:
        found = self.store.read(operations.list_runs, job="job", limit=500)[::-1]
        return [run for run in found if not states or run.state in states]

    @property
    def schedule(self) -> Schedule:
        return self.store.read(operations.schedule_named, "s")


@pytest.fixture
def world(place: Place, clock: VirtualClock) -> World:
    return World(place, clock)


def ledger(store: Store, schedule: Schedule) -> dict[datetime, str]:
    """The outcome of each occurrence, stretches expanded; nothing may stand in two rows."""
    found: dict[datetime, str] = {}
    for row in store.read(
        operations.list_occurrences, schedule.id, before=WAITING_FOR_RUN, limit=500
    ):
        moment, count = row["occurrence"], 0
        while moment <= row["last_occurrence"]:
            assert moment not in found, f"{moment} has two outcomes"
            found[moment] = row["outcome"]
            count += 1
            following = schedule.calendar.next_after(moment, moment)
            if following is None:
                break
            moment = following
        assert row["count"] == count
    return dict(sorted(found.items()))


def outcomes(world: World) -> list[str]:
    """In order, and without a hole: every occurrence from the first on has its outcome."""
    schedule = world.schedule
    found = ledger(world.store, schedule)
    moments = list(found)
    for earlier, later in pairwise(moments):
        assert schedule.calendar.next_after(earlier, earlier) == later, f"a hole after {earlier}"
    return list(found.values())


# Overlap: a run ten intervals long

OVERLAP = [
    # options, states of the runs after ten more occurrences, the ledger
    (
        {"overlap": "queue", "queue_max": 3},
        ["running", *["held"] * 3],
        ["fired"] * 4 + ["dropped"] * 7,
    ),
    ({"overlap": "queue", "queue_max": 0}, ["running"], ["fired"] + ["dropped"] * 10),
    ({"overlap": "queue"}, ["running", *["held"] * 10], ["fired"] * 11),
    ({"overlap": "wait"}, ["running", "held"], ["fired"] * 2 + ["coalesced"] * 9),
    ({"overlap": "skip"}, ["running"], ["fired"] + ["skipped"] * 10),
    ({"overlap": "allow"}, ["running"] * 11, ["fired"] * 11),
    ({"overlap": "start"}, ["running"] * 11, ["fired"] * 11),
]


@pytest.mark.parametrize(("options", "states", "expected"), OVERLAP)
def test_overlap_with_a_run_ten_intervals_long(
    world: World, options: dict[str, object], states: list[str], expected: list[str]
) -> None:
    world.put(**options)
    world.pass_time("11m")
    assert [run.state for run in world.runs()] == states
    assert outcomes(world) == expected


@pytest.mark.parametrize(("options", "states", "expected"), OVERLAP)
def test_overlap_holds_while_a_run_waits_between_attempts(
    place: Place,
    clock: VirtualClock,
    options: dict[str, object],
    states: list[str],
    expected: list[str],
) -> None:
    world = World(place, clock, Retry(max_attempts=2, backoff="fixed", delay=timedelta(hours=1)))
    world.put(**options)
    world.pass_time("1m")
    world.end(world.running[0], "failed")
    assert world.runs()[0].state == "waiting"
    world.pass_time("10m")
    assert [run.state for run in world.runs()] == ["waiting", *states[1:]]
    assert outcomes(world) == expected


def test_queued_occurrences_run_one_after_the_other_in_order(world: World) -> None:
    world.put(overlap="queue", queue_max=3)
    world.pass_time("11m")
    order = []
    while world.running:
        (run,) = world.running
        order.append(run.occurrence)
        world.end(run)
        world.look()
    assert order == sorted(order)
    assert len(order) == 4
    world.pass_time("1m")
    assert len(world.running) == 1, "the line is empty again, so the next one starts"


def test_waiting_occurrences_merge_into_one_that_starts_when_its_predecessor_ends(
    world: World,
) -> None:
    world.put(overlap="wait")
    world.pass_time("11m")
    (first,) = world.running
    world.end(first)
    (second,) = world.look()
    assert second.missed_count == 10
    assert second.occurrence == first.occurrence + MINUTE


# Catch-up: an hour of downtime on a minutely schedule


@pytest.mark.parametrize(
    ("options", "ticks", "expected"),
    [
        ({"catch_up": "one"}, [[60]], ["fired"] + ["coalesced"] * 59),
        ({"catch_up": "none"}, [[1]], ["missed"] * 59 + ["fired"]),
        ({"catch_up": "none", "misfire_grace": "10s"}, [[]], ["missed"] * 60),
        ({"catch_up": "none", "misfire_grace": "5m"}, [[1] * 5], ["missed"] * 55 + ["fired"] * 5),
        ({"catch_up": "all", "catch_up_limit": 25}, [[1] * 25, [1] * 25, [1] * 10], ["fired"] * 60),
    ],
)
def test_catch_up_after_an_hour_of_downtime(
    world: World, options: dict[str, object], ticks: list[list[int]], expected: list[str]
) -> None:
    world.put(overlap="allow", kind="cron", expr="* * * * *", **options)
    world.clock.advance("1h30s")
    for counts in ticks:
        world.fire.step()
        made = world.store.write(
            operations.claim, "w", queues=(), jobs=["job"], limit=1000, lease=LEASE
        )
        assert [run.missed_count for run in made] == counts
    assert outcomes(world) == expected
    world.pass_time("90s", step="30s")
    assert len(outcomes(world)) == 62, "then the normal cadence"


# Failure


def test_on_error_next_changes_nothing(world: World) -> None:
    world.put(on_error="next")
    world.pass_time("1m")
    cursor = world.schedule.next_fire_at
    world.end(world.running[0], "failed")
    after = world.schedule
    assert (after.next_fire_at, after.paused) == (cursor, False)
    assert "died" in str(after.state)
    assert [run.state for run in world.runs()] == ["dead"]


@pytest.mark.parametrize("spelling", ["retry", "retry_soon"])
def test_on_error_retry_makes_an_earlier_second_run(world: World, spelling: str) -> None:
    world.put(expr="1h", on_error=spelling)
    world.pass_time("1h", step="1h")
    cursor = world.schedule.next_fire_at
    (died,) = world.running
    world.end(died, "failed")
    (retry,) = world.runs("waiting")
    assert retry.due_at == world.clock.after("1m")
    assert (retry.retry_of, retry.occurrence) == (died.id, died.occurrence)
    assert world.schedule.next_fire_at == cursor
    assert outcomes(world) == ["fired"]
    world.pass_time("1m")
    world.end(world.running[0], "failed")
    assert world.runs("waiting")[0].due_at == world.clock.after("2m")
    world.pass_time("2m")
    world.end(world.running[0])
    assert not world.runs("waiting")


def test_on_error_retry_never_goes_past_the_next_occurrence(world: World) -> None:
    world.put(expr="1m", on_error="retry", overlap="allow")
    world.pass_time("1m")
    world.end(world.running[0], "failed")
    assert not world.runs("waiting"), "the next occurrence comes in a minute anyway"


@pytest.mark.parametrize("spelling", ["pause", "pause_sched"])
def test_on_error_pause_pauses_with_the_reason(world: World, spelling: str) -> None:
    world.put(on_error=spelling)
    world.pass_time("1m")
    died = world.running[0]
    world.end(died, "failed")
    paused = world.schedule
    assert (paused.paused, paused.paused_by) == (True, "rota")
    assert died.id in str(paused.paused_reason)
    assert world.control.changes("s")[0]["action"] == "pause"
    world.pass_time("5m")
    assert len(world.runs()) == 1


def test_pause_after_counts_deaths_in_a_row_and_a_success_resets(world: World) -> None:
    world.put(on_error="next", pause_after=3)
    for kind in ("failed", "failed", "succeeded", "failed", "failed"):
        world.pass_time("1m")
        world.end(world.running[0], kind)
        assert not world.schedule.paused
    world.pass_time("1m")
    world.end(world.running[0], "failed")
    assert "3 runs in a row died" in str(world.schedule.paused_reason)


def test_a_run_an_operator_asked_for_does_not_concern_the_schedule(world: World) -> None:
    world.put(on_error="pause")
    world.control.trigger("s")
    (run,) = world.look()
    world.end(run, "failed")
    assert not world.schedule.paused
    assert outcomes(world) == []


# Pause, resume, edit, drop, restart


def test_a_pause_survives_a_restart_and_resume_brings_no_stale_burst(world: World) -> None:
    world.put(catch_up="all", overlap="allow")
    world.pass_time("2m")
    world.control.pause("s", "maintenance")
    world.restart()
    world.pass_time("10m")
    assert len(world.runs()) == 2
    resumed = world.control.resume("s")
    assert resumed.next_fire_at == world.clock.after("1m")
    world.look()
    assert len(world.runs()) == 2
    world.pass_time("1m")
    assert outcomes(world) == ["fired"] * 2 + ["missed"] * 10 + ["fired"]


@pytest.mark.parametrize(
    ("catch_up", "runs", "expected"),
    [("one", 1, ["fired"] + ["coalesced"] * 9), ("all", 10, ["fired"] * 10)],
)
def test_resume_makes_up_for_what_was_missed_only_if_asked(
    world: World, catch_up: str, runs: int, expected: list[str]
) -> None:
    world.put(overlap="allow", catch_up="none")
    world.control.pause("s")
    world.pass_time("10m")
    world.control.resume("s", catch_up=catch_up)
    assert len(world.runs()) == runs
    assert outcomes(world) == expected
    world.pass_time("1m")
    assert outcomes(world)[-1] == "fired"


def test_a_paused_once_past_its_time_is_marked_missed_and_says_so(world: World) -> None:
    world.put(kind="once", expr=world.clock.after("1m").isoformat())
    world.control.pause("s")
    world.pass_time("5m")
    resumed = world.control.resume("s")
    assert resumed.status == "FINISHED"
    assert "marked missed" in str(resumed.state)
    assert outcomes(world) == ["missed"]
    assert not world.runs()


def test_a_once_stays_as_a_finished_row(world: World) -> None:
    world.put(kind="once", expr=world.clock.after("1m").isoformat())
    world.pass_time("3m")
    assert world.schedule.status == "FINISHED"
    assert outcomes(world) == ["fired"]


def test_drop_leaves_the_runs_that_were_made(world: World) -> None:
    schedule = world.put(overlap="queue")
    world.pass_time("3m")
    world.control.drop("s", "no longer needed")
    with pytest.raises(Unknown):
        world.store.read(operations.schedule_named, "s")
    assert [run.state for run in world.runs()] == ["running", "held", "held"]
    while world.running:
        world.end(world.running[0], "failed")
        world.look()
    assert [run.state for run in world.runs()] == ["dead"] * 3
    rows = world.store.read(
        operations.list_occurrences, schedule.id, before=WAITING_FOR_RUN, limit=10
    )
    assert [row["outcome"] for row in rows] == ["fired"] * 3


def test_an_edit_fires_nothing_of_the_past_and_never_unpauses(world: World) -> None:
    made = world.put(kind="cron", expr="0 0 * * *")
    world.control.pause("s", "mine")
    world.clock.advance("6h")
    edited = world.store.write(operations.put_schedule, replace(made, expr="0 * * * *"), ME)
    assert edited.paused
    assert edited.next_fire_at == world.clock.after("1h")
    world.control.resume("s")
    world.look()
    assert not world.runs()


def test_an_edit_that_is_not_about_time_keeps_the_cursor(world: World) -> None:
    made = world.put(expr="1h")
    world.clock.advance("30m")
    edited = world.store.write(
        operations.put_schedule, replace(made, overlap="skip", args={"a": 1}), ME
    )
    assert edited.next_fire_at == made.next_fire_at
    assert (
        world.store.write(operations.put_schedule, replace(made, overlap="skip", args={"a": 1}), ME)
        == edited
    )
    assert [row["action"] for row in world.control.changes("s")] == ["alter", "create"]


def test_disabling_stops_fires_only_and_enabling_counts_as_resume(world: World) -> None:
    made = world.put(overlap="queue")
    world.pass_time("2m")
    world.store.write(operations.put_schedule, replace(made, enabled=False), ME)
    world.pass_time("5m")
    assert [run.state for run in world.runs()] == ["running", "held"]
    world.end(world.running[0])
    assert len(world.look()) == 1, "queued runs still run"
    world.store.write(operations.put_schedule, made, ME)
    world.look()
    assert outcomes(world) == ["fired"] * 2 + ["missed"] * 5


def test_a_weekly_schedule_fires_though_every_day_has_a_restart(world: World) -> None:
    world.put(kind="cron", expr="0 3 * * MON", overlap="allow")
    for _ in range(28):
        world.clock.advance("1d")
        world.restart()
        world.store.write(
            operations.put_schedule,
            Schedule(name="s", job="job", kind="cron", expr="0 3 * * MON", overlap="allow"),
            ME,
        )
        world.look()
    assert outcomes(world) == ["fired"] * 4
    assert len(world.runs()) == 4


def test_a_delay_schedule_counts_from_the_end_of_each_run(world: World) -> None:
    world.put(expr="10m", anchor="delay", overlap="wait")
    world.pass_time("10m")
    assert world.schedule.next_fire_at == WAITING_FOR_RUN
    world.pass_time("30m")
    assert len(world.runs()) == 1
    world.end(world.running[0])
    assert world.schedule.next_fire_at == world.clock.after("10m")
    world.pass_time("10m")
    assert len(world.runs()) == 2


@pytest.mark.parametrize("over", ["ended", "cancelled", "deleted", "stranded", "skipped"])
def test_a_delay_schedule_that_passes_its_end_says_that_it_is_finished(
    world: World, over: str
) -> None:
    overlap = "skip" if over == "skipped" else "wait"
    world.put(
        expr="10m",
        anchor="delay",
        overlap=overlap,
        overlap_key="k",
        ends_at=world.clock.after("15m"),
    )
    if over == "skipped":
        other = Schedule(
            name="other", job="job", kind="every", expr="5m", overlap="skip", overlap_key="k"
        )
        world.store.write(operations.put_schedule, other, ME)
    world.pass_time("9m")
    world.clock.advance("1m")
    world.fire.step()
    match over:
        case "ended":
            world.end(*world.look())
        case "cancelled":
            world.control.cancel(world.runs()[0].id)
        case "deleted":
            world.control.delete(world.runs()[0].id)
        case "stranded":
            assert world.schedule.next_fire_at == WAITING_FOR_RUN
            world.place.execute(f"DELETE FROM {world.place.table('runs')}")
            sweep(world.store, 100)
    for _ in range(2):
        assert (world.schedule.next_fire_at, world.schedule.status) == (None, "FINISHED")
        changes = world.store.read(
            operations.list_schedule_changes, world.schedule.id, before=10**9, limit=9
        )
        assert [(row["action"], row["by"]) for row in changes] == [
            ("finish", "rota"), ("create", ME.by),
        ]  # fmt: skip
        assert changes[0]["reason"] == "no occurrence is left"
        finished = [one for one in world.control.audit() if one["action"] == "finish_schedule"]
        assert [one["thing"] for one in finished] == ["s"]
        world.pass_time("10m")
        sweep(world.store, 100)


def test_first_run_starts_at_and_ends_at_bound_a_schedule(world: World) -> None:
    first = world.clock.after("5m")
    world.put(expr="10m", first_run=first, ends_at=world.clock.after("30m"), overlap="allow")
    world.pass_time("1h")
    assert [run.occurrence for run in world.runs()] == [
        first, first + 10 * MINUTE, first + 20 * MINUTE,
    ]  # fmt: skip
    assert world.schedule.status == "FINISHED"


def test_jitter_and_spread_delay_the_run_and_not_the_occurrence(world: World) -> None:
    world.put(expr="1h", spread="10m", jitter="1m", overlap="allow")
    world.pass_time("3h", step="1h")
    offsets = [run.due_at - run.occurrence for run in world.runs() if run.occurrence]
    assert all(timedelta(0) < offset < timedelta(minutes=11) for offset in offsets)
    assert max(offsets) - min(offsets) < MINUTE, "the spread of one schedule is stable"


def test_pause_resume_and_cancel_the_runs_of_one_schedule(world: World) -> None:
    world.put(overlap="queue")
    other = world.store.write(
        operations.put_schedule,
        Schedule(name="other", job="job", kind="every", expr="1m", overlap="queue"),
        ME,
    )
    world.pass_time("3m")
    assert world.control.pause_runs("s", "hold on") == 3
    states = [run.state for run in world.runs() if run.schedule_id == world.schedule.id]
    assert states == ["running", "paused", "paused"]
    assert world.control.resume_runs("s") == 2
    world.look()
    assert world.control.cancel_runs("s", "enough") == 3
    for run in list(world.running):
        if run.schedule_id == world.schedule.id:
            world.end(run, "failed")
    mine = [run.state for run in world.runs() if run.schedule_id == world.schedule.id]
    theirs = [run.state for run in world.runs() if run.schedule_id == other.id]
    assert mine == ["cancelled"] * 3
    assert theirs == ["running", "held", "held"]


def test_one_bad_schedule_among_many_delays_nobody(world: World) -> None:
    # To make a schedule takes DuckDB thirty times as long as SQLite.
    many = 100 if world.store.engine.name == "duckdb" else 1_000
    for number in range(many):
        world.store.write(
            operations.put_schedule,
            Schedule(name=f"s{number}", job="job", kind="every", expr="1m", overlap="allow"),
            ME,
        )
    unknown = Schedule(name="unknown", job="nobody", kind="every", expr="1m", overlap="allow")
    world.store.write(operations.put_schedule, unknown, ME)
    _corrupt(world.store, "s7")
    world.pass_time("1m")
    assert len(world.running) == many - 1
    assert world.control.overview()["schedules"]["broken"] == 1
    waiting = world.store.read(operations.list_runs, job="nobody", limit=9)
    assert [run.state for run in waiting] == ["queued"]
    assert any("not registered" in why for why in world.control.explain("unknown").reasons)


def _corrupt(store: Store, name: str) -> None:
    table = f"{store.engine.prefix}schedules"  # type: ignore[attr-defined]
    change = f"UPDATE {table} SET expr = 'garbage' WHERE name = :name"
    store.engine.write("corrupt", lambda tx: tx.text(change, {"name": name}))


def test_old_ledger_rows_are_folded_and_never_past_the_cursor(world: World) -> None:
    schedule = world.put(overlap="allow")
    world.pass_time("30m")
    before = outcomes(world)
    saved = world.store.write(
        operations.fold_ledger, schedule.id, age_seconds=1e9, keep_rows=10, limit=500
    )
    rows = world.store.read(
        operations.list_occurrences, schedule.id, before=WAITING_FOR_RUN, limit=500
    )
    assert saved > 0
    assert len(rows) == 30 - saved
    assert outcomes(world) == before
    assert (
        world.store.write(
            operations.fold_ledger, schedule.id, age_seconds=1e9, keep_rows=10, limit=500
        )
        == 0
    )
    world.clock.advance("365d")
    world.store.write(
        operations.fold_ledger, schedule.id, age_seconds=86400, keep_rows=10_000, limit=500
    )
    rows = world.store.read(
        operations.list_occurrences, schedule.id, before=WAITING_FOR_RUN, limit=500
    )
    assert [row["count"] for row in rows] == [30]


def test_a_store_in_another_place_pauses_its_schedules_until_adopted(world: World) -> None:
    world.put()
    # On PostgreSQL the test's database is a copy of another one, so the guard has seen a move.
    adopt(world.store, "blue", ME)
    assert check_home(world.store, "blue") is None
    reason = check_home(world.store, "green")
    assert "cluster was blue, is green" in str(reason)
    assert world.schedule.paused_reason == reason
    world.pass_time("5m")
    assert not world.runs()
    assert adopt(world.store, "green", ME) == 1
    assert not world.schedule.paused
    assert check_home(world.store, "green") is None
    world.pass_time("1m")
    assert len(world.runs()) == 1


@pytest.mark.parametrize(
    ("options", "runs", "expected"),
    [
        ({"overlap": "wait"}, 2, ["fired"] * 2 + ["coalesced"] * 3),
        ({"overlap": "queue", "queue_max": 1}, 2, ["fired"] * 2 + ["dropped"] * 3),
    ],
)
def test_runs_that_wait_for_their_spread_are_in_line(
    world: World, options: dict[str, object], runs: int, expected: list[str]
) -> None:
    world.put(expr="10s", spread="100m", jitter="10m", **options)
    world.pass_time("50s", step="10s")
    assert len(world.runs()) == runs
    assert outcomes(world) == expected


def test_nobody_passes_a_run_whose_spread_is_over_and_that_is_not_promoted_yet(
    world: World,
) -> None:
    """All processes slept over its instant, and the one that wakes fires first."""
    world.put(expr="10s", spread="9s", overlap="queue")
    world.pass_time("20s", step="1s")
    (first,), (second,) = world.running, world.runs("waiting")
    world.end(first)
    world.clock.advance("11s")
    world.fire.step()
    (claimed,) = world.look()
    assert claimed.id == second.id


def test_a_broken_row_can_be_seen_edited_and_dropped(world: World) -> None:
    made = world.put()
    _corrupt(world.store, "s")
    assert world.schedule.status == "BROKEN"
    assert [one.name for one in world.control.schedules()] == ["s"]
    assert "garbage" in world.control.explain("s").reasons[0]
    world.control.pause("s", "look at it")
    mended = world.store.write(operations.put_schedule, made, ME)
    assert (mended.error, mended.status) == (None, "PAUSED")
    _corrupt(world.store, "s")
    world.control.drop("s")
    with pytest.raises(Unknown):
        world.control.schedule("s")


def test_saving_a_parked_schedule_again_heals_it(world: World) -> None:
    made = world.put()
    assert made.next_fire_at is not None
    world.store.write(
        operations.disable_broken_schedules,
        [Broken(made.id, made.next_fire_at, made.revision, "cannot be planned: a bug")],
    )
    assert world.schedule.status == "BROKEN"
    healed = world.store.write(operations.put_schedule, made, ME)
    assert (healed.status, healed.next_fire_at) == ("ACTIVE", world.clock.after("1m"))


@pytest.mark.parametrize(
    ("catch_up", "runs", "counts"),
    [("one", 1, [1, None]), ("none", 13, [None, *[1] * 13]), ("all", 100, [1] * 100)],
)
def test_two_weeks_down_with_a_five_second_schedule_stay_bounded(
    world: World, catch_up: str, runs: int, counts: list[int | None]
) -> None:
    schedule = world.put("cron", "*/5 * * * * *", overlap="allow", catch_up=catch_up)
    world.clock.advance("14d")
    world.fire.step()
    rows = world.store.read(
        operations.list_occurrences, schedule.id, before=WAITING_FOR_RUN, limit=500
    )[::-1]
    assert len(world.runs()) == runs
    assert [row["count"] for row in rows] == counts
    # What was too much to count inside fire is counted afterwards.
    while count_uncounted(world.store):
        pass
    rows = world.store.read(
        operations.list_occurrences, schedule.id, before=WAITING_FOR_RUN, limit=500
    )
    total = 14 * 24 * 3600 // 5
    if catch_up == "all":
        assert sum(row["count"] for row in rows) == 100
    else:
        assert sum(row["count"] for row in rows) == total
    if catch_up == "one":
        assert world.runs()[0].missed_count == total


@pytest.mark.parametrize(
    ("paused", "reason"),
    [
        (False, "the timing was changed before it fired"),
        (True, "the schedule was paused or disabled"),
    ],
)
def test_an_edit_records_what_was_due_and_had_not_fired(
    world: World, paused: bool, reason: str
) -> None:
    made = world.put()
    if paused:
        world.store.write(operations.pause_schedule, made.name, None, ME)
    world.clock.advance("3m")  # nobody looked meanwhile
    world.store.write(operations.put_schedule, replace(made, expr="1h"), ME)
    if paused:
        world.store.write(operations.resume_schedule, made.name, None, ME)
    rows = world.store.read(operations.list_occurrences, made.id, before=WAITING_FOR_RUN, limit=9)
    assert [(row["outcome"], row["count"], row["reason"]) for row in rows] == [
        ("missed", 3, reason)
    ]


def test_a_long_catch_up_keeps_nobody_waiting_that_is_on_time(world: World) -> None:
    for number in range(8):
        late = Schedule(name=f"late-{number}", job="job", kind="every", expr="1m", catch_up="all")
        world.store.write(operations.put_schedule, late, ME)
    world.clock.advance("1d")
    world.put()
    world.clock.advance("1m")
    fire = Fire(world.store, monotonic=lambda: 0.0, fired=lambda: None, batch=4)
    fire.step()
    fire.step()
    assert world.schedule.last_fired_at == world.clock()


# Planned a moment before


def ahead(world: World, max_fires_per_tick: int = 0) -> Fire:
    return Fire(
        world.store,
        monotonic=lambda: world.clock().timestamp(),
        fired=lambda: None,
        look_ahead=0.02,
        pace=3600.0,
        max_fires_per_tick=max_fires_per_tick,
    )


def test_who_is_behind_does_not_plan_ahead(world: World) -> None:
    """What is due in a moment is newer than what is due, and must not be taken for it."""
    for name, first in (("late", "10s"), ("later", "20s"), ("soon", "30.01s")):
        begin = world.clock.after(first)
        world.store.write(
            operations.put_schedule,
            Schedule(name=name, job="job", kind="every", expr="1h", first_run=begin),
            ME,
        )
    world.clock.advance("30s")
    fire = ahead(world)
    fire.batch = 1
    assert [fire.step(), fire.step()] == [0.0, 0.0]
    assert len(world.runs()) == 2


def test_a_schedule_that_somebody_holds_is_tried_again_without_haste(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put()
    world.clock.advance("1m")
    fire = Fire(world.store, monotonic=lambda: 0.0, fired=lambda: None)
    with monkeypatch.context() as patch:
        replace_operation(patch, world.store, operations.fire, lambda *asked: NOTHING_FIRED)
        assert fire.step() == REFUSED_PAUSE
    fire.step()
    assert len(world.runs()) == 1


def test_what_is_planned_ahead_fires_at_its_instant_and_not_before(world: World) -> None:
    world.put()
    fire = ahead(world)
    assert 59.9 < fire.step() < 60  # wakes a moment before
    world.clock.advance("59.99s")
    assert 0 < fire.step() <= 0.009
    world.clock.advance("8ms")
    assert 0 < fire.step() <= 0.003  # asks for the time once more
    fire.step()  # woken too early: nothing yet
    assert world.runs() == []
    world.clock.advance("2ms")
    assert fire.step() == 0.0
    fire.step()
    assert [run.occurrence for run in world.runs()] == [world.clock()]
    assert [run.state for run in world.runs()] == ["queued"]


@pytest.mark.parametrize(("most", "told"), [(0, ["here"]), (1, ["here", "elsewhere"])])
def test_who_is_here_begins_what_is_on_time_before_others_are_told(
    world: World, most: int, told: list[str]
) -> None:
    """A limited tick rests for longer than others may wait."""
    world.put()
    heard: list[str] = []
    fire = ahead(world, max_fires_per_tick=most)
    fire.fired, fire.tell = lambda: heard.append("here"), lambda: heard.append("elsewhere")
    world.clock.advance("59.99s")
    fire.step()
    world.clock.advance("10ms")
    assert fire.step() == 0.0  # it is time
    assert 0 < fire.step() <= 1
    assert heard == told
    fire.step()
    assert heard == ["here", "elsewhere"]
    world.clock.advance("61s")
    fire.step()  # late: nobody waits for anybody
    assert heard == ["here", "elsewhere"] * 2


def test_a_tick_that_was_planned_ahead_fires_no_more_than_it_may(world: World) -> None:
    for number in range(5):
        world.store.write(
            operations.put_schedule,
            Schedule(name=f"s{number}", job="job", kind="every", expr="1m"),
            ME,
        )
    fire = ahead(world, max_fires_per_tick=2)
    world.clock.advance("59.99s")
    fire.step()
    world.clock.advance("10ms")
    assert fire.step() == 0.0  # it is time
    assert fire.step() == 1.0
    assert len(world.runs()) == 2
    world.clock.advance("400ms")
    assert 0 < fire.step() < 1, "woken, and still at rest"
    assert len(world.runs()) == 2
    world.clock.advance("600ms")
    assert fire.step() == 1.0
    assert len(world.runs()) == 4
    assert 0 < fire.step() <= 1
    assert len(world.runs()) == 4


def test_a_clock_that_was_set_back_after_planning_ahead_is_looked_at_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put()
    fire = ahead(world)
    fire.pace = 60.0
    world.clock.advance("59.99s")
    earlier = world.clock() - timedelta(hours=1)
    assert 0 < fire.step() <= 0.009
    monkeypatch.setattr(world.store, "now", lambda: earlier)
    assert fire.step() <= fire.pace


def test_a_plan_made_ahead_that_nobody_came_to_carry_out_is_made_again(world: World) -> None:
    """The process slept, or was kept: what the plan says is no longer true of what is due."""
    world.put()
    fire = ahead(world)
    world.clock.advance("59.99s")
    fire.step()
    world.clock.advance("2m")
    while fire.step() == 0.0:
        pass
    (run,) = world.runs()
    assert run.missed_count == 2


@pytest.mark.parametrize("change", ["pause", "edit", "drop"])
def test_a_change_after_planning_ahead_wins(world: World, change: str) -> None:
    made = world.put()
    fire = ahead(world)
    world.clock.advance("59.99s")
    fire.step()
    match change:
        case "pause":
            world.store.write(operations.pause_schedule, "s", None, ME)
        case "edit":
            world.store.write(operations.put_schedule, replace(made, expr="1h"), ME)
        case "drop":
            world.store.write(operations.drop_schedule, "s", None, ME)
    world.clock.advance("10ms")
    assert fire.step() == 0.0  # it is time
    fire.step()
    assert world.runs() == []
