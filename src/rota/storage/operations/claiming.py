"""Claim, renew, and what a worker writes while it runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from rota.model.run import ClaimedRun
from rota.storage import rows
from rota.storage.engine import Transaction
from rota.storage.operation import single_statement


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """A worker that has room for `limit` runs. `queues` empty means all of them; `jobs` are the
    names it knows."""

    worker_id: str
    queues: Sequence[str]
    jobs: Sequence[str]
    limit: int
    lease: timedelta


@dataclass(frozen=True, slots=True)
class Renewed:
    """A run whose lease we still have, and what was asked of it meanwhile. One that is not
    `renewed` is held by another transaction, and has the lease that it had."""

    seq: int
    cancel_requested: bool
    pause_requested: bool
    renewed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    run_seq: int
    attempt: int
    at: datetime
    level: str
    text: str


def claim(
    tx: Transaction,
    worker_id: str,
    *,
    queues: Sequence[str],
    jobs: Sequence[str],
    limit: int,
    lease: timedelta,
) -> list[ClaimedRun]:
    """The next runs for this worker, in order, each with a fresh attempt number."""
    asks = ClaimRequest(worker_id=worker_id, queues=queues, jobs=jobs, limit=limit, lease=lease)
    claimed = claim_rows(tx, asks)
    return rows.claimed_in_order(claimed)


def claim_rows(tx: Transaction, asks: ClaimRequest) -> list[tuple[Any, ...]]:
    """In any order. What was picked is there to be claimed: it is locked, and on SQLite and DuckDB
    no other transaction writes meanwhile."""
    told = {"jobs": list(asks.jobs), "limit": asks.limit}
    queues = [queue for (queue,) in tx.tuples("open_queues", queues=list(asks.queues))]
    if len(queues) == 1:
        whole = tx.tuples("pick_whole_runs", queue=queues[0], **told)
        _take_picked(tx, asks, [row[0] for row in whole])
        return whole
    picked: list[tuple[int, Any, int]] = []
    for queue in queues:
        picked += tx.tuples("pick_runs", queue=queue, **told)
    picked.sort()
    seqs = [seq for _, _, seq in picked[: asks.limit]]
    _take_picked(tx, asks, seqs)
    return tx.tuples("claimed_runs", seqs=seqs) if seqs else []


def _take_picked(tx: Transaction, asks: ClaimRequest, seqs: list[int]) -> None:
    if seqs:
        lease_seconds = asks.lease.total_seconds()
        tx.tuples("claim_runs", seqs=seqs, worker_id=asks.worker_id, lease_seconds=lease_seconds)


def release_forgotten_runs(tx: Transaction, worker_id: str, known: Collection[int]) -> int:
    """Give back runs that a claim with a lost answer made ours."""
    return len(tx.all("release_forgotten_runs", worker_id=worker_id, known=list(known)))


@single_statement
def renew(tx: Transaction, held: Sequence[tuple[int, int]], lease: timedelta) -> list[Renewed]:
    """Extend the lease of (seq, attempt) pairs; the ones that are not answered are lost."""
    asked = [
        {"seq": seq, "attempt": attempt, "lease_seconds": lease.total_seconds()}
        for seq, attempt in sorted(held)
    ]
    return [
        Renewed(
            row["seq"],
            row["cancel_requested_at"] is not None,
            row["pause_requested_at"] is not None,
            bool(row["renewed"]),
        )
        for row in tx.many("renew_runs", asked)
    ]


def cancel_requests(tx: Transaction, seqs: Sequence[int]) -> list[int]:
    """Which of these running runs somebody asked to end."""
    found = tx.all("cancel_requests", seqs=list(seqs))
    return [row["seq"] for row in found]


@single_statement
def set_progress(tx: Transaction, seq: int, attempt: int, progress: str) -> None:
    tx.many("set_progress", [{"seq": seq, "attempt": attempt, "progress": progress}])


@single_statement
def insert_logs(tx: Transaction, lines: Sequence[LogLine]) -> None:
    """Captured lines; the caller bounds their number and length."""
    tx.many(
        "insert_logs",
        [
            {
                "run_seq": line.run_seq,
                "attempt": line.attempt,
                "at": line.at,
                "level": line.level,
                "text": line.text,
            }
            for line in lines
        ],
    )
