"""Long parts that measure: what must stay flat, and what a stranger's transaction may cost.

Runs come at a steady rate and their rows go after a few seconds, so that whatever grows grows for
another reason. Faults meet all processes but the first, which is the one that is measured.
"""

from __future__ import annotations

import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

import rota
from rota.flow import rescue
from rota.storage.store import open_store
from tests.fault.campaign import PROCESSES, Campaign, Verdict, until
from tests.fault.notes import Notebook, read_notes
from tests.fault.observer import UNDER_WAY, connect, query
from tests.fault.serve import NOT_NOW, hear_stop

if TYPE_CHECKING:
    from tests.fault.bench import Bench

RUNS_PER_SECOND = 200
BATCH = 10
SAMPLES = 60
# Shorter than this nothing has settled: the part is tried, and nothing is judged.
JUDGED_SECONDS = 240
GROWTH = 1.3
SLACK = {"memory MB": 8.0, "descriptors": 8.0, "table MB": 8.0, "WAL MB": 8.0}
SLOWER = 2.0
RETENTION = {"succeeded": "5s", "dead": "5s", "cancelled": "5s"}

Sample = dict[str, float]


def serve(*, database: str, notes: str, name: str, lease: str, **_: object) -> int:
    """A worker and scheduler that tells how long its claims take, until SIGTERM."""
    rescue.SWEEP_EVERY = 1
    notebook = Notebook(notes, name)
    told_to_stop = hear_stop()
    try:
        store = open_store(database)
        store.migrate()
        taken = _time_claims(store)
        app = make_app(database, storage=store, lease=lease)
        app.start()
    except rota.Unavailable:
        return NOT_NOW
    notebook.write("up", pid=os.getpid())
    while not told_to_stop(1.0):
        spans, taken[:] = list(taken), []
        if spans:
            notebook.write("claims", median=statistics.median(spans), most=max(spans))
    app.stop()
    notebook.write("down")
    return 0


def make_app(database: str, **settings: Any) -> rota.Rota:
    app = rota.Rota(
        database, max_lost=1_000, grace="5s", retention=RETENTION, keep_last=0, slots=8, **settings
    )

    @app.job(max_attempts=3, delay="100ms")
    def work(ctx: rota.Context) -> None:
        ctx.logger.debug("worked")

    app.schedule("each-second", job="work", every="1s")
    return app


def _time_claims(store: Any) -> list[float]:
    """Seconds of each claim that found something."""
    taken: list[float] = []
    claim = store.claim

    def timed(*given: Any, **options: Any) -> Any:
        began = time.monotonic()
        found = claim(*given, **options)
        if found:
            taken.append(time.monotonic() - began)
        return found

    store.claim = timed
    return taken


class Steady:
    """Asks for runs at a steady rate, in a thread; what it is refused it asks for again."""

    def __init__(self, database: str) -> None:
        self.app = make_app(database)
        self.acknowledged = self.refused = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steady", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self.app.close()

    def _run(self) -> None:
        began, asked = time.monotonic(), 0
        while not self._stopping.is_set():
            due = (time.monotonic() - began) * RUNS_PER_SECOND
            while asked + BATCH <= due and not self._stopping.is_set():
                try:
                    self.app._enqueue("work", [{}] * BATCH, {}, None, True)
                    self.acknowledged += BATCH
                except rota.Unavailable:
                    self.refused += 1
                asked += BATCH
            self._stopping.wait(BATCH / RUNS_PER_SECOND)


# What is measured


def sample(campaign: Campaign) -> Sample:
    folder = Path(f"/proc/{campaign.children[0].pid}")
    pages = int((folder / "statm").read_text().split()[1])
    return {
        "memory MB": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "descriptors": float(len(list((folder / "fd").iterdir()))),
        **sizes(campaign.database),
    }


def sizes(database: str) -> Sample:
    if database.startswith("sqlite"):
        path = Path(database.removeprefix("sqlite:///"))
        wal = path.with_name(f"{path.name}-wal")
        return {
            "table MB": path.stat().st_size / 1e6,
            "WAL MB": (wal.stat().st_size if wal.exists() else 0) / 1e6,
        }
    sql = """SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c
               JOIN pg_namespace n ON n.oid = c.relnamespace
              WHERE n.nspname = 'rota_data' AND c.relkind = 'r'"""
    return {"table MB": float(query(database, sql)) / 1e6}


