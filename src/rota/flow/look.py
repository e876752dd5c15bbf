"""What an operator sees at a glance: counts, what is wrong now, what ran and what comes.

A part of Control. Everything is bounded: where there is more than a limit, the answer says so.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from rota.errors import Invalid
from rota.flow.words import counted
from rota.flow.workers import LIVE, is_alive, is_stopping, serves, taking, why_none
from rota.model.limits import COUNTED, PAGE, TEXT_SHOWN, check_whole, clip
from rota.model.outcome import error_line, naming_line
from rota.model.redact import redact_text
from rota.model.schedule import WAITING_FOR_RUN, Schedule
from rota.storage import operations
from rota.storage.store import AnyStore

DAY = timedelta(days=1)
LATE = timedelta(minutes=1)  # after which a due run or occurrence is a problem
LONGEST_WINDOW = timedelta(days=31)
TIMELINE_RUNS = 500
TIMELINE_LOOKED = 5_000  # of the runs that ended after a stretch, for those that had begun in it
COMING = 500
COMING_OF_ONE = 50
COMING_LEAST = 2
DURATIONS_OF = 20  # of the latest runs of a job an expectation is made
OUTCOMES = 30
DEAD_LOOKED = 1_000
PROBLEMS = 50  # of one kind

# What differs between two errors that are the same: numbers, ids, addresses.
_VARYING = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{12,}|\d+", re.IGNORECASE)


class LookControl:
    store: AnyStore

    def counts(self) -> dict[str, Any]:
        """Runs that have not ended by state, those that ended within a day, schedules, and whether
        dispatch is on. No state is counted further than `counted_to`."""
        now = self.store.now()
        runs = self.store.read(operations.count_by_state, now - DAY, limit=COUNTED)
        schedules = self.store.read(operations.count_schedules)
        return {
            "now_at": now,
            "since_at": now - DAY,
            "counted_to": COUNTED,
            "runs": runs,
            "dispatch": schedules.pop("dispatch"),
            "schedules": schedules,
        }

    def problems(self) -> list[dict[str, Any]]:
        """What is wrong now, the worst first: each with what it is about, and why."""
        now = self.store.now()
        rows = self.store.read(
            operations.look_for_problems, late_at=now - LATE, lost_at=now - LIVE, limit=PROBLEMS
        )
        workers = self.store.read(operations.list_workers, limit=PAGE)
        live = taking(workers, now)
        found = [
            *_dispatch(rows["dispatch"]),
            *_workers(workers, live, now),
            *_broken(rows),
            *_late(rows, now),
            *self._waiting(live, why_none(workers, now), now),
            *self._dead(now),
            *_paused(rows),
        ]
        return sorted(found, key=lambda one: SEVERITIES.index(one["severity"]))

    def timeline(self, since: datetime, until: datetime) -> dict[str, Any]:
        """Runs that ran or ended in a stretch of time, and what is to come in it. `more_across`: so
        many ended after it that one which ran across its end may be missing."""
        if not since < until or until - since > LONGEST_WINDOW:
            raise Invalid("until must be later than since, and at most 31 days")
        now = self.store.now()
        found, more_across = self.store.read(
            operations.runs_between, since, until, limit=TIMELINE_RUNS + 1, looked=TIMELINE_LOOKED
        )
        # What runs may begin later than this stretch, or be claimed only.
        found = [one for one in found if (one["started_at"] or one["finished_at"] or until) < until]
        runs = found[:TIMELINE_RUNS]
        coming, more_coming = self._coming(max(now, since), until)
        names = self.store.read(
            operations.schedule_names,
            {one["schedule_id"] for one in runs if one["schedule_id"] is not None},
        )
        return {
            "now_at": now,
            "runs": [_brief(one, names) for one in runs],
            "more_runs": len(found) > TIMELINE_RUNS,
            "more_across": more_across,
            "coming": coming,
            "more_coming": more_coming,
        }

    def dead_groups(self) -> dict[str, Any]:
        """Dead runs of one job and one error together, the largest group first. `group` names one
        for as long as its error stays the same."""
        groups: dict[str, dict[str, Any]] = {}
        marks: dict[tuple[str, str | None], str] = {}  # most errors are alike to the letter
        looked, before = 0, 2**62
        while looked < DEAD_LOOKED:
            page = self.store.read(operations.list_dead_runs, before=before, limit=PAGE)
            looked += len(page)
            for row in page:
                error = (row["job"], row["error"])
                mark = marks.get(error) or marks.setdefault(error, group_of(*error))
                _add_to_group(groups, mark, row)
            if len(page) < PAGE:
                break
            before = page[-1]["seq"]
        ordered = sorted(groups.values(), key=lambda one: -one["runs"])
        return {"groups": ordered, "looked_at": looked, "more": looked >= DEAD_LOOKED}

    def recent_outcomes(
        self, schedules: Iterable[Schedule], *, limit: int = OUTCOMES
    ) -> dict[int, list[dict[str, Any]]]:
        """What became of the last occurrences of each schedule, newest first, by its number."""
        ids = [schedule.id for schedule in schedules]
        check_whole(limit, "limit", 1, OUTCOMES)
        return self.store.read(operations.recent_outcomes, ids[:PAGE], limit=limit)

    def texts(self, run_id: str) -> list[dict[str, Any]]:
        """The SQL of a run as it began, with the names of its variables; never their values."""
        run = self.store.read(operations.get_run, run_id)
        return [
            {
                "number": file.number,
                "name": file.name,
                "text": clip(redact_text(file.text), TEXT_SHOWN),
                "names": list(file.variables),
            }
            for file in self.store.read(operations.kept_files, run.seq)[:PAGE]
        ]

    def schedule_names(self, ids: Iterable[int]) -> dict[int, str]:
        """Names of schedules by their number; of those that were dropped there is none."""
        return self.store.read(operations.schedule_names, set(ids))

    # Parts of the above

    def _waiting(
        self, live: list[dict[str, Any]], none: str, now: datetime
    ) -> Iterator[dict[str, Any]]:
        """Due runs that wait too long, with the reason why nobody takes them."""
        paused = {
            one["name"]: one
            for one in self.store.read(operations.list_queues, limit=PAGE)
            if one["paused"]
        }
        for row in self.store.read(operations.queued_jobs, limit=COUNTED)[:PAGE]:
            job, queue = row["job"], row["queue"]
            late = now - row["oldest_at"] > LATE
            wait, due = ("waits", "is due") if row["runs"] == 1 else ("wait", "are due")
            knowing = [one for one in live if job in one["jobs"]]
            if queue in paused:
                told = paused[queue]
                reason = f": {told['reason']}" if told["reason"] else ""
                text = f"{wait}: queue {queue!r} is paused by {told['paused_by']}{reason}"
            elif not live:
                text = f"{wait}: {none}"
            elif not knowing:
                text = f"{wait}: no live worker knows job {job!r}"
            elif not any(serves(one, queue) for one in knowing):
                text = f"{wait}: no live worker that knows job {job!r} serves queue {queue!r}"
            elif late:
                text = f"{due} for more than a minute: the workers are behind"
            else:
                continue
            yield _problem(
                "waiting", WARNING if queue in paused or knowing else ERROR, "job", job,
                f"{counted(row['runs'], 'queued run')} of {job!r} {text}", row["oldest_at"],
            )  # fmt: skip

    def _dead(self, now: datetime) -> Iterator[dict[str, Any]]:
        since = now - DAY
        recent = [
            row
            for row in self.store.read(operations.list_dead_runs, before=2**62, limit=PAGE)
            if row["finished_at"] is not None and row["finished_at"] >= since
        ]
        counts = Counter(row["job"] for row in recent)
        for job, died in counts.most_common(PROBLEMS):
            last = next(row for row in recent if row["job"] == job)
            runs = f"{died} or more runs" if len(recent) == PAGE else counted(died, "run")
            yield _problem(
                "dead", ERROR, "job", job,
                f"{runs} of {job!r} died within a day; the last: "
                + error_line(last["error"], limit=300),
                last["finished_at"],
            )  # fmt: skip

    def _coming(self, since: datetime, until: datetime) -> tuple[list[dict[str, Any]], bool]:
        schedules = self.store.read(operations.schedules_due, until, limit=COMING + 1)
        expected = self.store.read(
            operations.recent_durations,
            sorted({one.job for one in schedules})[:PAGE],
            limit=DURATIONS_OF,
        )
        told: list[dict[str, Any]] = []
        more = len(schedules) > COMING
        # Each has its share: one that fires every second leaves room for one that fires every day.
        most = min(COMING_OF_ONE, max(COMING_LEAST, COMING // max(1, len(schedules))))
        for schedule in schedules[:COMING]:
            times = list(islice(_times(schedule, since, until), most + 1))
            more = more or len(times) > most
            told += [
                {
                    "schedule": schedule.name,
                    "job": schedule.job,
                    "at": at,
                    "seconds": expected.get(schedule.job),
                    "goes_on": number == most and len(times) > most,
                }
                for number, at in enumerate(times[:most], start=1)
            ]
        told.sort(key=lambda one: one["at"])
        return told, more


ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)


def _problem(
    kind: str, severity: str, noun: str, name: str | None, text: str, since: datetime | None
) -> dict[str, Any]:
    return {
        "kind": kind,
        "severity": severity,
        "noun": noun,
        "name": name,
        "message": text,
        "since": since,
    }


def _dispatch(dispatch: str) -> Iterator[dict[str, Any]]:
    if dispatch != "on":
        text = f"nothing is claimed anywhere: dispatch is {dispatch}"
        yield _problem("dispatch", ERROR, "dispatch", None, text, None)


def _workers(
    workers: list[dict[str, Any]], live: list[dict[str, Any]], now: datetime
) -> Iterator[dict[str, Any]]:
    if not live:
        text = f"{why_none(workers, now)}; start one with `rota up`"
        yield _problem("workers", ERROR, "worker", None, text, None)
    for one in workers:
        if not is_alive(one, now):
            text = f"worker {one['id']} has not been seen for {_ago(now - one['seen_at'])}"
            yield _problem("workers", WARNING, "worker", one["id"], text, one["seen_at"])
        elif one["stuck"]:
            slots = "slots" if is_stopping(one) else f"of {one['slots']} slots"
            text = f"worker {one['id']} has {one['stuck']} {slots} stuck"
            yield _problem("workers", WARNING, "worker", one["id"], text, None)
    for name, what in (("version", "versions of Rota"), ("tzdata", "versions of time zone data")):
        told = sorted({str(one[name]) for one in live})
        if len(told) > 1:
            text = f"workers have different {what}: {', '.join(told)}"
            yield _problem("workers", WARNING, "worker", None, text, None)


def _broken(rows: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for row in rows["broken_schedules"]:
        text = f"schedule {row['name']!r} is broken and does not fire: {row['error']}"
        yield _problem("broken", ERROR, "schedule", row["name"], redact_text(text), None)
    for row in rows["broken_jobs"]:
        text = f"job {row['name']!r}: {error_line(row['error'], limit=300)}"
        yield _problem("broken", WARNING, "job", row["name"], text, None)
    stuck = rows["stuck"]
    if stuck is not None and stuck["runs"]:
        one = stuck["runs"] == 1
        has, them = ("has", "it") if one else ("have", "them")
        text = (
            f"{counted(stuck['runs'], 'run')} {has} a worker that is gone, "
            f"and nobody took {them} over yet"
        )
        yield _problem("stuck", ERROR, "run", None, text, stuck["oldest_at"])


def _late(rows: dict[str, Any], now: datetime) -> Iterator[dict[str, Any]]:
    for row in rows["late_schedules"]:
        late = _ago(now - row["next_fire_at"])
        text = f"schedule {row['name']!r} should have fired {late} ago; no scheduler runs"
        yield _problem("late", ERROR, "schedule", row["name"], text, row["next_fire_at"])


def _paused(rows: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for row in rows["paused_schedules"]:
        reason = f": {row['paused_reason']}" if row["paused_reason"] else ""
        text = f"schedule {row['name']!r} is paused by {row['paused_by']}{reason}"
        yield _problem("paused", NOTE, "schedule", row["name"], redact_text(text), row["paused_at"])


def _times(schedule: Schedule, since: datetime, until: datetime) -> Iterator[datetime]:
    """The occurrences of a schedule in a stretch; one more than anybody asks for."""
    at = schedule.next_fire_at
    if schedule.error is not None:
        return
    count = 0
    while at is not None and at < min(until, WAITING_FOR_RUN) and count <= COMING_OF_ONE:
        if at >= since:
            count += 1
            yield at
        if schedule.kind == "once" or schedule.delays:
            return
        at = schedule.next_after(max(at, since - timedelta(microseconds=1)))


def _brief(row: dict[str, Any], names: dict[int, str]) -> dict[str, Any]:
    return {
        "id": row["id"],
        "job": row["job"],
        "queue": row["queue"],
        "state": row["state"],
        "schedule": names.get(row["schedule_id"]),
        "attempt": row["attempt"],
        "due_at": row["due_at"],
        "started_at": row["started_at"],
        "finished_at": row["finished_at"],
    }


def _add_to_group(groups: dict[str, dict[str, Any]], mark: str, row: dict[str, Any]) -> None:
    found = groups.get(mark)
    if found is None:
        groups[mark] = {
            "group": mark,
            "job": row["job"],
            "error": error_line(row["error"], limit=500),
            "runs": 1,
            "last_at": row["finished_at"],
            "first_at": row["finished_at"],
            "last_run": row["id"],
        }
    else:
        found["runs"] += 1
        found["first_at"] = row["finished_at"]


def group_of(job: str, error: str | None) -> str:
    """The same for errors of a job that differ in numbers and ids alone."""
    same = _VARYING.sub("#", naming_line(error or "")[:500])
    return hashlib.sha256(f"{job}\n{same}".encode()).hexdigest()[:16]


def _ago(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{max(seconds, 0)} s"
