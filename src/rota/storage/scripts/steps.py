"""Steps of SQL runs: the texts a run began with, what was begun, and what is done.

Everything here is fenced by (seq, attempt): an attempt that lost its lease gets LeaseLost and
changes nothing. "Done" is a row of its own, written in the transaction that did the work where
that is in this database; so after a crash anywhere a step is done with its work, or neither is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rota.errors import LeaseLost, StorageError, Unavailable
from rota.model.limits import PAGE
from rota.model.steps import AT_LEAST_ONCE, StepDone, StepFile
from rota.storage import rows
from rota.storage.engine import EngineStep, Row, Transaction
from rota.storage.scripts.base import Script

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


class StepsScript(Script):
    def keep_files(self, seq: int, attempt: int, files: Sequence[StepFile]) -> None:
        """Keep what a run begins with. What an earlier attempt kept stays."""

        def work(tx: Transaction) -> None:
            self._fence(tx, seq, attempt)
            _put_texts(tx, files)
            tx.many(
                "insert_run_files",
                [
                    {"seq": seq, "number": file.number, "name": file.name, "hash": file.hash}
                    for file in files
                ],
            )

        self.engine.write("keep_files", work)

    def keep_texts(self, files: Sequence[StepFile]) -> None:
        """Keep texts that no run has begun with, for as long as those that no run refers to."""
        self.engine.write("keep_texts", lambda tx: _put_texts(tx, files))

    def texts_of(self, hashes: Collection[str]) -> dict[str, str]:
        """Texts by their hashes, as far as they are kept."""
        found = self.engine.read(lambda tx: tx.all("texts_of", hashes=sorted(hashes)))
        return {row["hash"]: row["text"] for row in found}

    def kept_files(self, seq: int) -> list[StepFile]:
        found = self.engine.read(lambda tx: tx.all("run_files", seq=seq))
        return [
            StepFile(
                number=row["number"],
                name=row["name"],
                text=row["text"],
                variables=tuple(rows.from_json(row["names"])),
            )
            for row in found
        ]

    def done_steps(self, seq: int, attempt: int | None = None) -> set[int]:
        """Numbers of the steps that are done; with `attempt`, by that attempt alone."""
        found = self.engine.read(lambda tx: tx.all("done_steps", seq=seq, attempt=attempt))
        return {row["number"] for row in found}

    def begin_step(self, key: StepKey, file: StepFile) -> None:
        def work(tx: Transaction) -> None:
            self._fence(tx, key.seq, key.attempt)
            tx.all("put_step", **key.row, name=file.name, hash=file.hash)

        self.engine.write("begin_step", work)

    def end_step(self, key: StepKey, status: str, error: str) -> None:
        """A step that did not do its work. Late is better than never: it is not fenced, because
        the row is this attempt's own."""
        self.engine.write(
            "end_step", lambda tx: tx.all("end_step", **key.row, status=status, error=error)
        )

    def finish_step(self, key: StepKey, done: StepDone, note: str | None) -> None:
        """A step whose work was committed elsewhere, before this."""

        def work(tx: Transaction) -> None:
            self._fence(tx, key.seq, key.attempt)
            self._mark(tx, key, done)
            if note is not None:
                tx.all("note_step", **key.row, note=note)

        self.engine.write("finish_step", work)

    @contextmanager
    def step(
        self, key: StepKey, lease: timedelta, stopped: Callable[[], bool] = lambda: False
    ) -> Iterator[StepInStore]:
        """A transaction on this database for the work of a step and its mark."""
        with self.engine.step("step", stopped) as opened:
            yield StepInStore(self, opened, key, lease)

    def _commit(self, opened: EngineStep, key: StepKey, done: StepDone, lease: timedelta) -> None:
        """Both or neither."""

        def is_ours(tx: Transaction) -> bool:
            return tx.one("fence_run", seq=key.seq, attempt=key.attempt) is not None

        def mark(tx: Transaction) -> None:
            self._mark(tx, key, done)
            if opened.holds_writes:
                tx.all("renew_worker", seq=key.seq, lease_seconds=lease.total_seconds())

        try:
            if not opened.commit(is_ours, mark):
                raise _lost(key.seq)
        except Unavailable as fault:
            if not fault.maybe_committed or not self._was_committed(key):
                raise

    def _was_committed(self, key: StepKey) -> bool:
        try:
            return self.has_mark(key)
        except Unavailable as away:
            away.maybe_committed = True  # still nobody knows
            raise

    def has_mark(self, key: StepKey) -> bool:
        """Whether a step was committed whose COMMIT was not answered. Waits for the transaction
        that may still be under way: it holds the row of its run until it ends."""

        def work(tx: Transaction) -> bool:
            tx.all("lock_run_by_seq", seq=key.seq)
            return tx.one("step_mark", **key.row) is not None

        return self.engine.write("has_mark", work)

    def _mark(self, tx: Transaction, key: StepKey, done: StepDone) -> None:
        tx.all("insert_mark", **key.row, rows=done.rows, result=done.result)

    def _fence(self, tx: Transaction, seq: int, attempt: int) -> None:
        if tx.one("fence_run", seq=seq, attempt=attempt) is None:
            raise _lost(seq)

    def pause_requested(self, seq: int, attempt: int) -> bool:
        row = self._request(seq, attempt)
        return row is not None and row["pause_requested_at"] is not None

    def _check_ours(self, key: StepKey) -> None:
        """The fence where nothing can be locked: what is read may be over a moment later."""
        if self._request(key.seq, key.attempt) is None:
            raise _lost(key.seq)

    def _request(self, seq: int, attempt: int) -> Row | None:
        """What was asked of an attempt; None if it is no longer its worker's."""
        return self.engine.read(lambda tx: tx.one("pause_request", seq=seq, attempt=attempt))

    def list_steps(self, seq: int, *, limit: int = PAGE) -> list[Row]:
        """What each attempt began, in order."""
        return self.engine.read(lambda tx: tx.all("list_steps", seq=seq, limit=limit))

    def view_rows(self, name: str, *, runs: int, limit: int) -> list[Row]:
        """What a view shows, instants as the view writes them; of job_runs the latest `runs`, and
        what failed before them."""

        def work(tx: Transaction) -> list[Row]:
            if name != "job_runs":
                return tx.all(f"view_{name}", limit=limit)
            latest = tx.one("latest_seq")
            first = 0 if latest is None else latest["seq"] - runs + 1
            return tx.all("view_job_runs", first_id=first * ID_OF_SEQ, limit=limit)

        return self.engine.read(work)

    def prune_texts(self, *, age_seconds: float, limit: int) -> int:
        """Delete a bounded number of texts that no run refers to."""

        def find(tx: Transaction) -> list[Row]:
            return tx.all("old_texts", age_seconds=age_seconds, limit=limit)

        def work(tx: Transaction) -> int:
            old = find(tx)
            tx.many("delete_texts", old)
            return len(old)

        # Mostly there is nothing: then nobody has to wait for the one lock that all writes share.
        if self.engine.one_writer and not self.engine.read(find):
            return 0
        return self.engine.write("prune_texts", work)


class StepInStore:
    """What an executor is handed: see `model.steps.StepTransaction`."""

    def __init__(
        self, script: StepsScript, opened: EngineStep, key: StepKey, lease: timedelta
    ) -> None:
        self._script, self._opened, self._key, self._lease = script, opened, key, lease
        self.connection: Any = opened.connection
        self.is_over = False

    def commit(self, done: StepDone) -> None:
        if self.is_over:
            raise StorageError("this step has ended; begin another one")
        self.is_over = True
        if self._opened.alone:
            self._script._commit(self._opened, self._key, done, self._lease)
        else:
            # Several files do not commit at one instant: what was done must be there first. Who
            # lost his lease long ago does nothing all the same.
            self._script._check_ours(self._key)
            self._opened.commit_plain()
            self._script.finish_step(self._key, done, AT_LEAST_ONCE)


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


def _lost(seq: int) -> LeaseLost:
    return LeaseLost(f"run {seq} is no longer this worker's; another one goes on with it")