def growth(samples: list[Sample]) -> tuple[dict[str, float], list[str]]:
    """Figures, and what is not flat: the last quarter against the second one."""
    quarter = max(1, len(samples) // 4)
    figures, grown = {}, []
    for what in samples[-1]:
        early = statistics.median(one[what] for one in samples[quarter : 2 * quarter])
        late = statistics.median(one[what] for one in samples[-quarter:])
        figures[f"{what} early"], figures[f"{what} late"] = round(early, 1), round(late, 1)
        if late > early * GROWTH + SLACK[what]:
            grown.append(f"{what} grew from {early:.1f} to {late:.1f}")
    return figures, grown


def claim_seconds(campaign: Campaign, since: float, until_: float) -> float:
    """The median of what claims of the first process took."""
    first = campaign.children[0].name
    found = [
        note["median"]
        for note in read_notes(campaign.notes)
        if note["what"] == "claims" and note["by"] == first and since <= note["mono"] < until_
    ]
    return statistics.median(found) if found else 0.0


# Parts


def soak(campaign: Campaign, times: int, bench: Bench) -> Verdict:
    """200 runs a second for `times` seconds, with random faults: nothing grows."""
    verdict, samples = Verdict(counts=campaign.counts), []
    steady = begin(campaign)
    ends, luck = time.monotonic() + times, campaign.luck
    next_sample = time.monotonic()
    while time.monotonic() < ends:
        befall(campaign, luck)
        campaign.pass_time(0.5, 2.0)
        campaign.revive()
        if time.monotonic() >= next_sample:
            samples.append(sample(campaign))
            next_sample += times / SAMPLES
    finish(campaign, steady, verdict, times)
    figures, grown = growth(samples)
    verdict.figures |= figures
    if times >= JUDGED_SECONDS:
        verdict.violations += grown
    return verdict


def held_transaction(campaign: Campaign, times: int, bench: Bench) -> Verdict:
    """Half of the time alone, half beside a transaction that stays open: claims cost no more
    than twice as much."""
    verdict = Verdict(counts=campaign.counts)
    steady = begin(campaign)
    warm = time.monotonic() + min(10.0, times / 10)
    campaign.pass_time(times / 2, times / 2)
    middle = time.monotonic()
    with psycopg.connect(campaign.database) as stranger:
        stranger.execute("SELECT txid_current()")
        campaign.pass_time(times / 2, times / 2)
        alone = claim_seconds(campaign, warm, middle)
        beside = claim_seconds(campaign, middle, time.monotonic())
        stranger.rollback()
    campaign.tally("second beside a held transaction", times // 2)
    finish(campaign, steady, verdict, times)
    verdict.figures |= {
        "claim ms alone": round(alone * 1e3, 2),
        "claim ms beside a held transaction": round(beside * 1e3, 2),
    }
    if times >= JUDGED_SECONDS and beside > SLOWER * alone:
        verdict.violations.append(f"claims took {alone * 1e3:.1f} ms, then {beside * 1e3:.1f} ms")
    return verdict


def begin(campaign: Campaign) -> Steady:
    campaign.target = "tests.fault.soak:serve"
    campaign.observer.stop()  # cursors are not what is looked at here
    campaign.start(PROCESSES)
    campaign.wait_note("up", by=campaign.children[0].name)
    steady = Steady(campaign.database)
    steady.start()
    return steady


def befall(campaign: Campaign, luck: random.Random) -> None:
    """Something happens to one of the processes that are not measured."""
    place = luck.randrange(1, PROCESSES)
    faults: Mapping[str, Callable[[Campaign, int], None]] = {
        "SIGKILL": _kill,
        "SIGTERM": _stop,
        "zombie": _freeze,
    }
    if not campaign.database.startswith("sqlite"):
        faults = {**faults, "terminated session": _terminate}
    what = luck.choice(sorted(faults))
    faults[what](campaign, place)
    if what != "SIGKILL":  # which counts itself
        campaign.tally(what)


def _kill(campaign: Campaign, place: int) -> None:
    campaign.kill(place)
    campaign.start_at(place)


def _stop(campaign: Campaign, place: int) -> None:
    campaign.children[place].stop()
    campaign.start_at(place)


def _freeze(campaign: Campaign, place: int) -> None:
    child = campaign.freeze(place)
    campaign.pass_time(1.1 * campaign.lease, 1.5 * campaign.lease)
    campaign.thaw(child)


def _terminate(campaign: Campaign, place: int) -> None:
    with suppress(psycopg.Error):
        connection, _ = connect(campaign.database)
        with connection:
            connection.execute(
                """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                    WHERE datname = current_database() AND application_name = 'rota'
                    ORDER BY random() LIMIT 1"""
            )


def finish(campaign: Campaign, steady: Steady, verdict: Verdict, seconds: int) -> None:
    steady.stop()
    until(lambda: campaign.query(UNDER_WAY_NOW) == 0, "what was asked for has ended", 120.0)
    dead = campaign.query("SELECT count(*) FROM {prefix}runs WHERE state = 'dead'")
    if dead:
        verdict.violations.append(f"{dead} runs are dead, and none of them failed")
    campaign.stop_all()
    verdict.counts["acknowledged"] = steady.acknowledged
    verdict.figures["runs per second"] = round(steady.acknowledged / seconds, 1)


# The schedule goes on: what is due in this moment does not count.
UNDER_WAY_NOW = f"{UNDER_WAY} AND occurrence IS NULL"
