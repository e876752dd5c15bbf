"""What screens, charts and metrics show: counts, changes, problems, what was and what comes.

Every statement here is bounded, and goes down an index where the engine has one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rota.storage.engine import Row, Transaction
from rota.storage.operations.installation import read_clock
from rota.storage.operations.queues import dispatch


def overview(tx: Transaction) -> Row:
    """Counts by state and what the switches say."""
    return {
        "runs": {row["state"]: row["runs"] for row in tx.all("count_runs")},
        "schedules": tx.one("count_schedules"),
        "dispatch": dispatch(tx),
        "now_at": read_clock(tx),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """`depths` by queue and state, `oldest_at` of what is queued, the last one of `successes` for
    each job there is."""

    now: datetime
    queues: tuple[str, ...]
    depths: Mapping[tuple[str, str], int]
    oldest_at: Mapping[str, datetime]
    schedules: Mapping[str, int]
    successes: Mapping[str, datetime | None]
    workers: int


def figures(
    tx: Transaction, *, depth: int, queues: int, jobs: int, recent: int, live_seconds: float
) -> Figures:
    """At most `depth` runs of each state are counted, and of each job's latest success the
    `recent` last runs are looked at."""
    named = tx.tuples("queue_names", limit=queues)
    depths = tx.all("queue_depths", depth=depth)
    oldest = tx.all("oldest_queued")
    statuses = tx.all("schedule_statuses")
    successes = tx.all("last_successes", jobs=jobs, recent=recent)
    (alive,) = tx.all("count_live_workers", live_seconds=live_seconds)
    return Figures(
        now=read_clock(tx),
        queues=tuple(name for (name,) in named),
        depths={(row["queue"], row["state"]): row["runs"] for row in depths},
        oldest_at={row["queue"]: row["due_at"] for row in oldest},
        schedules={row["status"]: row["schedules"] for row in statuses},
        successes={row["job"]: row["finished_at"] for row in successes},
        workers=alive["workers"],
    )


def follow_position(tx: Transaction) -> Row:
    """Where the rows end now: what comes after is new."""
    found = tx.one("follow_position")
    assert found is not None
    return {**found, "now_at": read_clock(tx)}


def changes_since(
    tx: Transaction, *, seq: int, audit_id: int, since_at: datetime, until_at: datetime, limit: int
) -> Row:
    """Runs that were made, run now, and have ended since; and what people did."""
    return {
        "now_at": read_clock(tx),
        "made": tx.all("brief_runs_after", after=seq, limit=limit),
        "running": tx.all("brief_running", limit=limit),
        "ended": tx.all("brief_ended", since_at=since_at, until_at=until_at, limit=limit),
        "actions": tx.all("audit_after", after=audit_id, limit=limit),
    }


def count_by_state(tx: Transaction, since_at: datetime, *, limit: int) -> dict[str, int]:
    """Runs that have not ended, and those that ended since; each counted up to the limit."""

    counted = [
        *tx.all("count_open", limit=limit),
        *tx.all("count_ended", since_at=since_at, limit=limit),
    ]
    return {row["state"]: row["runs"] for row in counted}


def count_schedules(tx: Transaction) -> Row:
    """How many there are, are paused and are broken; and whether anything is claimed."""
    return {**(tx.one("count_schedules") or {}), "dispatch": dispatch(tx)}


def look_for_problems(tx: Transaction, *, late_at: datetime, lost_at: datetime, limit: int) -> Row:
    """The rows that somebody should look at; `late_at` and `lost_at` are what cursors and
    leases should be later than."""
    late = tx.all("schedule_ids_due", until_at=late_at, limit=limit)
    ids = [row["id"] for row in late]
    return {
        "broken_schedules": tx.all("broken_schedules", limit=limit),
        "paused_schedules": tx.all("paused_schedules", limit=limit),
        "broken_jobs": tx.all("broken_jobs", limit=limit),
        "late_schedules": tx.all("schedules_by_id", ids=ids) if ids else [],
        "stuck": tx.one("stuck_leases", before_at=lost_at),
        "dispatch": dispatch(tx),
    }


def recent_durations(tx: Transaction, names: Sequence[str], *, limit: int) -> dict[str, float]:
    """What the last runs of each job took on average, in seconds."""
    if not names:
        return {}
    found = tx.all("recent_durations", names=sorted(names), limit=limit)
    return {row["job"]: float(row["seconds"]) for row in found}


def recent_outcomes(tx: Transaction, ids: Collection[int], *, limit: int) -> dict[int, list[Row]]:
    """The last rows of the ledger of each schedule, newest first, with their runs' states."""
    if not ids:
        return {}
    found = tx.all("recent_outcomes", ids=sorted(ids), limit=limit)
    told: dict[int, list[Row]] = {}
    for row in found:
        told.setdefault(row.pop("schedule_id"), []).append(row)
    return told


def ended_in_buckets(
    tx: Transaction, since_at: datetime, until_at: datetime, *, seconds: float
) -> list[Row]:
    """How many runs ended in each bucket, by state."""
    return tx.all("ended_in_buckets", since_at=since_at, until_at=until_at, seconds=seconds)


def ended_by_job_in_buckets(
    tx: Transaction, since_at: datetime, until_at: datetime, *, seconds: float, limit: int
) -> list[Row]:
    """The same for each job, with how long its runs took together; so many cells at most."""
    return tx.all(
        "ended_by_job_in_buckets",
        since_at=since_at,
        until_at=until_at,
        seconds=seconds,
        limit=limit,
    )


def recent_fires(tx: Transaction, *, limit: int) -> list[Row]:
    """When the newest runs were due and when they were made, of those that a schedule made."""
    return tx.all("recent_fires", limit=limit)


def durations_of_schedule(tx: Transaction, schedule_id: int, *, limit: int) -> list[Row]:
    """What its latest runs took, the newest first."""
    return tx.all("durations_of_schedule", schedule_id=schedule_id, limit=limit)


def queue_work(tx: Transaction, since_at: datetime, *, depth: int, ended: int) -> Row:
    """By queue: how many runs of each state that has not ended there are, no further than
    `depth`, and how many ended since. That goes back no more than `ended` runs in all; the
    `since_at` of the answer says when the first of them ended."""
    depths = tx.all("queue_depths", depth=depth)
    latest = tx.all("ended_by_queue", since_at=since_at, limit=ended)
    all_of_them = sum(row["runs"] for row in latest) < ended
    return {
        "depths": {(row["queue"], row["state"]): row["runs"] for row in depths},
        "ended": {row["queue"]: row["runs"] for row in latest},
        "since_at": since_at if all_of_them else min(row["first_at"] for row in latest),
    }
