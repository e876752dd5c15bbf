"""More parts of the campaign: databases away, full, busy or cut off; rolling restarts."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from tests.fault.campaign import PROCESSES, Campaign, Failed, Impossible, Verdict, until
from tests.fault.history import count, read_rows
from tests.fault.notes import read_notes
from tests.fault.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fault.bench import Bench

STORM_PROCESSES = 8
SNAPSHOT_SECONDS = 60
DISK_MEGABYTES = 16
PATIENCE = 60.0


def begin(campaign: Campaign, processes: int = PROCESSES) -> None:
    campaign.start(processes)
    campaign.wait_note("up")
    campaign.pass_time(0.2, 0.5)


# PostgreSQL


def terminations(campaign: Campaign, times: int, bench: Bench) -> Verdict:
    """pg_terminate_backend of any session of ours, twenty a second."""
    begin(campaign)
    sql = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
              WHERE datname = current_database() AND pid <> pg_backend_pid()
                AND application_name = 'rota' ORDER BY random() LIMIT 1"""
    done = 0
    with psycopg.connect(campaign.database, autocommit=True) as connection:
        while done < times:
            done += len(connection.execute(sql).fetchall())
            campaign.pass_time(0.05, 0.05)
            campaign.revive()
    campaign.tally("terminated session", done)
    return campaign.finish()


def network(campaign: Campaign, times: int, bench: Bench) -> Verdict:
    """Delays, cuts, silence and half-open connections between processes and their server."""
    with Proxy(campaign.database) as proxy:
        campaign.database = proxy.url
        begin(campaign)
        for _ in range(times):
            match campaign.luck.choice(["delay", "blackhole", "half-open", "cut", "cut", "cut"]):
                case "delay":
                    proxy.delay = 0.05
                    campaign.pass_time(0.5, 1.0)
                case "blackhole":
                    proxy.blackhole = True
                    campaign.pass_time(0.5, 3.0)
                case "half-open":
                    proxy.half_open = True
                    campaign.pass_time(0.5, 2.0)
                    proxy.reset_all()  # nobody gets an answer any more: the network gives up
                case _:
                    proxy.cut_after = campaign.luck.randrange(4_000)
                    campaign.pass_time(0.05, 0.3)
            proxy.heal()
            campaign.tally("network fault")
            campaign.pass_time(0.1, 0.3)
            campaign.revive()
        verdict = campaign.finish()
        verdict.counts["connections cut"] = proxy.cuts
        return verdict


def connection_limit(campaign: Campaign, times: int, bench: Bench) -> Verdict:
    """Somebody else takes every connection that the server has left, and a process starts."""
    begin(campaign)
    for _ in range(times):
        with ExitStack() as hog:
            with suppress(psycopg.OperationalError):
                while True:
                    hog.enter_context(closing(psycopg.connect(campaign.database)))
            place = campaign.luck.randrange(PROCESSES)
            campaign.kill(place)
            # What the killed one leaves is taken at once, too.
            with suppress(psycopg.OperationalError):
                for _ in range(50):
                    hog.enter_context(closing(psycopg.connect(campaign.database)))
                    campaign.pass_time(0.01, 0.02)
            campaign.tally("connection limit")
            campaign.start_at(place)
            campaign.pass_time(0.5, 1.5)
        campaign.pass_time(0.2, 0.5)
        campaign.revive()
    return campaign.finish()


# SQLite


def storm(campaign: Campaign, times: int, bench: Bench) -> Verdict:
    """Eight processes write as fast as they can, and a reader holds one snapshot; for `times` s."""
    campaign.environment["ROTA_TEST_PAUSE"] = "0.01"
    begin(campaign, STORM_PROCESSES)
    hold_snapshots(campaign, times)
    return users_verdict(campaign)


def storm_long(campaign: Campaign, times: int, bench: Bench) -> Verdict:
    """The same for long: a snapshot a minute, and as much as eight processes bring to its end."""
    campaign.environment["ROTA_TEST_PAUSE"] = "0.05"
    begin(campaign, STORM_PROCESSES)
    hold_snapshots(campaign, times)
    return users_verdict(campaign)


