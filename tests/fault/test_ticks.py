"""Two processes, many schedules of one second, and SIGKILL: one run per schedule and second."""

import random
import threading
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from rota.model.limits import PAGE
from rota.model.run import occurrence_id
from rota.model.schedule import WAITING_FOR_RUN
from rota.storage import operations
from rota.storage.store import Store, open_store
from tests.fault.harness import Process, processes


def fired(store: Store, schedule_id: int) -> list[datetime]:
    """Every occurrence in the ledger, in order; each must be fired and have its own run."""
    found: list[datetime] = []
    before = WAITING_FOR_RUN
    while rows := store.read(operations.list_occurrences, schedule_id, before=before, limit=PAGE):
        for row in rows:
            assert (row["outcome"], row["count"]) == ("fired", 1)
            assert row["run_id"] == occurrence_id(schedule_id, row["occurrence"])
        found += [row["occurrence"] for row in rows]
        before = rows[-1]["occurrence"]
    return found[::-1]


def count_runs(store: Store, schedule_id: int) -> int:
    total, before = 0, None
    while runs := store.read(
        operations.list_runs, schedule_id=schedule_id, before=before, limit=PAGE
    ):
        total, before = total + len(runs), runs[-1].seq
    return total


def tick(store: Store, database: str, *, schedules: int, seconds: float, kills: int) -> None:
    over = threading.Event()  # never set: a wait that keeps the time between kills
    with processes("ticks", database, 2, ROTA_TEST_SCHEDULES=str(schedules)) as running:
        luck = random.Random(7)
        pauses = seconds / (2 * kills + 1)
        wait_for_ticks(running)
        over.wait(pauses)
        for victim in luck.sample(running * kills, 2 * kills):
            victim.kill()
            victim.start()
            over.wait(pauses)
        wait_for_ticks(running)  # whoever has just been born would not hear that it is to stop
        codes = [process.stop() for process in running]
    assert codes == [0, 0]
    check(store, schedules)


def wait_for_ticks(running: list[Process]) -> None:
    """Until each of them has had a run, since it was started last."""
    for process in running:
        process.wait_line("tick", process.popen.pid)


def check(store: Store, schedules: int) -> None:
    expected = {f"tick-{number}" for number in range(schedules)}
    saved = {one.name: one for one in store.read(operations.list_schedules, limit=PAGE)}
    assert set(saved) == expected
    for schedule in saved.values():
        occurrences = fired(store, schedule.id)
        assert occurrences, schedule.name
        # One a second, from the first to the cursor, without a hole.
        steps = {later - earlier for earlier, later in pairwise(occurrences)}
        assert steps <= {timedelta(seconds=1)}, schedule.name
        assert schedule.next_fire_at == occurrences[-1] + timedelta(seconds=1)
        assert count_runs(store, schedule.id) == len(occurrences)


def test_each_second_gets_exactly_one_run_though_processes_are_killed(
    store: Store, database: str
) -> None:
    tick(store, database, schedules=100, seconds=14, kills=2)


@pytest.mark.long
def test_a_minute_of_ticks_with_five_kills_of_each_process(store: Store, database: str) -> None:
    tick(store, database, schedules=200, seconds=60, kills=5)


# One process has a DuckDB file: the next one opens it when the one before is dead.
@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.long)])
def test_each_second_gets_exactly_one_run_though_the_only_process_is_killed(
    tmp_path: Path, kills: int
) -> None:
    database, schedules = f"duckdb:///{tmp_path}/rota.duckdb", 20
    over = threading.Event()  # never set: a wait that keeps the time between kills
    luck = random.Random(7)
    with processes("ticks", database, 1, ROTA_TEST_SCHEDULES=str(schedules)) as (process,):
        wait_for_ticks([process])
        for _ in range(kills):
            over.wait(luck.uniform(1, 4))
            process.kill()
            process.start()
        wait_for_ticks([process])
        assert process.stop() == 0
    store = open_store(database)
    store.check_schema()
    check(store, schedules)
    store.close()
