"""The judge: what must hold of a history, whatever was killed, frozen, cut or filled meanwhile.

Each rule is a function that yields what breaks it. It knows nothing of how Rota works inside: it
has the notes of those who took part, and the rows that are left when everything has come to rest.

I1 one run per occurrence                        I6 no overlap on a key while leases hold
I2 no acknowledged run is lost                   I7 first in, first out on a key
I3 one terminal transition, and it is stored     I8 a cursor never goes back
I4 attempts are unique, rise, keep the limit     I9 everything comes to its end
I5 nothing is settled after a lost lease         U1 no error reaches a user but "unavailable"
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid5

from rota.model.duration import parse_duration
from tests.fault.history import History, Row

TERMINAL = frozenset({"succeeded", "dead", "cancelled"})
ENDS = {"job.completed": "succeeded", "job.failed": "dead", "job.cancelled": "cancelled"}
OCCURRENCES = UUID("6f0d1f3e-2b1a-5c57-9d0e-7f1d9a0c4b52")
SECOND = 1_000_000
# The cursor of a schedule that waits for its run to end stands later than any instant.
WAITING = 253_000_000_000 * SECOND
SHOWN = 20
SILENT = frozenset({"quick"})  # jobs whose handlers return nothing


@dataclass(frozen=True)
class Violation:
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


def check(history: History, without: Collection[str] = ()) -> list[Violation]:
    """Everything that breaks a rule; empty is good. `without` are rules that cannot be judged:
    by a clock that was stepped, of rows that were pruned."""
    return [
        Violation(rule, text)
        for rule, broken in RULES.items()
        if rule not in without
        for text in broken(history)
    ]


def assert_kept(history: History) -> None:
    violations = check(history)
    shown = "\n".join(map(str, violations[:SHOWN]))
    assert not violations, f"{len(violations)} violations, such as\n{shown}"


# I1


def one_run_per_occurrence(history: History) -> Iterator[str]:
    fired = [run for run in history.runs.values() if _is_fired(run)]
    for place, times in Counter((run["schedule_id"], run["occurrence"]) for run in fired).items():
        if times > 1:
            yield f"{times} runs for {place}"
    ledger = {(row["schedule_id"], row["occurrence"]): row for row in history.rows["occurrences"]}
    for run in fired:
        place = (run["schedule_id"], run["occurrence"])
        if run["id"] != str(uuid5(OCCURRENCES, f"{place[0]}|{place[1]}")):
            yield f"run {run['id']} has not the id of its occurrence {place}"
        if place not in ledger or ledger[place]["outcome"] != "fired":
            yield f"run {run['id']} of {place} is not in the ledger"
    for place, row in ledger.items():
        if row["run_id"] is not None and row["run_id"] not in history.runs:
            yield f"the ledger names run {row['run_id']} for {place}, which does not exist"
    for schedule in history.rows["schedules"]:
        if schedule["kind"] == "every" and schedule["anchor"] == "rate":
            yield from _holes(history, schedule)


def _is_fired(run: Row) -> bool:
    return run["occurrence"] is not None and run["retry_of"] is None


def _holes(history: History, schedule: Row) -> Iterator[str]:
    """From the first occurrence to the cursor each instant is in the ledger, once."""
    step = int(parse_duration(schedule["expr"], "every").total_seconds() * SECOND)
    rows = sorted(
        (row for row in history.rows["occurrences"] if row["schedule_id"] == schedule["id"]),
        key=lambda row: row["occurrence"],
    )
    for row in rows:
        instants = (row["last_occurrence"] - row["occurrence"]) // step + 1
        if row["count"] != instants:
            yield f"{schedule['name']}: the ledger counts {row['count']}, not {instants}: {row}"
    for earlier, later in pairwise(rows):
        if later["occurrence"] != earlier["last_occurrence"] + step:
            yield f"{schedule['name']}: {earlier['last_occurrence']}, then {later['occurrence']}"
    if rows and schedule["next_fire_at"] != rows[-1]["last_occurrence"] + step:
        last = rows[-1]["last_occurrence"]
        yield f"{schedule['name']}: the cursor is {schedule['next_fire_at']} after {last}"


# I2


def no_acknowledged_run_is_lost(history: History) -> Iterator[str]:
    once: dict[str, set[str]] = defaultdict(set)
    made: Counter[str] = Counter()
    for note in history.noted("acked"):
        # What was cancelled may have been pruned.
        if note["run"] not in history.runs and not note.get("doomed"):
            yield f"run {note['run']} was acknowledged to {note['by']} and is gone"
        if (key := note.get("key")) is not None:
            once[key].add(note["run"])
            made[key] += note["created"]
    for key, runs in once.items():
        if len(runs) > 1:
            yield f"{len(runs)} runs for the idempotency key {key}"
    for key, times in made.items():
        if times > 1:
            yield f"the run for the idempotency key {key} was made {times} times"
    for note in history.noted("rolled back"):
        if note["run"] in history.runs:
            yield f"run {note['run']} exists, and its transaction was rolled back"


# I3


def one_terminal_transition(history: History) -> Iterator[str]:
    told: dict[str, list[Any]] = defaultdict(list)
    for note in history.noted("told"):
        if note["event"] in ENDS:
            told[note["run"]].append(note)
    for run_id, notes in told.items():
        if len(notes) > 1:
            yield f"run {run_id} ended {len(notes)} times: {[note['event'] for note in notes]}"
        run = history.runs.get(run_id)
        for note in notes:
            if run is not None and (ENDS[note["event"]], note["attempt"]) != (
                run["state"],
                run["attempt"],
            ):
                yield (
                    f"run {run_id}: {note['event']} of attempt {note['attempt']} was told, "
                    f"and {run['state']} of attempt {run['attempt']} is stored"
                )
    ends = history.by_attempt("end")
    for run in history.runs.values():
        if run["state"] == "succeeded":
            notes = ends.get((run["id"], run["attempt"]), [])
            tokens = {f"{note['by']} attempt {note['attempt']}" for note in notes}
            told = None if run["result"] is None else json.loads(run["result"])
            if not (tokens if run["job"] in SILENT and told is None else told in tokens):
                yield (
                    f"run {run['id']} has the result {run['result']}, and attempt "
                    f"{run['attempt']} gave {sorted(tokens)}"
                )


# I4


def attempts_are_unique_and_rise(history: History) -> Iterator[str]:
    starts = history.by_attempt("start")
    late = late_starts(history)
    for run_id, attempt in sorted(late - excused(history, late)):
        yield f"run {run_id}: attempt {attempt} began after it was lost, by one who had not slept"
    first: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for (run_id, attempt), notes in starts.items():
        if len(notes) > 1:
            told = [note["by"] for note in notes]
            yield f"run {run_id}: attempt {attempt} started {len(notes)} times, by {told}"
        first[run_id].append((attempt, notes[0]["mono"]))
    for run_id, begun in first.items():
        # A worker that wakes late may begin what it has lost; only its own lease tells, too late.
        ordered = [one for one in sorted(begun) if (run_id, one[0]) not in late]
        if any(later[1] < earlier[1] for earlier, later in pairwise(ordered)):
            yield f"run {run_id}: its attempts started out of order: {ordered}"
        run = history.runs.get(run_id)
        if run is None:
            continue
        latest = max(begun)[0]
        if latest > run["attempt"]:
            yield f"run {run_id}: attempt {latest} started, {run['attempt']} is stored"
        for attempt, _ in begun:
            succeeded_at_once = attempt == 1 and run["attempt"] == 1
            if not succeeded_at_once and (run_id, attempt) not in history.attempts:
                yield f"run {run_id}: attempt {attempt} started and has no row"
    yield from _counts(history)


def late_starts(history: History) -> set[tuple[str, int]]:
    """Attempts that began after they had been counted as lost."""
    return {
        (run_id, attempt)
        for (run_id, attempt), notes in history.by_attempt("start").items()
        if (row := history.attempts.get((run_id, attempt))) is not None
        and row["outcome"] == "lost"
        and row["finished_at"] / SECOND < notes[0]["wall"]
    }


def excused(history: History, late: set[tuple[str, int]]) -> set[tuple[str, int]]:
    """Those whose process stood still in between: no check of its own could keep it from falling
    asleep after the check and before the handler."""
    slept: dict[str, list[float]] = defaultdict(list)
    for note in history.noted("frozen", "point"):
        slept[note.get("process", note["by"])].append(note["wall"])
    starts = history.by_attempt("start")
    return {
        one
        for one in late
        for note in [starts[one][0]]
        # The server may claim for one who has just fallen asleep.
        if any(
            history.attempts[one]["started_at"] / SECOND - 1.0 < moment < note["wall"]
            for moment in slept[note["by"]]
        )
    }


def _counts(history: History) -> Iterator[str]:
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    for (run_id, number), row in history.attempts.items():
        outcomes[run_id][row["outcome"]] += 1
        if number > history.runs[run_id]["attempt"]:
            yield f"run {run_id}: a row for attempt {number}, which never was"
    for run_id, run in history.runs.items():
        counted = outcomes[run_id]
        failed = counted["failed"] + counted["timed_out"]
        if (run["failures"], run["lost"]) != (failed, counted["lost"]):
            yield (
                f"run {run_id}: {run['failures']} failures and {run['lost']} lost are stored, "
                f"its attempts were {dict(counted)}"
            )
        if run["failures"] > run["max_attempts"] or run["lost"] > history.max_lost:
            yield f"run {run_id}: {run['failures']} failures, {run['lost']} lost: over the limit"
        spent = run["failures"] == run["max_attempts"] or run["lost"] == history.max_lost
        if (run["state"] == "dead") != (spent and run["state"] != "cancelled"):
            yield (
                f"run {run_id} is {run['state']} after {run['failures']} failures of "
                f"{run['max_attempts']}"
            )


# I5


def nothing_settled_after_a_lost_lease(history: History) -> Iterator[str]:
    told: dict[tuple[str, int], list[str]] = defaultdict(list)
    for note in history.noted("told"):
        kind, _, outcome = note["event"].partition(".")
        if kind == "attempt":
            told[note["run"], note["attempt"]].append(outcome)
    for (run_id, attempt), outcomes in told.items():
        if len(outcomes) > 1:
            yield f"run {run_id}: attempt {attempt} was settled {len(outcomes)} times: {outcomes}"
        row = history.attempts.get((run_id, attempt))
        if row is not None and row["outcome"] not in outcomes:
            yield (
                f"run {run_id}: attempt {attempt} is stored as {row['outcome']}, told as {outcomes}"
            )
    for (run_id, attempt), row in history.attempts.items():
        if row["outcome"] == "succeeded" and attempt != history.runs[run_id]["attempt"]:
            yield f"run {run_id}: attempt {attempt} succeeded, and another one followed"
        if row["outcome"] == "lost":
            held = (row["finished_at"] - row["started_at"]) / SECOND
            if held < history.lease:
                yield f"run {run_id}: attempt {attempt} was taken away after {held} s of its lease"


# I6


def no_overlap_while_leases_hold(history: History) -> Iterator[str]:
    held: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    limits: dict[str, int] = {}
    ends = history.by_attempt("end")
    late = late_starts(history)
    for (run_id, attempt), notes in history.by_attempt("start").items():
        run = history.runs.get(run_id)
        if run is None or (run_id, attempt) in late:
            continue  # cancelled and pruned, and those have no key; or no lease held any more
        begun = notes[0]["mono"]
        over = [note["mono"] for note in ends.get((run_id, attempt), ())]
        row = history.attempts.get((run_id, attempt))
        if row is not None and row["outcome"] in ("lost", "released"):
            # From then on the lease is gone, and a process that goes on does so at its own risk.
            over.append(row["finished_at"] / SECOND - notes[0]["wall"] + begun)
        if not over:
            if run["state"] in TERMINAL:
                yield f"run {run_id}: attempt {attempt} started, and nothing ever ended it"
            continue
        for key, limit in _keys(run):
            limits[key] = limit
            held[key].append((begun, min(over), f"{run_id} attempt {attempt}"))
    for key, spans in held.items():
        running: list[tuple[float, str]] = []
        for begun, over, who in sorted(spans):
            running = [one for one in running if one[0] > begun]
            running.append((over, who))
            if len(running) > limits[key]:
                yield f"{len(running)} at the same time on {key}: {[one[1] for one in running]}"


def _keys(run: Row) -> Iterator[tuple[str, int]]:
    yield run["id"], 1
    if run["overlap_key"] is not None:
        yield f"o/{run['overlap_key']}", 1
    if run["concurrency_key"] is not None:
        yield f"c/{run['concurrency_key']}", run["concurrency_limit"]


# I7


def first_in_first_out(history: History) -> Iterator[str]:
    started: dict[str, float] = {}
    for note in sorted(history.noted("start"), key=lambda note: note["mono"]):
        started.setdefault(note["run"], note["mono"])
    lines: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for note in history.noted("acked"):
        # One that was asked for later, by whomever, stands behind it. A delayed one gets in line
        # when its time has come.
        key = note.get("concurrency_key")
        if key is not None and note.get("delay") is None and note["run"] in started:
            lines[key].append((note["asked"], note["mono"], note["run"]))
    for key, line in lines.items():
        yield from _passed(key, line, started)
    by_schedule: dict[int, list[Row]] = defaultdict(list)
    for run in history.runs.values():
        if _is_fired(run) and run["id"] in started:
            by_schedule[run["schedule_id"]].append(run)
    for schedule in history.rows["schedules"]:
        if schedule["overlap"] == "queue":
            runs = sorted(by_schedule[schedule["id"]], key=lambda run: run["occurrence"])
            for earlier, later in pairwise(runs):
                if started[later["id"]] < started[earlier["id"]]:
                    yield f"{schedule['name']}: {later['id']} started before {earlier['id']}"


def _passed(
    key: str, line: list[tuple[float, float, str]], started: dict[str, float]
) -> Iterator[str]:
    """Runs that started before one whose answer was there when the question was asked."""
    answered = sorted((acked, run_id) for _, acked, run_id in line)
    place, latest, who = 0, float("-inf"), ""
    for asked, _, run_id in sorted(line):
        while place < len(answered) and answered[place][0] < asked:
            earlier = answered[place][1]
            if started[earlier] > latest:
                latest, who = started[earlier], earlier
            place += 1
        if started[run_id] < latest:
            yield f"{run_id} passed {who} in the line for {key}"


# I8


def a_cursor_never_goes_back(history: History) -> Iterator[str]:
    seen: dict[str, int] = {}
    last = [
        {"schedule": row["name"], "cursor": row["next_fire_at"]}
        for row in history.rows["schedules"]
    ]
    for note in [*history.noted("cursor"), *last]:
        name, cursor = note["schedule"], note["cursor"]
        if cursor is None or cursor > WAITING:
            continue
        if cursor < seen.get(name, cursor):
            yield f"the cursor of {name} went from {seen[name]} to {cursor}"
        seen[name] = cursor


# I9


def everything_comes_to_its_end(history: History) -> Iterator[str]:
    for run in history.runs.values():
        if run["state"] not in TERMINAL:
            yield f"run {run['id']} of {run['job']} is still {run['state']}"
    for slot in history.rows["slots"]:
        yield f"the slot {slot['key']} is still taken, by run {slot['owner_run']}"


# U1


def no_surprise_reaches_a_user(history: History) -> Iterator[str]:
    for note in history.noted("surprise"):
        yield f"{note['by']} was answered {note['error']}"


RULES: dict[str, Callable[[History], Iterator[str]]] = {
    "I1": one_run_per_occurrence,
    "I2": no_acknowledged_run_is_lost,
    "I3": one_terminal_transition,
    "I4": attempts_are_unique_and_rise,
    "I5": nothing_settled_after_a_lost_lease,
    "I6": no_overlap_while_leases_hold,
    "I7": first_in_first_out,
    "I8": a_cursor_never_goes_back,
    "I9": everything_comes_to_its_end,
    "U1": no_surprise_reaches_a_user,
}
