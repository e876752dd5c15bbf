"""Settle: end attempts, hand slots on, and let a schedule go on, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import lt
from typing import Any

import msgspec

from rota.model.limits import REASON_LENGTH
from rota.model.outcome import Settlement
from rota.model.redact import shorten
from rota.model.run import ClaimedRun, Run
from rota.model.schedule import WAITING_FOR_RUN
from rota.model.transitions import DEAD, SUCCEEDED, TERMINAL
from rota.storage import rows
from rota.storage.engine import Row, Transaction
from rota.storage.operations.delays import restart_delays
from rota.storage.operations.reactions import react_to_dead_runs
from rota.storage.operations.slots import admit

BLOCKED_SECONDS = 3.0


# Asked inside the last transaction of a run: the (SQL, parameters) to commit with it; without SQL,
# the statement of a control row.
OnTerminated = Callable[[Run], Sequence[tuple[str | None, dict[str, Any]]]]


class Settled(msgspec.Struct, frozen=True):
    """What the row says now. A settlement that is not answered was fenced out."""

    seq: int
    state: str
    restarted: bool = False  # its schedule waited for this end, and counts from now on


def settle(
    tx: Transaction, settlements: Sequence[Settlement], on_terminated: OnTerminated | None = None
) -> list[Settled]:
    """Write the outcomes of attempts that still hold their lease."""
    plain, others = divide(settlements, on_terminated)
    if not tx.writes_alone:
        return _settle(tx, sorted(plain + others, key=lambda one: one.run.seq), on_terminated)
    done = _succeed(tx, plain) if plain else []
    if others:
        done += _settle(tx, others, on_terminated)
    return done


def divide(
    settlements: Sequence[Settlement], on_terminated: OnTerminated | None
) -> tuple[list[Settlement], list[Settlement]]:
    """Plain successes, which concern their row alone, and the others."""
    plain: list[Settlement] = []
    others: list[Settlement] = []
    for one in _latest(settlements):
        (plain if one.is_simple_success and on_terminated is None else others).append(one)
    return plain, others


def held_elsewhere(tx: Transaction, settlements: Sequence[Settlement]) -> set[int]:
    """Seqs of those that cannot be written now because a stranger's transaction holds their
    rows. Asked only where transactions hold rows: one writer at a time has the whole store."""
    found = tx.tuples(
        "held_elsewhere",
        seq=[one.run.seq for one in settlements],
        attempt=[one.run.attempt for one in settlements],
        schedule_id=[one.run.schedule_id for one in settlements],
        dies=[one.state == DEAD for one in settlements],
        waiting_at=WAITING_FOR_RUN,
    )
    return {seq for (seq,) in found}


def _succeed(tx: Transaction, plain: Sequence[Settlement]) -> list[Settled]:
    """The hot path: what most runs do."""
    silent = {one.run.seq: one.ran_seconds for one in plain if one.outcome.result is None}
    telling = [one for one in plain if one.outcome.result is not None]

    # One write at a time: what is not ours now is not updated.
    lost = set(tx.values("lost_first_attempts", seqs=[one.run.seq for one in plain]))
    if silent:
        tx.tuples("succeed_silent_runs", ran_seconds=silent)
    if telling:
        tx.columns(
            "succeed_runs",
            seq=[one.run.seq for one in telling],
            ran_seconds=[one.ran_seconds for one in telling],
            result=[one.outcome.result for one in telling],
        )
    return [Settled(one.run.seq, SUCCEEDED) for one in plain if one.run.seq not in lost]


def _settle(
    tx: Transaction,
    settlements: Sequence[Settlement],
    on_terminated: OnTerminated | None,
) -> list[Settled]:
    if tx.blocked_within(BLOCKED_SECONDS):
        # Whoever kept everybody from writing kept workers from renewing: a lease that ran out
        # meanwhile says nothing. Rescue looks again after a lease of patience.
        settlements = [one for one in settlements if not one.expired_only]
    done = tx.many("settle_runs", [rows.settlement_row(one) for one in settlements])
    states = {row["seq"]: row for row in done}
    settled = [one for one in settlements if one.run.seq in states]
    tx.many(
        "insert_attempts",
        [
            _attempt_row(one, states[one.run.seq])
            for one in settled
            if not (one.run.attempt == 1 and one.state == "succeeded")
        ],
    )
    ended = [one for one in settled if states[one.run.seq]["state"] in TERMINAL]
    # Schedules before slots: fire takes its locks in this order too.
    over = {one.run.seq: (one.run.schedule_id, one.run.occurrence) for one in ended}
    restarted = restart_delays(tx, over.values())
    react_to_dead_runs(tx, [one for one in ended if states[one.run.seq]["state"] == DEAD])
    _hand_on(tx, settled, ended)
    if on_terminated is not None:
        for one in ended:
            add_to_end(tx, one.run.seq, on_terminated)
    return [Settled(seq, row["state"], over.get(seq) in restarted) for seq, row in states.items()]


def _hand_on(tx: Transaction, settled: Sequence[Settlement], ended: Sequence[Settlement]) -> None:
    """Slots that became free go to the runs that wait for them, in this transaction."""
    over = {one.run.seq for one in ended}
    giving = [
        {"seq": one.run.seq}
        for one in settled
        if one.run.owns_slots and (one.gives_back_slots or one.run.seq in over)
    ]
    freed = {row["key"] for row in tx.many("release_slots", giving)}
    admit(tx, freed)


def add_to_end(tx: Transaction, seq: int, on_terminated: OnTerminated) -> None:
    """An executor's own statements. If they fail the run ends all the same, and says so."""
    row = tx.one("run_by_seq", seq=seq)
    assert row is not None
    run = rows.run(row)
    try:
        with tx.savepoint():
            for sql, params in on_terminated(run):
                if sql is None:
                    tx.all("ask", requested_by=f"run {run.id}", **params)
                else:
                    tx.text(sql, params)
    except Exception as fault:
        tx.many(
            "insert_events",
            [
                {
                    "kind": "run.on_terminated_failed",
                    "run_id": run.id,
                    "name": run.job,
                    "detail": shorten(str(fault), REASON_LENGTH),
                }
            ],
        )


def _latest(settlements: Sequence[Settlement]) -> list[Settlement]:
    """One for each run: the answers name the run only, and an earlier attempt has lost it.

    In the order of seq, as renew has them, so that the two never wait for each other's rows.
    """
    seqs = [one.run.seq for one in settlements]
    if all(map(lt, seqs, seqs[1:])):  # the usual case: as they were claimed
        return list(settlements)
    latest: dict[int, Settlement] = {}
    for one in sorted(settlements, key=lambda one: one.run.attempt):
        latest[one.run.seq] = one
    return [latest[seq] for seq in sorted(latest)]


def _attempt_row(settlement: Settlement, row: Row) -> Row:
    return {
        "run_seq": settlement.run.seq,
        "number": settlement.run.attempt,
        "worker_id": row["worker_id"],
        # One that was let go before its handler began has never started.
        "started_at": None if settlement.never_began else row["started_at"],
        "outcome": settlement.attempt_outcome,
        "error": settlement.outcome.error,
    }


def expired_runs(tx: Transaction, limit: int, without: Collection[int] = ()) -> list[ClaimedRun]:
    """Runs whose lease has run out. Settling them as lost checks the lease again."""
    found = tx.tuples("expired_runs", limit=limit, without=list(without))
    return [rows.claimed(row) for row in found]