def hold_snapshots(campaign: Campaign, seconds: int) -> None:
    path = campaign.database.removeprefix("sqlite:///")
    for begun in range(0, seconds, SNAPSHOT_SECONDS):
        span = min(SNAPSHOT_SECONDS, seconds - begun)
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            before = reader.execute("SELECT count(*) FROM _rota_runs").fetchone()
            campaign.pass_time(span, span)
            assert reader.execute("SELECT count(*) FROM _rota_runs").fetchone() == before
        campaign.tally("second of storm", span)


def users_verdict(campaign: Campaign) -> Verdict:
    """Nobody was refused, on whatever connection; "database is locked" is counted by itself."""
    verdict = campaign.finish()
    verdict.counts["database is locked"] = 0
    for note in read_notes(campaign.notes):
        if note["what"] in ("refused", "own connection", "surprise"):
            verdict.violations.append(f"U1: {note['by']} was answered {note['error']}")
            verdict.counts["database is locked"] += "locked" in note["error"]
    return verdict


def disk_full(campaign: Campaign, times: int, bench: Bench) -> Verdict:
    """The disk of the store fills up, and somebody makes room again."""
    with small_disk(campaign.folder / "disk") as disk:
        campaign.database = campaign.observed = f"sqlite:///{disk / 'rota.db'}"
        campaign.observer.database = campaign.database
        begin(campaign)
        for _ in range(times):
            filled = disk / "filled"
            with suppress(OSError), filled.open("wb", buffering=0) as file:
                while True:
                    file.write(b"\0" * 4096)
            campaign.tally("full disk")
            # What the log of writes has of room already may last for a while.
            before = refusals(campaign)
            until(lambda was=before: refusals(campaign) > was, "somebody is refused", PATIENCE)
            campaign.pass_time(0.5, 1.5)
            filled.unlink()
            campaign.pass_time(0.5, 1.0)
            campaign.revive()
        return campaign.finish()


def refusals(campaign: Campaign) -> int:
    return count(read_notes(campaign.notes), "refused")


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        raise Impossible("only root can mount a small disk")
    folder.mkdir()
    size = f"size={DISK_MEGABYTES}m"
    mount = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        raise Impossible("this machine lets nobody mount a small disk")
    try:
        yield folder
    finally:
        # Lazily: a process that was killed just now may hold a file for a moment.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


# Both


def rolling_restarts(campaign: Campaign, times: int, bench: Bench) -> Verdict:
    """One process after the other is stopped with SIGTERM and started again: nothing is lost."""
    begin(campaign)
    for number in range(times):
        place = number % PROCESSES
        child = campaign.children[place]
        code = child.stop()
        if code != 0:
            raise Failed(f"{child.name} was stopped and ended with {code}")
        campaign.start_at(place)
        campaign.tally("SIGTERM")
        campaign.pass_time(0.2, 0.8)
    verdict = campaign.finish()
    lost = [row["id"] for row in read_rows(campaign.observed)["runs"] if row["lost"]]
    verdict.violations += [f"run {run_id} was lost, and nobody was killed" for run_id in lost]
    return verdict


def all_asleep(campaign: Campaign, times: int, bench: Bench) -> Verdict:
    """Everybody stands still for longer than a lease, each fifth time for a minute: whoever wakes
    first rescues the others."""
    begin(campaign)
    for number in range(1, times + 1):
        frozen = [campaign.freeze(place) for place in campaign.children]
        if number % 5 == 0:
            campaign.pass_time(60.0, 60.0)
        else:
            campaign.pass_time(1.5 * campaign.lease, 2.5 * campaign.lease)
        for child in campaign.luck.sample(frozen, len(frozen)):
            child.signal(signal.SIGCONT)
        campaign.tally("all asleep")
        campaign.pass_time(0.5, 1.5)
    return campaign.finish()
