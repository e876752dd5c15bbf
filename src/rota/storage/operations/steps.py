"""Steps of SQL runs: the texts a run began with, what was begun, and what is done.

Everything here is fenced by (seq, attempt): an attempt that lost its lease gets LeaseLost and
changes nothing. "Done" is a row of its own, written in the transaction that did the work where
that is in this database; so after a crash anywhere a step is done with its work, or neither is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

from rota.errors import LeaseLost
from rota.model.limits import PAGE
from rota.model.steps import StepDone, StepFile
from rota.storage import rows
from rota.storage.engine import Row, Transaction
from rota.storage.operation import only_if

# The `id` of a run in the view job_runs: its seq, with room for the steps of all its attempts.
ID_OF_SEQ = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StepKey:
    """One step of one attempt."""

    seq: int
    attempt: int
    number: int

    @property
    def row(self) -> Row:
        return {"seq": self.seq, "attempt": self.attempt, "number": self.number}


def keep_files(tx: Transaction, seq: int, attempt: int, files: Sequence[StepFile]) -> None:
    """Keep what a run begins with. What an earlier attempt kept stays."""
    _fence(tx, seq, attempt)
    _put_texts(tx, files)
    tx.many(
        "insert_run_files",
        [
            {"seq": seq, "number": file.number, "name": file.name, "hash": file.hash}
            for file in files
        ],
    )


def keep_texts(tx: Transaction, files: Sequence[StepFile]) -> None:
    """Keep texts that no run has begun with, for as long as those that no run refers to."""
    _put_texts(tx, files)


def texts_of(tx: Transaction, hashes: Collection[str]) -> dict[str, str]:
    """Texts by their hashes, as far as they are kept."""
    found = tx.all("texts_of", hashes=sorted(hashes))
    return {row["hash"]: row["text"] for row in found}


def kept_files(tx: Transaction, seq: int) -> list[StepFile]:
    found = tx.all("run_files", seq=seq)
    return [
        StepFile(
            number=row["number"],
            name=row["name"],
            text=row["text"],
            variables=tuple(rows.from_json(row["names"])),
        )
        for row in found
    ]


def done_steps(tx: Transaction, seq: int, attempt: int | None = None) -> set[int]:
    """Numbers of the steps that are done; with `attempt`, by that attempt alone."""
    found = tx.all("done_steps", seq=seq, attempt=attempt)
    return {row["number"] for row in found}


def begin_step(tx: Transaction, key: StepKey, file: StepFile) -> None:
    _fence(tx, key.seq, key.attempt)
    tx.all("put_step", **key.row, name=file.name, hash=file.hash)


def end_step(tx: Transaction, key: StepKey, status: str, error: str) -> None:
    """A step that did not do its work. Late is better than never: it is not fenced, because
    the row is this attempt's own."""
    tx.all("end_step", **key.row, status=status, error=error)


def finish_step(tx: Transaction, key: StepKey, done: StepDone, note: str | None) -> None:
    """A step whose work was committed elsewhere, before this."""
    _fence(tx, key.seq, key.attempt)
    _mark(tx, key, done)
    if note is not None:
        tx.all("note_step", **key.row, note=note)


def commit_step(tx: Transaction, key: StepKey, done: StepDone, renew: timedelta | None) -> None:
    """Mark it done in the transaction that did its work, and make its worker's lease last where
    that transaction kept the worker from it."""
    _mark(tx, key, done)
    if renew is not None:
        tx.all("renew_worker", seq=key.seq, lease_seconds=renew.total_seconds())


def holds_run(tx: Transaction, key: StepKey) -> bool:
    """Whether the run is still this attempt's; if so, it is until the transaction ends."""
    return tx.one("fence_run", seq=key.seq, attempt=key.attempt) is not None


def has_mark(tx: Transaction, key: StepKey) -> bool:
    """Whether a step was committed whose COMMIT was not answered. Waits for the transaction
    that may still be under way: it holds the row of its run until it ends."""
    tx.all("lock_run_by_seq", seq=key.seq)
    return tx.one("step_mark", **key.row) is not None


def _mark(tx: Transaction, key: StepKey, done: StepDone) -> None:
    tx.all("insert_mark", **key.row, rows=done.rows, result=done.result)


def _fence(tx: Transaction, seq: int, attempt: int) -> None:
    if tx.one("fence_run", seq=seq, attempt=attempt) is None:
        raise lease_lost(seq)


def pause_requested(tx: Transaction, seq: int, attempt: int) -> bool:
    row = requests_of_attempt(tx, seq, attempt)
    return row is not None and row["pause_requested_at"] is not None


def requests_of_attempt(tx: Transaction, seq: int, attempt: int) -> Row | None:
    """What was asked of an attempt; None if it is no longer its worker's."""
    return tx.one("pause_request", seq=seq, attempt=attempt)


def list_steps(tx: Transaction, seq: int, *, limit: int = PAGE) -> list[Row]:
    """What each attempt began, in order."""
    return tx.all("list_steps", seq=seq, limit=limit)


def view_rows(tx: Transaction, name: str, *, runs: int, limit: int) -> list[Row]:
    """What a view shows, instants as the view writes them; of job_runs the latest `runs`, and
    what failed before them."""
    if name != "job_runs":
        return tx.all(f"view_{name}", limit=limit)
    latest = tx.one("latest_seq")
    first = 0 if latest is None else latest["seq"] - runs + 1
    return tx.all("view_job_runs", first_id=first * ID_OF_SEQ, limit=limit)


def old_texts(tx: Transaction, *, age_seconds: float, limit: int) -> list[Row]:
    """The hashes of texts that no run has referred to for so long."""
    return tx.all("old_texts", age_seconds=age_seconds, limit=limit)


@only_if(old_texts, nothing=0)
def prune_texts(tx: Transaction, *, age_seconds: float, limit: int) -> int:
    """Delete a bounded number of texts that no run refers to; how many."""
    old = old_texts(tx, age_seconds=age_seconds, limit=limit)
    tx.many("delete_texts", old)
    return len(old)


def _put_texts(tx: Transaction, files: Sequence[StepFile]) -> None:
    texts = {file.hash: file for file in files}
    # Sorted, so that two runs of one folder never wait for each other's texts.
    tx.many(
        "put_texts",
        [
            {"hash": key, "text": file.text, "names": rows.to_json(file.variables)}
            for key, file in sorted(texts.items())
        ],
    )


def lease_lost(seq: int) -> LeaseLost:
    return LeaseLost(f"run {seq} is no longer this worker's; another one goes on with it")
