"""What must hold for runs, slots and keys, after every commit and whatever went wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rota.model.run import slot_keys
from rota.model.transitions import (
    CANCELLED,
    DEAD,
    HELD,
    PAUSED,
    PENDING,
    QUEUED,
    RUNNING,
    SUCCEEDED,
    TERMINAL,
    TRANSITIONS,
    WAITING,
)
from tests.simulation.clock import SECOND
from tests.simulation.history import Violation

if TYPE_CHECKING:
    from tests.simulation.recorder import Commit, Recorder

# Which verb may move a run from where to where. A freed slot admits others everywhere.
ADMITS = {(HELD, QUEUED)}
MAY: dict[str, set[tuple[str, str]]] = {
    "promote": {(WAITING, QUEUED), (WAITING, HELD)} | ADMITS,
    "admit": ADMITS,
    "sweep": ADMITS,
    "enqueue": ADMITS,
    "prune_runs": ADMITS,
    "delete_run": ADMITS,
    "claim": {(QUEUED, RUNNING)},
    "fire": {(QUEUED, RUNNING)},  # with a claimant
    "release_forgotten_runs": {(RUNNING, QUEUED)},
    "settle": {(RUNNING, state) for state in TRANSITIONS[RUNNING].values()} | ADMITS,
    "cancel_run": {(state, CANCELLED) for state in (*PENDING, PAUSED)} | ADMITS,
    "pause_run": {(state, PAUSED) for state in PENDING},
    "resume_run": {(PAUSED, WAITING)},
    "redo_run": {(state, WAITING) for state in TERMINAL},
}
HEARD = "heard"  # the job whose executor adds a row to the end of its runs


def token(run_id: str, attempt: int) -> str:
    """What a handler returns or raises: the stored end must carry the right one."""
    return f'"{run_id} attempt {attempt}"'


def result(run_id: str, attempt: int) -> str | None:
    """What one returns that ends well: every other run has no result."""
    return None if int(run_id[-1], 16) % 2 else token(run_id, attempt)


# Runs


def check_insert(rec: Recorder, commit: Commit, run: Any) -> None:
    expected = WAITING if run.due_at > commit.now else HELD if run.wanted_key else QUEUED
    if run.state != expected:
        raise Violation(f"run {run.seq} begins {run.state}, not {expected}")
    if (run.attempt, run.failures, run.lost, run.redo) != (0, 0, 0, 0):
        raise Violation(f"run {run.seq} does not begin at zero: {run}")
    if run.retry_of is not None:
        _check_retry(rec, commit, run)
    elif run.occurrence is not None:
        if (run.schedule_id, run.occurrence) in rec.occurrences:
            raise Violation(f"a second run for {run.occurrence} of schedule {run.schedule_id}")
        rec.occurrences.add((run.schedule_id, run.occurrence))
        commit.fired.append(run)


def _check_retry(rec: Recorder, commit: Commit, run: Any) -> None:
    """on_error = retry: one more run of the same occurrence, in the commit of the death."""
    died = [end for end in commit.ended if end.id == run.retry_of and end.state == DEAD]
    if not died or (run.schedule_id, run.occurrence) != (died[0].schedule_id, died[0].occurrence):
        raise Violation(f"run {run.seq} retries {run.retry_of}, which did not die just now")


def check_update(rec: Recorder, commit: Commit, old: Any, new: Any) -> None:
    before, after = old.state, new.state
    moved = before != after
    if moved:
        _check_transition(commit, old, new)
    elif before in TERMINAL and new != old:
        raise Violation(f"run {new.seq} has ended and {commit.verb} changed it: {old} -> {new}")
    claimed = moved and after == RUNNING
    if new.attempt != old.attempt + claimed:
        raise Violation(f"run {new.seq}: attempt {old.attempt} -> {new.attempt} by {commit.verb}")
    if claimed:
        _check_claim(commit, new)
    if before == RUNNING:
        if moved:
            _check_attempt_end(rec, commit, old, new)
        elif new.lease_until != old.lease_until:
            _check_renew(commit, old, new)
    redone = before in TERMINAL and moved
    if new.redo != old.redo + redone:
        raise Violation(f"run {new.seq}: redo {old.redo} -> {new.redo} by {commit.verb}")
    counts = (0, 0) if redone else (old.failures, old.lost)
    if (new.failures, new.lost) != counts and before != RUNNING:
        raise Violation(f"run {new.seq}: failures, lost {counts} -> {new.failures, new.lost}")
    merging = commit.verb in ("fire", "resume_schedule") and before in (HELD, WAITING)
    if new.missed_count != old.missed_count and not merging:
        raise Violation(f"run {new.seq}: {commit.verb} changed missed_count while {before}")
    if moved and after in TERMINAL:
        _check_end(rec, commit, new)


def _check_transition(commit: Commit, old: Any, new: Any) -> None:
    pair = (old.state, new.state)
    if new.state not in TRANSITIONS[old.state].values() and pair != (WAITING, HELD):
        raise Violation(f"run {new.seq}: {old.state} -> {new.state} is not a transition")
    if pair not in MAY.get(commit.verb, ()):
        raise Violation(f"run {new.seq}: {commit.verb} moved it {old.state} -> {new.state}")
    if pair == (WAITING, QUEUED) and old.due_at > commit.now:
        raise Violation(f"run {new.seq} was promoted {old.due_at - commit.now} us too early")


def _check_claim(commit: Commit, run: Any) -> None:
    asks = commit.asked.claimant
    if asks is None or run.worker_id != asks.worker_id:
        raise Violation(f"run {run.seq} was claimed for {run.worker_id}")
    if run.lease_until != commit.now + round(asks.lease.total_seconds() * SECOND):
        raise Violation(f"run {run.seq}: its lease is not the one asked for")
    commit.claimed.append(run.seq)


def _check_renew(commit: Commit, old: Any, new: Any) -> None:
    held = commit.asked.args[0] if commit.verb == "renew" else ()
    if (old.seq, old.attempt) not in held:
        raise Violation(
            f"run {old.seq} attempt {old.attempt}: {commit.verb} of {commit.actor} renewed a "
            f"lease that is not its own"
        )


def _check_attempt_end(rec: Recorder, commit: Commit, old: Any, new: Any) -> None:
    if commit.verb == "release_forgotten_runs":
        _check_let_go(rec, commit, old)
        return
    commit.tried.append(new)
    settlement = next(
        (
            one
            for one in commit.asked.args[0]
            if (one.run.seq, one.run.attempt) == (old.seq, old.attempt)
        ),
        None,
    )
    if settlement is None:
        raise Violation(
            f"run {old.seq} attempt {old.attempt} was settled by {commit.actor} for another attempt"
        )
    kind = settlement.outcome.kind
    failures = old.failures + (kind in ("failed", "timed_out"))
    lost = old.lost + (kind == "lost")
    if (new.failures, new.lost) != (failures, lost):
        raise Violation(
            f"run {old.seq} {kind}: failures, lost became {new.failures, new.lost}, "
            f"not {failures, lost}"
        )
    if kind == "lost" and old.lease_until > commit.now:
        raise Violation(f"run {old.seq} was rescued before its lease ended")
    expected = _state_after(rec, old, kind, failures, lost)
    if new.state != expected:
        raise Violation(f"run {old.seq} {kind}: it became {new.state}, not {expected}")
    if new.state == SUCCEEDED and new.result != result(new.id, new.attempt):
        raise Violation(f"run {old.seq} attempt {new.attempt} stored the result {new.result}")
    if kind == "failed" and new.error != token(new.id, new.attempt):
        raise Violation(f"run {old.seq} attempt {new.attempt} stored the error {new.error}")


def _state_after(rec: Recorder, run: Any, kind: str, failures: int, lost: int) -> str:
    """The rules of settle, once more and shorter."""
    if kind == "succeeded":
        return SUCCEEDED
    if kind == "cancelled" or run.cancel_requested_at is not None:
        return CANCELLED
    if kind in ("failed", "timed_out") and failures >= run.max_attempts:
        return DEAD
    if kind == "lost" and lost >= rec.world.max_lost:
        return DEAD
    if run.pause_requested_at is not None or kind == "paused":
        return PAUSED
    return QUEUED if kind in ("lost", "released") else WAITING


def _check_let_go(rec: Recorder, commit: Commit, old: Any) -> None:
    if old.worker_id != commit.asked.args[0]:
        raise Violation(f"{commit.asked.args[0]} let go of a run of {old.worker_id}")
    process = commit.actor.process
    assert process is not None
    if process.knows(old.seq, old.attempt):
        raise Violation(f"{commit.actor} let go of run {old.seq}, which it knows")


def _check_end(rec: Recorder, commit: Commit, run: Any) -> None:
    if (run.id, run.redo) in rec.ends:
        raise Violation(f"run {run.seq} ended twice: {rec.ends[run.id, run.redo]}, {run.state}")
    rec.ends[run.id, run.redo] = (run.attempt, run.state)
    commit.ended.append(run)


def check_delete(rec: Recorder, commit: Commit, run: Any) -> None:
    match commit.verb:
        case "delete_run":
            legal = run.state != RUNNING
        case "prune_runs":
            age = round(commit.asked["age_seconds"] * SECOND)
            newer = sum(r.job == run.job and r.seq > run.seq for r in rec.runs.values())
            legal = (
                run.state in TERMINAL
                and run.finished_at < commit.now - age
                and newer >= commit.asked["keep_last"]
            )
        case _:
            legal = False
    if not legal:
        raise Violation(f"run {run.seq} {run.state} was deleted by {commit.verb}")


def check_attempt_row(rec: Recorder, commit: Commit, row: Any, how: str) -> None:
    match how:
        case "insert":
            commit.attempts[row.run_seq, row.number] = row.outcome
        case "update":
            raise Violation(f"attempt {row.number} of run {row.run_seq} was rewritten")


# Claims


def to_claim(rec: Recorder, commit: Commit, line: Sequence[Any]) -> list[int]:
    """What a commit must claim, in order, of what was in line before and what it made itself. A
    fire that made nothing claims nothing."""
    asks = commit.asked.claimant
    fires = commit.verb == "fire"
    if asks is None or (fires and not commit.fired) or rec.meta.get("dispatch", "on") != "on":
        return []
    found = [
        run
        for run in (*line, *commit.fired)
        if run.state == QUEUED
        and run.job in asks.jobs
        and rec.queues.get(run.queue) is False
        and (not asks.queues or run.queue in asks.queues)
    ]
    found.sort(key=lambda run: (-run.priority, run.due_at, run.seq))
    return [run.seq for run in found[: asks.limit]]


def _check_claims(rec: Recorder, commit: Commit) -> None:
    expected = commit.to_claim
    if sorted(commit.claimed) != sorted(expected):  # their order is that of the answer
        raise Violation(f"{commit.actor} claimed {commit.claimed}; in order were {expected}")
    for key in {key for seq in commit.claimed for key in needs(rec.runs[seq])}:
        running = [
            run
            for run in rec.runs.values()
            if run.state == RUNNING and run.lease_until > commit.now and key in needs(run)
        ]
        if len(running) > max((size(run, key) for run in running), default=0):
            raise Violation(f"{len(running)} runs of the key {key} run at the same time")


def check_claim_answer(rec: Recorder, commit: Commit, answer: Sequence[Any]) -> None:
    if [run.seq for run in answer] != commit.to_claim:
        raise Violation(f"{commit.actor} claimed {answer}, and {commit.to_claim} were ready")


# Slots


def needs(run: Any) -> tuple[str, ...]:
    return slot_keys(run.overlap_key, run.concurrency_key)


def size(run: Any, key: str) -> int:
    return run.concurrency_limit if key.startswith("c/") else 1


def check_slot(rec: Recorder, commit: Commit, row: Any, how: str) -> None:
    """A slot goes to the head of its line. One that fire takes finds nobody in line."""
    if how != "insert":
        return
    line = sorted(
        (run for run in rec.runs.values() if run.state == HELD and run.wanted_key == row.key),
        key=lambda run: (-run.priority, run.seq),
    )
    head = line[0].seq if line else row.owner_run
    if row.owner_run != head:
        raise Violation(f"run {row.owner_run} passed run {head} in the line for {row.key}")
    owner = rec.runs.get(row.owner_run)
    if owner is not None and row.number > size(owner, row.key):
        raise Violation(f"run {owner.seq} took slot {row.number} of {row.key}")


def _check_slots(rec: Recorder, commit: Commit, seq: int) -> None:
    """What a run wants and what it owns are two ways to say the same."""
    owned, run = rec.owned.get(seq, set()), rec.runs.get(seq)
    if run is None or run.state in TERMINAL:
        if owned:
            raise Violation(f"run {seq} is over and owns {sorted(owned)} after {commit.verb}")
        return
    needed = needs(run)
    missing = needed if run.wanted_key is None else needed[needed.index(run.wanted_key) :]
    expected = set(needed) if run.wanted_key is None else set(needed) - set(missing)
    if owned != expected:
        raise Violation(
            f"run {seq} {run.state} wants {run.wanted_key} and owns {sorted(owned)}, "
            f"not {sorted(expected)}, after {commit.verb}"
        )


# Enqueues and their keys


def check_enqueue_answer(rec: Recorder, commit: Commit, answer: list[Any]) -> None:
    """Who got an answer has a run: its own, or the one that had the key."""
    for new, owner, enqueued in zip(commit.asked.args[0], commit.key_owners, answer, strict=True):
        if enqueued.id not in rec.ever:
            raise Violation(f"enqueue answered {enqueued.id}, and no such run was made")
        if new.key is not None and owner.run_id != enqueued.id:
            raise Violation(f"enqueue answered {enqueued.id}; {owner} has the key")
        if enqueued.created != (enqueued.id == new.id):
            raise Violation(f"enqueue of {new.id} answered {enqueued}")
        rec.acknowledged.add(enqueued.id)


def check_key(rec: Recorder, commit: Commit, row: Any, how: str) -> None:
    old = rec.keys.get((row.job, row.key))
    match how:
        case "update" if old.run_id != row.run_id:
            if old.until is None or old.until > commit.now:
                raise Violation(f"the key {row.key} went from {old.run_id} to {row.run_id}")
        case "delete":
            if old.run_id not in commit.deleted:
                raise Violation(f"the key {row.key} was removed and its run was not")


# The whole commit


def check_commit(rec: Recorder, commit: Commit) -> None:
    for seq in commit.runs:
        _check_slots(rec, commit, seq)
        run = rec.runs.get(seq)
        if run is not None:
            _check_columns(run)
    if commit.claimed:
        _check_claims(rec, commit)
    for run in commit.tried:
        plain = run.attempt == 1 and run.state == SUCCEEDED
        if ((run.seq, run.attempt) in commit.attempts) == plain:
            raise Violation(f"run {run.seq}: attempt {run.attempt} ended and was not kept")
    expected = [(run.id, run.redo, run.state) for run in commit.ended if run.job == HEARD]
    if sorted(map(tuple, commit.heard)) != sorted(expected):
        raise Violation(f"executors added {commit.heard} to the ends {expected}")


def _check_columns(run: Any) -> None:
    if (run.lease_until is not None) != (run.state == RUNNING):
        raise Violation(f"run {run.seq} {run.state} has the lease {run.lease_until}")
    if (run.finished_at is not None) != (run.state in TERMINAL):
        raise Violation(f"run {run.seq} {run.state} has finished_at {run.finished_at}")
    if run.state == HELD and run.wanted_key is None:
        raise Violation(f"run {run.seq} is held and wants nothing")
    if run.state in (QUEUED, RUNNING) and run.wanted_key is not None:
        raise Violation(f"run {run.seq} is {run.state} and wants {run.wanted_key}")
