"""More parts of the campaign: cancels, deadlocks, clocks that are stepped, herds and backlogs."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

import rota
from tests.fault.campaign import PROCESSES, Campaign, Verdict, until
from tests.fault.history import read_rows
from tests.fault.notes import read_notes
from tests.fault.observer import Observer, connect

if TYPE_CHECKING:
    from tests.fault.bench import Bench

CANCELLERS = 4
BULK = 500
HANDLER_SECONDS = 0.1  # so that cancels meet runs in every state
# Past what a clock may be off without being doubted (30 s).
STEPS_SECONDS = (60.0, -60.0, 45.0, -90.0)
HERD = 300
BACKLOG = "12/1m"
DAY_MINUTES = 1_440
VICTIM_MILLISECONDS = 20
STRANGER_MILLISECONDS = 5_000
PATIENCE = 60.0
LOCK_SECONDS = 10.0  # for longer nobody of ours who is awake holds a lock, or waits for one
LONG_RUNS = 6  # at once, of all processes: one that is held has company in its own


def begin(campaign: Campaign, **told: Any) -> None:
    campaign.start(PROCESSES, **told)
    campaign.wait_note("up")
    campaign.pass_time(0.2, 0.5)


def enqueue_noted(
    campaign: Campaign, app: rota.Rota, count: int, *, seconds: float, doomed: bool = False
) -> list[str]:
    """Runs that a checker knows of; their ids."""
    asked, many = time.monotonic(), [{"seconds": seconds}] * count
    ids = [answer.id for answer in app._enqueue("plain", many, {}, None, True)]
    for one in ids:
        campaign.notebook.write(
            "acked", run=one, created=True, asked=asked, job="plain", doomed=doomed
        )
    return ids


# Cancels


def cancels(campaign: Campaign, times: int, bench: Bench) -> Verdict:
    """`times` runs are cancelled by several people at once while processes settle them."""
    begin(campaign, client=False)
    app = rota.Rota(campaign.database)
    ids: list[str] = []
    for first in range(0, times, BULK):
        many = min(BULK, times - first)
        ids += enqueue_noted(campaign, app, many, seconds=HANDLER_SECONDS, doomed=True)
    # Who is asked to end meets those who work: they have begun.
    until(lambda: bool(begun(campaign) & set(ids)), "somebody begins one of them", PATIENCE)
    campaign.luck.shuffle(ids)
    with ThreadPoolExecutor(CANCELLERS) as people:
        answers = dict(zip(ids, people.map(lambda one: _cancel(app, one), ids), strict=True))
    app.close()
    campaign.tally("cancel", times)
    verdict = campaign.finish()
    stored = {row["id"]: row["state"] for row in read_rows(campaign.observed)["runs"]}
    for run_id, state in answers.items():
        verdict.counts[f"answered {state}"] = verdict.counts.get(f"answered {state}", 0) + 1
        # What was cancelled may have been pruned by now; nothing else may.
        if stored.get(run_id, "cancelled") not in ENDS_OF[state]:
            verdict.violations.append(f"run {run_id}: a cancel was answered {state}, and then")
    return verdict


def begun(campaign: Campaign) -> set[str]:
    """Runs whose handler was called."""
    return {note["run"] for note in read_notes(campaign.notes) if note["what"] == "start"}


# A running run ends as its handler does if that does not look; what had ended stays as it was.
ENDS_OF = {
    "cancelled": {"cancelled"},
    "running": {"cancelled", "succeeded"},
    "ended": {"succeeded", "cancelled"},
}


def _cancel(app: rota.Rota, run_id: str) -> str:
    while True:
        try:
            return app.control.cancel(run_id).state
        except (rota.Conflict, rota.Unknown):
            return "ended"
        except rota.Unavailable:
            continue  # a store that is busy says so, and may be asked again


# Deadlocks


def deadlocks(campaign: Campaign, times: int, bench: Bench) -> Verdict:
    """A stranger locks rows in an order of his own; the server ends our transactions for it."""
    begin(campaign)
    with psycopg.connect(campaign.database, autocommit=True) as admin:
        name = admin.info.dbname
        # Who waits this long looks for a deadlock, and is the one to end: us.
        admin.execute(f'ALTER DATABASE "{name}" SET deadlock_timeout = {VICTIM_MILLISECONDS}')
        for place in range(PROCESSES):  # a setting is for sessions to come
            campaign.kill(place)
            campaign.start_at(place)
        campaign.pass_time(0.5, 1.0)
        met = 0
        for _ in range(1_000 * times):
            _lock_in_another_order(campaign)
            met = admin.execute(
                "SELECT deadlocks FROM pg_stat_database WHERE datname = %s", [name]
            ).fetchone()[0]  # type: ignore[index]
            campaign.revive()
            if met >= times:
                break
    campaign.tally("deadlock", met)
    return campaign.finish()


def _lock_in_another_order(campaign: Campaign) -> None:
    """Newest first: ours come by seq, by key, by id."""
    try:
        with psycopg.connect(campaign.database) as stranger:
            stranger.execute(f"SET deadlock_timeout = {STRANGER_MILLISECONDS}")
            found = stranger.execute(
                """SELECT seq FROM rota_data.runs WHERE state IN ('held', 'queued', 'running')
                    ORDER BY seq DESC LIMIT 12"""
            ).fetchall()
            for (seq,) in found:
                stranger.execute("SELECT 1 FROM rota_data.runs WHERE seq = %s FOR UPDATE", [seq])
                campaign.pass_time(0.0, 0.004)
            stranger.execute("SELECT 1 FROM rota_data.slots ORDER BY key DESC FOR UPDATE")
            stranger.execute("SELECT 1 FROM rota_data.schedules ORDER BY id DESC FOR UPDATE")
            stranger.rollback()
    except psycopg.OperationalError:
        pass  # the stranger was the one to end


def strangers(campaign: Campaign, times: int, bench: Bench) -> Verdict:
    """A client asks for a cancel and a pause in a transaction that stays open for longer than a
    lease, and than anybody waits for a lock; then he takes it back. Only what he holds may be lost.
    """
    begin(campaign)
    app = rota.Rota(campaign.database)
    held: set[str] = set()
    with psycopg.connect(campaign.database) as stranger:
        for _ in range(times):
            ids = enqueue_noted(campaign, app, LONG_RUNS, seconds=2 * campaign.lease)
            until(lambda ids=ids: under_way(campaign, ids), "long runs are under way", PATIENCE)
            held.add(ids[0])
            stranger.execute("SELECT rota.cancel_run(%s)", [ids[0]])
            stranger.execute("SELECT rota.pause_schedule('queue-short', 'held')")
            campaign.tally("held row")
            campaign.pass_time(1.1 * LOCK_SECONDS, 1.4 * LOCK_SECONDS)
            stranger.rollback()
            campaign.pass_time(0.5, 1.5)
    app.close()
    verdict = campaign.finish()
    lost = {row["id"] for row in read_rows(campaign.observed)["runs"] if row["lost"]}
    verdict.violations += [f"run {one} was lost, and nobody held it" for one in lost - held]
    return verdict


def under_way(campaign: Campaign, ids: list[str]) -> bool:
    named = ", ".join(f"'{one}'" for one in ids)
    sql = f"SELECT count(*) FROM {{prefix}}runs WHERE state = 'running' AND id IN ({named})"
    return bool(campaign.query(sql) == len(ids))


# Clocks


def clock_steps(campaign: Campaign, times: int, bench: Bench) -> Verdict:
    """The deciding clock goes forward and back by more than is believed at once."""
    clock = campaign.folder / "clock"
    clock.write_text("0")
    campaign.environment["ROTA_TEST_CLOCK"] = str(clock)
    # Those compare instants of rows with the time that really passed.
    campaign.without = {"I4", "I5", "I6"}
    begin(campaign)
    offset = furthest = 0.0
    for number in range(times):
        campaign.pass_time(0.5, 2.5)
        offset += STEPS_SECONDS[number % len(STEPS_SECONDS)]
        furthest = max(furthest, offset)
        set_clock(campaign, clock, offset)
        campaign.tally("clock step")
        campaign.pass_time(2.0, 4.0)
    # What was set to be due by the furthest clock is due: to wait for it would take as long.
    set_clock(campaign, clock, furthest)
    return campaign.finish()


def set_clock(campaign: Campaign, clock: Path, offset: float) -> None:
    """Whole or not at all: it is read at any moment."""
    new = clock.with_suffix(".new")
    new.write_text(str(offset))
    new.replace(clock)
    campaign.notebook.write("stepped", offset=offset)


# Many at once


def herd(campaign: Campaign, times: int, bench: Bench) -> Verdict:
    """Hundreds of schedules are due at the same instant, and processes die in it."""
    campaign.environment["ROTA_TEST_HERD"] = f"{HERD}/2s"
    begin(campaign)
    for _ in range(times):
        place = campaign.luck.randrange(PROCESSES)
        campaign.kill(place)
        campaign.start_at(place)
        campaign.tally("kill in a herd")
        campaign.pass_time(0.2, 0.8)
    return campaign.finish()


def backlog(campaign: Campaign, times: int, bench: Bench) -> Verdict:
    """Nobody was there for a day; those who catch up are killed, `times` times."""
    campaign.environment["ROTA_TEST_HERD"] = BACKLOG
    with nobody_looks(campaign):
        told = {"database": campaign.database, "notes": str(campaign.notes)}
        maker = campaign.zygote.fork(
            "maker", "tests.fault.serve:begin", environment=campaign.environment, name="m", **told
        )
        assert maker.wait() == 0
        turn_back(campaign.database, DAY_MINUTES)
    begin(campaign)
    for _ in range(times):
        place = campaign.luck.randrange(PROCESSES)
        campaign.kill(place)
        campaign.start_at(place)
        campaign.tally("kill in a backlog")
        campaign.pass_time(0.1, 0.5)
    caught_up = "SELECT count(*) FROM {prefix}schedules WHERE name LIKE 'herd-%' AND next_fire_at <"
    until(lambda: campaign.query(f"{caught_up} {_now(campaign)}") == 0, "caught up", 120.0)
    verdict = campaign.finish()
    fired = sum(row["count"] for row in read_rows(campaign.observed)["occurrences"])
    assert fired > DAY_MINUTES, f"only {fired} occurrences: there was no backlog"
    return verdict


@contextmanager
def nobody_looks(campaign: Campaign) -> Iterator[None]:
    """The observer must not see how the scene is set."""
    campaign.observer.stop()
    yield
    campaign.observer = Observer(campaign.observed, campaign.notebook)
    campaign.observer.start()


def turn_back(database: str, minutes: int) -> None:
    if database.startswith("sqlite"):
        connection: Any = sqlite3.connect(database.removeprefix("sqlite:///"))
        earlier, table = f"next_fire_at - {minutes * 60_000_000}", "_rota_schedules"
    else:
        connection = connect(database)[0]
        earlier, table = f"next_fire_at - interval '{minutes} minutes'", "rota_data.schedules"
    connection.execute(f"UPDATE {table} SET next_fire_at = {earlier} WHERE name LIKE 'herd-%'")
    connection.commit()
    connection.close()


def _now(campaign: Campaign) -> str:
    return str(int(time.time() * 1e6)) if campaign.database.startswith("sqlite") else "now()"


# A scheduler asleep


def sleepers_past_retention(campaign: Campaign, times: int, bench: Bench) -> Verdict:
    """A scheduler sleeps between reading and firing until the run of that occurrence, made by
    another, has ended and has been deleted."""
    campaign.environment["ROTA_TEST_RETENTION"] = "200ms"
    # The rows are gone: who began twice is seen in the notes, by I4.
    campaign.without = {"I1", "I2"}
    begin(campaign, client=False)
    slept = 0
    while slept < times:
        place = campaign.luck.randrange(PROCESSES)
        campaign.kill(place)
        point = f"read.due_schedules.after:{campaign.luck.randrange(2, 6)}"
        child = campaign.start_at(place, environment={"ROTA_STOP_AT": point}, client=False)
        campaign.wait_note("point", by=child.name)
        if others_can_write(campaign.database):
            wait_until_pruned(campaign)
            campaign.tally("sleep past retention")
            slept += 1
        campaign.thaw(child)
        campaign.pass_time(0.5, 1.0)
    return campaign.finish()


def others_can_write(database: str, seconds: float = LOCK_SECONDS) -> bool:
    """False if another thread of the sleeper had SQLite's only write lock when all of them were
    stopped: nobody writes until it wakes, so nothing can be deleted or taken over meanwhile."""
    if not database.startswith("sqlite"):
        return True
    path = database.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, timeout=seconds, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE _rota_meta SET value = value")
            connection.execute("COMMIT")
        except sqlite3.OperationalError:
            return False
    return True


def wait_until_pruned(campaign: Campaign) -> None:
    """Every run that is there now has ended and is deleted."""
    newest = campaign.query("SELECT max(seq) FROM {prefix}runs") or 0
    left = f"SELECT count(*) FROM {{prefix}}runs WHERE seq <= {newest}"
    until(lambda: campaign.query(left) == 0, "every run of before is deleted", 60.0)
