"""Schedules from Python: defined by a decorator or by name, fired in real and in owned time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

import rota
from rota.storage import operations
from tests.api.support import PATIENCE, Driven, Watch, wait_until
from tests.support.operations import replace_operation


def fired(driven: Driven, name: str) -> list[datetime]:
    return [row["occurrence"] for row in reversed(driven.control.occurrences(name))]


@pytest.mark.each_engine
def test_a_decorated_job_runs_on_its_schedule(driven: Driven) -> None:
    seen: list[datetime] = []

    @driven.app.job(schedule="0 3 * * *", timezone="Europe/Berlin")
    def rollup(ctx: rota.Context) -> None:
        seen.append(ctx.scheduled_at)

    driven.app.load()
    driven.advance("3 days")
    assert seen == [datetime(2026, 1, day, 2, tzinfo=UTC) for day in (1, 2, 3)]
    (schedule,) = driven.control.schedules()
    assert (schedule.name, schedule.job, schedule.overlap) == ("rollup", "rollup", "skip")
    assert schedule.slot == "job rollup"
    assert schedule.next_fire_at == datetime(2026, 1, 4, 2, tzinfo=UTC)
    assert fired(driven, "rollup") == seen


def test_every_and_at_are_schedules_too(driven: Driven) -> None:
    @driven.app.job(every="20m")
    def often() -> None: ...

    @driven.app.job(at="2026-01-01T00:30:00Z")
    def once() -> None: ...

    driven.app.load()
    driven.advance("2 hours")
    assert len(driven.app.runs("often")) == 6
    assert len(driven.app.runs("once")) == 1
    assert driven.control.schedule("once").next_fire_at is None


def test_schedule_false_is_a_job_on_demand_as_in_files(driven: Driven) -> None:
    @driven.app.job(schedule=False)
    def work() -> None: ...

    driven.app.load()
    assert driven.app.control.schedules() == []
    assert driven.app.enqueue("work").created


def test_an_option_without_effect_is_logged(
    driven: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    @driven.app.job(every="1h", queue_max=3)
    def work() -> None: ...

    assert "schedule work: queue_max has no effect with overlap = skip" in caplog.text
    caplog.clear()
    driven.app.schedule("more", job="work", every="1h", overlap="queue", queue_max=3)
    assert caplog.text == ""


def test_a_new_instant_that_has_passed_fires_at_once(driven: Driven) -> None:
    @driven.app.job(at="2025-12-01T00:00Z")
    def work() -> None: ...

    driven.app.schedule("late", job="work", at="2025-12-01T00:00Z", catch_up="none")
    driven.app.load()
    driven.advance("1 minute")
    assert fired(driven, "work") == [datetime(2025, 12, 1, tzinfo=UTC)]
    assert [run.state for run in driven.control.runs(job="work")] == ["succeeded"]
    assert [row["outcome"] for row in driven.control.occurrences("late")] == ["missed"]


def test_a_job_may_have_many_schedules_with_their_own_arguments(driven: Driven) -> None:
    @driven.app.job()
    def sync(shop: str) -> str:
        return shop

    driven.app.schedule("north", job="sync", every="1h", args={"shop": "north"})
    driven.app.schedule("south", job="sync", cron="30 * * * *", args={"shop": "south"}, priority=5)
    driven.app.load()
    driven.advance("1 hour")
    assert {run.result for run in driven.app.runs("sync")} == {'"north"', '"south"'}
    (south,) = driven.control.runs(schedule="south")
    assert (south.priority, south.created_by) == (5, "schedule south")


def test_a_retry_policy_of_a_schedule_wins_over_its_jobs(driven: Driven) -> None:
    @driven.app.job(max_attempts=1)
    def fail() -> None:
        raise ValueError("no")

    driven.app.schedule(
        "stubborn", job="fail", every="1h", retry={"max_attempts": 3, "delay": "10s"}
    )
    driven.app.load()
    driven.advance("1 hour")
    driven.advance("1 minute")
    (run,) = driven.app.runs("fail")
    assert (run.state, run.attempt) == ("dead", 3)


def test_the_same_definition_changes_nothing(make_app: Callable[..., rota.Rota]) -> None:
    def define(every: str = "1h") -> rota.Rota:
        app = make_app()

        @app.job(every=every)
        def tick() -> None: ...

        app.load()
        return app

    first = define().control.schedule("tick")
    again = define()
    assert again.control.schedule("tick") == first
    assert [row["action"] for row in again.control.changes("tick")] == ["create"]
    changed = define("2h").control.schedule("tick")
    assert (changed.id, changed.expr) == (first.id, "2h")


def test_a_deploy_never_undoes_an_operators_pause(make_app: Callable[..., rota.Rota]) -> None:
    app = make_app()

    @app.job(every="1h")
    def tick() -> None: ...

    app.control.pause("tick", "incident")
    deployed = make_app()
    deployed.schedule("tick", job="tick", every="5m", overlap="skip", overlap_key="job tick")
    deployed.load()
    schedule = deployed.control.schedule("tick")
    assert (schedule.paused, schedule.expr, schedule.paused_reason) == (True, "5m", "incident")


def test_a_schedule_may_be_defined_again_before_and_after_it_is_saved(driven: Driven) -> None:
    @driven.app.job()
    def sync() -> None: ...

    driven.app.schedule("s", job="sync", every="1h")
    driven.app.schedule("s", job="sync", every="2h")
    driven.app.load()
    assert driven.control.schedule("s").expr == "2h"
    driven.app.schedule("s", job="sync", every="3h")
    driven.app.load()
    assert driven.control.schedule("s").expr == "3h"


def test_a_schedule_made_while_the_app_runs_fires(app: rota.Rota, watch: Watch) -> None:
    ran = threading.Event()

    @app.job()
    def tick() -> None:
        ran.set()

    app.start()
    app.schedule("soon", job="tick", every="200ms")
    assert ran.wait(PATIENCE)
    wait_until(lambda: len(app.runs("tick")) >= 2, "the second occurrence")
    runs = app.runs("tick")  # once: it goes on firing
    assert len({run.occurrence for run in runs}) == len(runs)


def test_a_schedule_that_could_not_be_saved_leaves_the_one_before_as_it_was(
    app: rota.Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.job("tick", max_attempts=2)(lambda: None)
    app.schedule("s", job="tick", every="1h", max_attempts=5, delay="7s")
    app.start()
    before = app.control.schedule("s")

    def away(*told: object) -> None:
        raise rota.StorageError("the database is away")

    with monkeypatch.context() as broken:
        replace_operation(broken, app.storage, operations.register_schedule, away)
        for name in ("s", "other"):
            with pytest.raises(rota.StorageError, match="away"):
                app.schedule(name, job="tick", every="2h", max_attempts=9, delay="1s")
    app.enqueue("tick")  # saves what is not saved
    assert app.control.schedule("s") == before
    assert [row["action"] for row in app.control.changes("s")] == ["create"]
    assert [one.name for one in app.control.schedules()] == ["s"]
    app.schedule("other", job="tick", every="2h")  # nothing of the refused one is left in it
    assert app.storage.read(operations.schedule_named, "other").retry is None


def test_a_schedule_whose_save_was_half_done_is_put_back(
    app: rota.Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.job("tick")(lambda: None)
    app.schedule("s", job="tick", every="1h")
    app.start()

    def away() -> None:
        raise rota.StorageError("the database is away")

    with monkeypatch.context() as broken:
        broken.setattr(app.storage, "notify", away)
        with pytest.raises(rota.StorageError, match="away"):
            app.schedule("s", job="tick", every="2h")
    app.enqueue("tick")
    assert app.control.schedule("s").expr == "1h"


@pytest.mark.each_engine
def test_two_started_apps_fire_each_occurrence_once(make_app: Callable[..., rota.Rota]) -> None:
    ticks: list[datetime] = []
    apps = [make_app() for _ in range(2)]
    for app in apps:

        @app.job(every="100ms", overlap="allow")
        def tick(ctx: rota.Context) -> None:
            ticks.append(ctx.scheduled_at)

        app.load()
    for app in apps:
        app.start()
    wait_until(lambda: len(ticks) >= 10, "ten ticks")
    for app in apps:
        app.stop()
    assert len(ticks) == len(set(ticks))


def test_a_delay_schedule_counts_from_the_end_of_its_run(driven: Driven) -> None:
    @driven.app.job(every="10m", anchor="delay")
    def slow() -> None:
        driven.clock.advance("7m")

    driven.app.load()
    driven.advance("1 hour")
    occurrences = fired(driven, "slow")
    gaps = {late - early for early, late in pairwise(occurrences)}
    assert gaps == {timedelta(minutes=17)}


def test_defaults_of_the_settings_reach_a_schedule(make_app: Callable[..., rota.Rota]) -> None:
    app = make_app(timezone="Asia/Tokyo")

    @app.job(schedule="0 3 * * *")
    def rollup() -> None: ...

    assert app.control.schedule("rollup").timezone == "Asia/Tokyo"


def test_missed_occurrences_become_one_run(driven: Driven) -> None:
    missed: list[int] = []

    @driven.app.job(every="1h", catch_up="one")
    def tick(ctx: rota.Context) -> None:
        missed.append(ctx.missed_count)

    driven.app.load()
    driven.clock.advance("5h")
    driven.drain()
    assert missed == [5]
    ledger: list[Any] = driven.control.occurrences("tick")
    assert sorted((row["outcome"], row["count"]) for row in ledger) == [
        ("coalesced", 4),
        ("fired", 1),
    ]


@pytest.mark.parametrize("part", ["scheduler", "worker"])
def test_a_process_may_run_only_a_part(make_app: Callable[..., rota.Rota], part: str) -> None:
    app = make_app()
    watch = Watch(app)

    @app.job()
    def note() -> None: ...

    app.schedule("soon", job="note", every="100ms", overlap="queue")
    queued = app.enqueue("note")
    app.start(only=[part])
    if part == "worker":
        assert watch.end(queued.id).state == "succeeded"
        assert app.control.occurrences("soon") == []
    else:
        wait_until(lambda: app.control.occurrences("soon"), "a fire")
        assert {run.state for run in app.runs("note")} <= {"queued", "held"}
        assert app.control.workers() == []


def test_retries_of_a_schedule_are_refused_by_name(driven: Driven) -> None:
    driven.app.job("tick")(lambda: None)
    for told, message in {
        ("max_attempt",): "option 'max_attempt' is unknown; did you mean 'max_attempts'",
        ("retry", "tries"): "retry 'tries' is unknown; use max_attempts, backoff",
        ("retry", "jiter"): "retry 'jiter' is unknown; did you mean",
    }.items():
        options: dict[str, Any] = {told[0]: 3} if len(told) == 1 else {told[0]: {told[1]: 3}}
        with pytest.raises(rota.Invalid, match=f"schedule 's': {message}"):
            driven.app.schedule("s", job="tick", every="1h", **options)
    with pytest.raises(rota.Invalid, match="delay is set twice, also in retry"):
        driven.app.schedule("s", job="tick", every="1h", delay="1s", retry={"delay": "2s"})


def test_what_a_schedule_does_not_say_of_retries_is_as_its_job_has_it(driven: Driven) -> None:
    """Also where the job is defined after it."""
    driven.app.schedule("early", job="tick", every="1h", max_attempts=7)
    driven.app.job("tick", delay="8m", backoff="exponential")(lambda: None)
    driven.app.schedule("late", job="tick", every="1h", retry={"max_attempts": 7})
    driven.app.load()
    for name in ("early", "late"):
        retry = driven.store.read(operations.schedule_named, name).retry
        assert retry is not None
        assert (retry.max_attempts, retry.backoff, retry.delay) == (
            7, "exponential", timedelta(minutes=8),
        )  # fmt: skip
    before = driven.store.read(operations.list_schedule_changes, 1, before=2**62, limit=9)
    driven.app.reload()
    assert driven.store.read(operations.list_schedule_changes, 1, before=2**62, limit=9) == before
