"""Workers that are alive, and locks that handlers take."""

from __future__ import annotations

from rota.storage import rows
from rota.storage.engine import Row, Transaction
from rota.storage.operation import single_statement


@single_statement
def put_worker(tx: Transaction, worker: Row) -> None:
    """Say that a worker is alive, and what it knows."""
    tx.many("put_worker", [worker])


@single_statement
def forget_worker(tx: Transaction, worker_id: str) -> None:
    tx.many("forget_worker", [{"id": worker_id}])


@single_statement
def forget_old_workers(tx: Transaction, age_seconds: float) -> None:
    tx.many("forget_old_workers", [{"age_seconds": age_seconds}])


def list_workers(tx: Transaction, *, after: str = "", limit: int) -> list[Row]:
    found = tx.all("list_workers", after=after, limit=limit)
    for row in found:
        row["jobs"], row["queues"] = rows.from_json(row["jobs"]), rows.from_json(row["queues"])
    return found


@single_statement
def acquire_lock(tx: Transaction, name: str, owner: str, ttl_seconds: float) -> int | None:
    """A fencing token, or None while somebody else holds it."""
    row = {"name": name, "owner": owner, "ttl_seconds": ttl_seconds}
    got = tx.many("acquire_lock", [row])
    return got[0]["token"] if got else None


@single_statement
def extend_lock(tx: Transaction, name: str, token: int, ttl_seconds: float) -> bool:
    row = {"name": name, "token": token, "ttl_seconds": ttl_seconds}
    return bool(tx.many("extend_lock", [row]))


@single_statement
def release_lock(tx: Transaction, name: str, token: int) -> bool:
    return bool(tx.many("release_lock", [{"name": name, "token": token}]))


def list_locks(tx: Transaction, *, after: str = "", limit: int) -> list[Row]:
    return tx.all("list_locks", after=after, limit=limit)
