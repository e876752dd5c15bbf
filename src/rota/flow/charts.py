"""What charts show: how much ended when, how late fires are, how long runs take.

A part of Control. Counts are exact for the stretch of time that is asked for, never a sample; what
is told of single runs is told of the latest so many, and the answer says how many.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from rota.errors import Invalid
from rota.flow.control_runs import schedule_number
from rota.flow.workers import is_alive, is_stopping
from rota.model.limits import PAGE, check_whole
from rota.model.redact import redact_schedule
from rota.model.schedule import Schedule
from rota.storage import operations
from rota.storage.store import AnyStore

LONGEST = timedelta(days=31)
BUCKETS = 400
CELLS = 20_000  # of a timeline: job, bucket and state
FIRES = 500
DURATIONS = 500
SORTS = ("name", "next", "last")
STATUSES = ("ACTIVE", "PAUSED", "DISABLED", "FINISHED", "BROKEN")
SMALLEST = -(2**62)


class ChartsControl:
    store: AnyStore

    def activity(self, span: timedelta, *, buckets: int) -> dict[str, Any]:
        """How many runs ended in each bucket of the last `span`, by state; how late the last fires
        were; and how many slots of live workers are in use."""
        if not timedelta(minutes=1) <= span <= LONGEST:
            raise Invalid("a chart shows between a minute and 31 days")
        check_whole(buckets, "buckets", 1, BUCKETS)
        now = self.store.now()
        since, seconds = now - span, span.total_seconds() / buckets
        counts: dict[str, list[int]] = {
            state: [0] * buckets for state in ("succeeded", "dead", "cancelled")
        }
        for row in self.store.read(operations.ended_in_buckets, since, now, seconds=seconds):
            # What ends in this very moment belongs to the last one.
            counts[row["state"]][min(row["bucket"], buckets - 1)] += row["runs"]
        return {
            "now_at": now,
            "since_at": since,
            "seconds": seconds,
            "ended": counts,
            "fire_lag": self._fire_lag(),
            "slots": self._slots(now),
        }

    def density(self, since: datetime, until: datetime, *, buckets: int) -> dict[str, Any]:
        """How many runs of each job ended in each bucket, and how busy it was with them."""
        if not since < until or until - since > LONGEST:
            raise Invalid("until must be later than since, and at most 31 days")
        check_whole(buckets, "buckets", 1, BUCKETS)
        seconds = (until - since).total_seconds() / buckets
        found = self.store.read(
            operations.ended_by_job_in_buckets, since, until, seconds=seconds, limit=CELLS + 1
        )
        jobs: dict[str, dict[int, dict[str, Any]]] = {}
        for row in found[:CELLS]:
            bucket = min(row["bucket"], buckets - 1)
            cell = jobs.setdefault(row["job"], {}).setdefault(
                bucket, {"at": bucket, "succeeded": 0, "dead": 0, "cancelled": 0, "seconds": 0.0}
            )
            cell[row["state"]] += row["runs"]
            cell["seconds"] += float(row["seconds"] or 0)
        return {
            "since_at": since,
            "seconds": seconds,
            "jobs": [{"job": job, "cells": list(cells.values())} for job, cells in jobs.items()],
            "more": len(found) > CELLS,
        }

    def durations(self, schedule: str, *, limit: int = 200) -> dict[str, Any]:
        """What the latest runs of a schedule took, the newest first, with the median and the 95th
        percentile of those that succeeded."""
        check_whole(limit, "limit", 1, DURATIONS)
        found = self.store.read(
            operations.durations_of_schedule, schedule_number(self.store, schedule), limit=limit
        )
        took = sorted(
            _seconds(row["started_at"], row["finished_at"])
            for row in found
            if row["state"] == "succeeded" and row["started_at"] is not None
        )
        return {
            "runs": [
                {
                    **row,
                    "seconds": None
                    if row["started_at"] is None or row["finished_at"] is None
                    else _seconds(row["started_at"], row["finished_at"]),
                }
                for row in found
            ],
            "p50": percentile(took, 0.5),
            "p95": percentile(took, 0.95),
        }

    def find_schedules(
        self,
        *,
        words: str | None = None,
        job: str | None = None,
        status: str | None = None,
        sort: str = "name",
        after: str = "",
        limit: int = PAGE,
    ) -> tuple[list[Schedule], str | None]:
        """Schedules whose name or job holds the words, in an order, a page at a time: (page, what
        asks for the next one)."""
        check_whole(limit, "limit", 1, PAGE)
        if sort not in SORTS:
            raise Invalid(f"sort {sort!r} is unknown; use {', '.join(SORTS)}")
        if status is not None and status not in STATUSES:
            raise Invalid(f"status {status!r} is unknown; use {', '.join(STATUSES)}")
        key, name = _place(after)
        found = self.store.read(
            operations.find_schedules,
            words=words.lower() if words else None,
            job=job,
            status=status,
            sort=sort,
            after_key=key,
            after=name,
            limit=limit,
        )
        following = f"{found[-1][0]}:{found[-1][1].name}" if len(found) == limit else None
        return [redact_schedule(schedule) for _, schedule in found], following

    def _fire_lag(self) -> dict[str, Any]:
        """Seconds between an occurrence and its run, over the newest runs of schedules."""
        lags = sorted(
            max(0.0, _seconds(row["occurrence"], row["created_at"]))
            for row in self.store.read(operations.recent_fires, limit=FIRES)
        )
        return {
            "of": len(lags),
            "p50": percentile(lags, 0.5),
            "p95": percentile(lags, 0.95),
            "longest": lags[-1] if lags else None,
        }

    def _slots(self, now: datetime) -> dict[str, int]:
        live = [
            one
            for one in self.store.read(operations.list_workers, limit=PAGE)
            if is_alive(one, now)
        ]
        return {
            "workers": len(live),
            # One that is stopping has the slots that its runs are in, and no other.
            "slots": sum(max(one["slots"], busy_slots(one)) for one in live),
            "running": sum(busy_slots(one) for one in live),
            "stuck": sum(one["stuck"] for one in live),
        }


def busy_slots(worker: Mapping[str, Any]) -> int:
    """The slots of a worker that runs are in. `running` may be more: a busy worker claims ahead."""
    running: int = worker["running"]
    if is_stopping(worker):
        return running
    usable: int = worker["slots"] - worker["stuck"]
    return max(0, min(running, usable))


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value that so many of them do not exceed."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _seconds(begin: datetime, end: datetime) -> float:
    return (end - begin).total_seconds()


def _place(after: str) -> tuple[int, str]:
    """The last schedule of a page: its key and its name."""
    if not after:
        return SMALLEST, ""
    key, colon, name = after.partition(":")
    digits = key.removeprefix("-")
    if not colon or not digits.isascii() or not digits.isdigit() or len(digits) > 18:
        raise Invalid(f"after {after!r} is not what a page before said in `next`")
    return int(key), name
