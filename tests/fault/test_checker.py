"""The judge finds a planted violation of each rule, and nothing in a history that is right."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any
from uuid import uuid5

import pytest

from tests.fault.checker import OCCURRENCES, RULES, SECOND, assert_kept, check, late_starts
from tests.fault.history import History

LEASE = 2.0
BEGIN = 1_700_000_000  # by the wall clock, when the monotonic clock said 0
SCHEDULE = 1


class Past:
    """A short past in which everything happened that a rule speaks of, told step by step."""

    def __init__(self) -> None:
        self.notes: list[dict[str, Any]] = []
        self.rows: dict[str, list[dict[str, Any]]] = {
            "runs": [], "attempts": [], "occurrences": [], "slots": [], "run_keys": [],
            "schedules": [
                {"id": SCHEDULE, "name": "nightly", "kind": "every", "expr": "1s",
                 "anchor": "rate", "overlap": "queue", "next_fire_at": instant(3)}
            ],
        }  # fmt: skip
        for second in (1, 2):
            run_id = occurrence_id(second)
            self.rows["occurrences"].append(
                {"schedule_id": SCHEDULE, "occurrence": instant(second), "outcome": "fired",
                 "last_occurrence": instant(second), "count": 1, "run_id": run_id}
            )  # fmt: skip
            self.note("cursor", second - 0.5, schedule="nightly", cursor=instant(second + 1))
            self.run(run_id, occurrence=instant(second), overlap_key="nightly")
            self.attempt(run_id, 1, second + 0.1, second + 0.2)
        # Two on a key, asked for one after the other, the first of them tried twice.
        for run_id, asked, begun in (("head", 3.0, 3.2), ("tail", 3.1, 4.0)):
            self.note("acked", asked + 0.05, run=run_id, created=True, asked=asked,
                      job="keyed", concurrency_key="c")  # fmt: skip
            self.run(run_id, concurrency_key="c", max_attempts=2)
            self.attempt(run_id, 1, begun, begun + 0.1, "failed" if run_id == "head" else None)
        self.attempt("head", 2, 3.6, 3.7, "succeeded")
        # One whose worker was frozen, and ended its handler long after the lease.
        self.note("acked", 4.9, run="orphan", created=True, asked=4.8, job="plain", key="once")
        self.run("orphan")
        self.attempt("orphan", 1, 5.0, 9.0, "lost", lost_at=7.1, by="frozen")
        self.attempt("orphan", 2, 7.5, 7.6, "succeeded")
        # One that is out of attempts.
        self.run("unlucky")
        self.attempt("unlucky", 1, 8.0, 8.1, "failed", state="dead")

    def note(self, what: str, at: float, by: str = "p0", **facts: Any) -> None:
        self.notes.append({"what": what, "by": by, "mono": at, "wall": BEGIN + at, **facts})

    def run(self, run_id: str, **columns: Any) -> None:
        self.rows["runs"].append(
            {"seq": len(self.rows["runs"]) + 1, "id": run_id, "job": "job", "state": "succeeded",
             "attempt": 0, "failures": 0, "lost": 0, "max_attempts": 1, "overlap_key": None,
             "concurrency_key": None, "concurrency_limit": 1, "schedule_id": None,
             "occurrence": None, "retry_of": None, "result": None, **columns}
        )  # fmt: skip
        if columns.get("occurrence") is not None:
            self.rows["runs"][-1]["schedule_id"] = SCHEDULE

    def attempt(
        self, run_id: str, number: int, begun: float, over: float, outcome: str | None = None,
        *, lost_at: float = 0.0, state: str = "succeeded", by: str = "p0",
    ) -> None:  # fmt: skip
        """One try; `outcome` None is a success at the first one, which has no row."""
        about = {"run": run_id, "attempt": number}
        self.note("start", begun, by, **about)
        self.note("end", over, by, **about)
        told = outcome or "succeeded"
        self.note("told", (lost_at or over) + 0.01, event=f"attempt.{told}", **about)
        row = self.row(run_id)
        row["attempt"] = number
        row["failures"] += outcome == "failed"
        row["lost"] += outcome == "lost"
        if told == "succeeded":
            row["result"] = json.dumps(f"{by} attempt {number}")
            self.note("told", over + 0.01, event="job.completed", **about)
        if state == "dead":
            row["state"] = "dead"
            self.note("told", over + 0.01, event="job.failed", **about)
        if outcome is not None:
            self.rows["attempts"].append(
                {"run_seq": row["seq"], "number": number, "outcome": outcome,
                 "started_at": instant(begun), "finished_at": instant(lost_at or over)}
            )  # fmt: skip

    def row(self, run_id: str) -> dict[str, Any]:
        return next(row for row in self.rows["runs"] if row["id"] == run_id)

    def attempt_row(self, run_id: str, number: int) -> dict[str, Any]:
        seq = self.row(run_id)["seq"]
        return next(
            row for row in self.rows["attempts"] if (row["run_seq"], row["number"]) == (seq, number)
        )

    def noted(self, what: str, **facts: Any) -> dict[str, Any]:
        return next(
            note
            for note in self.notes
            if note["what"] == what and all(note.get(key) == facts[key] for key in facts)
        )

    def move(self, what: str, run_id: str, attempt: int, at: float) -> None:
        note = self.noted(what, run=run_id, attempt=attempt)
        note["mono"], note["wall"] = at, BEGIN + at

    def history(self) -> History:
        notes = sorted(self.notes, key=lambda note: note["mono"])
        return History(notes=notes, rows=self.rows, lease=LEASE, max_lost=3)


def instant(second: float) -> int:
    return round((BEGIN + second) * SECOND)


def occurrence_id(second: float) -> str:
    return str(uuid5(OCCURRENCES, f"{SCHEDULE}|{instant(second)}"))


# Each of them breaks one rule; some break others with it.
Plant = Callable[[Past], object]
PLANTED: dict[str, list[Plant]] = {
    "I1": [
        # A second run for an occurrence.
        lambda past: past.rows["runs"].append({**past.row(occurrence_id(1)), "id": "double"}),
        # A run that no ledger row knows.
        lambda past: past.rows["occurrences"].pop(),
        # An occurrence whose run is gone.
        lambda past: past.rows["runs"].remove(past.row(occurrence_id(2))),
        # An occurrence that nobody fired, before the cursor and in the middle.
        lambda past: past.rows["schedules"][0].update(next_fire_at=instant(4)),
        lambda past: past.rows["occurrences"].append(
            {
                **past.rows["occurrences"][0],
                "occurrence": instant(4),
                "run_id": None,
                "last_occurrence": instant(4),
                "outcome": "missed",
            }
        ),
        # A stretch that counts wrong.
        lambda past: past.rows["occurrences"][0].update(count=2),
    ],
    "I2": [
        lambda past: past.rows["runs"].remove(past.row("tail")),
        # A key that made two runs.
        lambda past: past.note("acked", 5.2, run="tail", created=False, asked=5.1, key="once"),
        lambda past: past.note("acked", 5.2, run="orphan", created=True, asked=5.1, key="once"),
        lambda past: past.note("rolled back", 5.0, run="tail"),
    ],
    "I3": [
        # Two ends were told, of the same kind and of another.
        lambda past: past.note("told", 9.1, event="job.completed", run="orphan", attempt=2),
        lambda past: past.note("told", 9.1, event="job.failed", run="tail", attempt=1),
        # The end that was told is not the stored one.
        lambda past: past.row("tail").update(state="cancelled"),
        # The result is that of another attempt.
        lambda past: past.row("orphan").update(result='"frozen attempt 1"'),
        lambda past: past.row("tail").update(result=None),
    ],
    "I4": [
        lambda past: past.note("start", 5.1, "p1", run="tail", attempt=1),
        lambda past: past.move("start", "head", 1, 3.65),
        lambda past: past.row("head").update(attempt=1),
        lambda past: past.rows["attempts"].remove(past.attempt_row("head", 1)),
        lambda past: past.row("head").update(failures=2),
        lambda past: past.row("orphan").update(lost=4),
        lambda past: past.row("unlucky").update(max_attempts=2),
        lambda past: past.row("tail").update(state="dead"),
        lambda past: past.attempt_row("head", 2).update(number=3),
        # It began what it had lost, and had not slept.
        lambda past: past.move("start", "orphan", 1, 8.5),
    ],
    "I5": [
        # The frozen worker settled when it woke.
        lambda past: past.note("told", 9.1, event="attempt.succeeded", run="orphan", attempt=1),
        lambda past: past.attempt_row("orphan", 1).update(outcome="succeeded"),
        lambda past: past.noted("told", run="orphan", event="attempt.lost").update(
            event="attempt.failed"
        ),
        # It was taken away while its lease held.
        lambda past: past.attempt_row("orphan", 1).update(finished_at=instant(6.0)),
    ],
    "I6": [
        # Two on a key, two attempts of one run, two on an overlap key.
        lambda past: past.move("start", "tail", 1, 3.65),
        lambda past: past.move("start", "orphan", 2, 7.0),
        lambda past: past.move("end", occurrence_id(1), 1, 2.15),
        # One that was settled and never ended.
        lambda past: past.notes.remove(past.noted("end", run="tail")),
    ],
    "I7": [
        lambda past: (past.move("start", "tail", 1, 3.15), past.move("end", "tail", 1, 3.18)),
        lambda past: (
            past.move("start", occurrence_id(2), 1, 1.01),
            past.move("end", occurrence_id(2), 1, 1.02),
        ),
    ],
    "I8": [
        lambda past: past.note("cursor", 2.0, schedule="nightly", cursor=instant(1)),
        lambda past: past.note("cursor", 3.0, schedule="nightly", cursor=instant(4)),
    ],
    "I9": [
        lambda past: past.row("tail").update(state="queued"),
        lambda past: past.row("unlucky").update(state="running"),
        lambda past: past.rows["slots"].append({"key": "c/c", "number": 1, "owner_run": 3}),
    ],
    "U1": [
        lambda past: past.note("surprise", 1.0, error="OperationalError('database is locked')"),
    ],
}


def test_a_past_that_is_right_is_not_found_fault_with() -> None:
    assert_kept(Past().history())


@pytest.mark.parametrize("rule", RULES)
def test_a_planted_violation_is_found(rule: str) -> None:
    for number, plant in enumerate(PLANTED[rule]):
        past = deepcopy(Past())
        plant(past)
        found = check(past.history())
        assert rule in {one.rule for one in found}, f"{rule}, plant {number}: {found}"


def test_a_history_is_judged_the_same_after_it_was_archived(tmp_path: Path) -> None:
    past = Past()
    past.row("tail").update(state="queued")
    past.history().save(tmp_path)
    assert check(History.load(tmp_path)) == check(past.history())


def test_what_was_cancelled_may_have_been_pruned() -> None:
    past = Past()
    past.note("acked", 6.0, run="gone", created=True, asked=5.9, doomed=True)
    past.note("start", 6.1, run="gone", attempt=1)
    assert_kept(past.history())


def test_a_worker_that_wakes_late_may_begin_what_it_has_lost() -> None:
    past = Past()
    past.move("start", "orphan", 1, 8.5)
    past.note("frozen", 6.2, process="frozen")
    assert_kept(past.history())
    assert late_starts(past.history()) == {("orphan", 1)}
