"""A run: one durable request to do a job once; and an attempt: one numbered try of it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha1
from typing import overload

import msgspec

from rota.model.duration import micros

# Namespace of ids that derive from an occurrence. It must never change: an occurrence has the
# same id in every process and every version.
OCCURRENCES = uuid.UUID("6f0d1f3e-2b1a-5c57-9d0e-7f1d9a0c4b52")

_OCCURRENCES = sha1(OCCURRENCES.bytes, usedforsecurity=False)  # hashed prefix of all ids
_VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}

RUN_ID = str(uuid.UUID(int=0))  # the shape of an id


def occurrence_id(schedule_id: int, occurrence: datetime) -> str:
    """The id of the run of an occurrence."""
    return occurrence_ids([schedule_id], occurrence)[0]


def occurrence_ids(schedule_ids: Iterable[int], occurrence: datetime) -> list[str]:
    """The ids of the runs of many schedules at the same instant."""
    # As uuid.uuid5, without an object for each: one fire may need thousands of ids.
    instant = micros(occurrence)
    ids = []
    for schedule_id in schedule_ids:
        digest = _OCCURRENCES.copy()
        digest.update(b"%d|%d" % (schedule_id, instant))
        text = digest.hexdigest()
        variant = _VARIANTS[text[16]]
        ids.append(f"{text[:8]}-{text[8:12]}-5{text[13:16]}-{variant}{text[17:20]}-{text[20:32]}")
    return ids


def begins_run_id(text: str) -> bool:
    """True if a run id can begin with this text."""
    return len(text) <= len(RUN_ID) and all(
        (letter == "-") == (expected == "-") and letter in "0123456789abcdef-"
        for letter, expected in zip(text, RUN_ID, strict=False)
    )


def slot_keys(overlap_key: str | None, concurrency_key: str | None) -> tuple[str, ...]:
    """The slots a run needs, in the order of acquisition.

    Overlap comes first: a run that waits for its concurrency slot is the first of its overlap line
    anyway. The same order for all runs means that no two runs wait for each other.
    """
    overlap = () if overlap_key is None else (f"o/{overlap_key}",)
    concurrency = () if concurrency_key is None else (f"c/{concurrency_key}",)
    return overlap + concurrency


# Structs instead of dataclasses where an object is made per run: msgspec creates them in C.


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run to insert. `delay` or `due_at` (never both) set a future due time."""

    id: str
    job: str
    queue: str
    args: str
    priority: int = 0
    delay: timedelta | None = None
    due_at: datetime | None = None
    max_attempts: int = 1
    timeout: timedelta | None = None
    backoff: str | None = None
    key: str | None = None
    key_ttl: timedelta | None = None
    overlap_key: str | None = None
    concurrency_key: str | None = None
    concurrency_limit: int = 1
    schedule_id: int | None = None
    occurrence: datetime | None = None
    retry_of: str | None = None
    created_by: str | None = None
    correlation_id: str | None = None
    trace: str | None = None

    @property
    def wanted_key(self) -> str | None:
        if self.overlap_key is None and self.concurrency_key is None:
            return None
        return slot_keys(self.overlap_key, self.concurrency_key)[0]


class BulkRuns(Sequence[NewRun]):
    """Runs that differ only in id and arguments, without an idempotency key.

    They are inserted from one template, without an object for each run."""

    def __init__(self, template: NewRun, ids: Sequence[str], args: Sequence[str]) -> None:
        assert template.key is None
        self.template, self.ids, self.args = template, ids, args

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> NewRun: ...
    @overload
    def __getitem__(self, index: slice) -> BulkRuns: ...
    def __getitem__(self, index: int | slice) -> NewRun | BulkRuns:
        if isinstance(index, slice):
            return BulkRuns(self.template, self.ids[index], self.args[index])
        return msgspec.structs.replace(self.template, id=self.ids[index], args=self.args[index])


class Enqueued(msgspec.Struct, frozen=True):
    """The result of an enqueue. `created` is false when the key named an earlier run."""

    id: str
    created: bool


class ClaimedRun(msgspec.Struct, frozen=True):
    """A run claimed by a worker: the columns that execution and settlement need."""

    seq: int
    id: str
    job: str
    queue: str
    attempt: int
    failures: int
    lost: int
    max_attempts: int
    args: str
    timeout: timedelta | None
    backoff: str | None
    overlap_key: str | None
    concurrency_key: str | None
    schedule_id: int | None
    occurrence: datetime | None
    due_at: datetime
    missed_count: int
    cancel_requested_at: datetime | None = None
    correlation_id: str | None = None
    trace: str | None = None
    priority: int = 0

    @property
    def owns_slots(self) -> bool:
        return self.overlap_key is not None or self.concurrency_key is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run with all its public columns. Arguments are redacted before they leave control."""

    seq: int
    id: str
    job: str
    queue: str
    priority: int
    state: str
    due_at: datetime
    created_at: datetime
    queued_at: datetime | None
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    attempt: int
    failures: int
    lost: int
    redo: int
    max_attempts: int
    timeout: timedelta | None
    backoff: str | None
    args: str
    overlap_key: str | None
    concurrency_key: str | None
    concurrency_limit: int
    wanted_key: str | None
    schedule_id: int | None
    occurrence: datetime | None
    missed_count: int
    retry_of: str | None
    created_by: str | None
    worker_id: str | None
    lease_until: datetime | None
    error: str | None
    reason: str | None
    result: str | None
    progress: str | None
    cancel_requested_at: datetime | None
    pause_requested_at: datetime | None
    correlation_id: str | None
    trace: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One numbered try of a run by one worker."""

    run_seq: int
    number: int
    worker_id: str | None
    started_at: datetime | None
    finished_at: datetime | None
    outcome: str
    error: str | None
