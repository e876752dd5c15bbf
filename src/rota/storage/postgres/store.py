"""The store over PostgreSQL: the scripts, with the steps that one statement does better here."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from rota.errors import MissingExtra, StorageError, Unknown
from rota.extras import how_to_install
from rota.model.job import Job
from rota.model.outcome import Settlement
from rota.model.plan import FirePlan
from rota.model.run import BulkRuns, ClaimedRun, Enqueued, NewRun, Run, occurrence_ids
from rota.model.schedule import WAITING_FOR_RUN
from rota.model.transitions import DEAD, SUCCEEDED
from rota.storage import rows
from rota.storage.engine import Clock, Probe, Row, Transaction
from rota.storage.postgres.beside import Beside, tried
from rota.storage.postgres.bind import array, bind
from rota.storage.postgres.marks import MOST_MARKS, Marks
from rota.storage.scripts.admit import HELD_PER_KEY
from rota.storage.scripts.claim import ClaimRequest
from rota.storage.scripts.fire import NOTHING_FIRED, Fired, advances, run_row
from rota.storage.scripts.herd import all_fired, kin_row
from rota.storage.scripts.settle import Settled
from rota.storage.store import Store

if TYPE_CHECKING:
    from rota.storage.postgres.engine import PostgresEngine


UNIQUE_VIOLATION = "23505"
HALVED = 500  # a herd of so many is fired by two statements at a time
# Who inserted a control row waits for its answer, and so does everybody with a row behind it.
# Longer than the second after which a server looks for a deadlock: what that undoes is done again.
ANSWER_LOCK_TIMEOUT = "1500ms"


class PostgresStore(Store):
    engine: PostgresEngine

    def __init__(self, engine: PostgresEngine) -> None:
        super().__init__(engine)
        self._marks = Marks()
        # The template that was enqueued last, with its values as PostgreSQL reads them, and the
        # shorter statement for one of it, if there is one.
        self._bound: tuple[NewRun | None, dict[str, str | None], str | None] = (None, {}, None)

    def grant_roles(self) -> None:
        self.engine.grant_roles()

    @property
    def roles_sql(self) -> str:
        return self.engine.roles_sql

    def _joined(self, tx: Transaction) -> Self:
        """Only here can a caller's transaction hold one row, and for as long as it likes."""
        tx.text(f"SET LOCAL lock_timeout = '{ANSWER_LOCK_TIMEOUT}'", {})
        return super()._joined(tx)

    def claim(
        self,
        worker_id: str,
        *,
        queues: Sequence[str],
        jobs: Sequence[str],
        limit: int,
        lease: timedelta,
    ) -> list[ClaimedRun]:
        """One statement: what was picked but not claimed would otherwise stay locked meanwhile."""
        asked: dict[str, Any] = {
            "worker_id": worker_id,
            "queues": list(queues),
            "jobs": list(jobs),
            "limit": limit,
            "lease_seconds": lease.total_seconds(),
        }
        began = time.monotonic()
        if self._marks.usable(began, asked["jobs"]):
            self._read_lines(asked["queues"])
            found = self.engine.single_tuples(
                "claim", "claim_marked_runs", **asked, **self._marks.ranges()
            )
            claimed = rows.claimed_in_order(found)
            self._marks.claimed(claimed)
        else:
            found = self.engine.single_tuples("claim", "claim_runs", **asked)
            claimed = rows.claimed_in_order(found)
            seconds = time.monotonic() - began
            self._marks.looked(claimed, seconds, began, jobs=asked["jobs"], limit=limit)
        return claimed

    def _read_lines(self, queues: Sequence[str]) -> None:
        """Not by the look itself but before the next claim: a fault here loses no run's answer."""
        looked_at, self._marks.passed_at = self._marks.passed_at, None
        if looked_at is not None:
            most = MOST_MARKS + 1
            lines = self.engine.single_tuples("claim", "queued_lines", queues=queues, limit=most)
            self._marks.passed(lines, ago=time.monotonic() - looked_at)

    def _succeed(self, plain: Sequence[Settlement]) -> list[Settled]:
        """One statement, which is the whole transaction."""
        seqs = [one.run.seq for one in plain]
        told: dict[str, object] = {
            "seq": seqs,
            "ran_seconds": [one.ran_seconds for one in plain],
            "result": [one.outcome.result for one in plain],
        }
        if self.engine.pooled:  # sent alone it would wait for a held row without an end
            answer = self.engine.write("settle", lambda tx: tx.tuples("succeed_runs", **told))
        else:
            answer = self.engine.single_tuples("settle", "succeed_runs", **told)
        ((some,),) = answer
        return [Settled(seq, SUCCEEDED) for seq in (seqs if some is None else some)]

    def held_elsewhere(self, settlements: Sequence[Settlement]) -> set[int]:
        asked = {
            "seq": [one.run.seq for one in settlements],
            "attempt": [one.run.attempt for one in settlements],
            "schedule_id": [one.run.schedule_id for one in settlements],
            "dies": [one.state == DEAD for one in settlements],
            "waiting_at": WAITING_FOR_RUN,
        }
        found = self.engine.write("settle", lambda tx: tx.tuples("held_elsewhere", **asked))
        return {seq for (seq,) in found}

    def fire(
        self,
        plans: Sequence[FirePlan],
        jobs: Mapping[str, Job],
        claimant: ClaimRequest | None = None,
    ) -> Fired:
        """Those on time and free to start in one statement, and begun by it where nobody is in
        line; the others with every decision, and for a claim to find. What was begun waits for
        none of those: they are due as before, and the next look has them."""
        fired = self._fire_free(plans, jobs, claimant)
        rest = [plan for plan in plans if plan.schedule.id not in fired.moved]
        return fired if fired.claimed or not rest else fired + super().fire(rest, jobs)

    def _fire_free(
        self, plans: Sequence[FirePlan], jobs: Mapping[str, Job], claimant: ClaimRequest | None
    ) -> Fired:
        first: dict[str, FirePlan] = {}  # a slot goes to its oldest occurrence
        for plan in plans:
            if plan.schedule.slot is not None:
                first.setdefault(plan.schedule.slot, plan)
        asked = []
        for plan in sorted(plans, key=lambda plan: plan.schedule.id):
            slot = plan.schedule.slot
            alone = slot is None or first[slot] is plan
            ends = plan.next_fire_at is None
            if len(plan.runs) != 1 or plan.ranges or ends or not alone:
                continue
            row = run_row(0, plan.schedule, plan.runs[0], jobs.get(plan.schedule.job), owns=True)
            row["key"] = None if slot is None else f"o/{slot}"
            row["cursor_at"], row["next_fire_at"] = plan.cursor, plan.next_fire_at
            row["revision"] = plan.schedule.revision
            asked.append(row)
        if not asked:
            return NOTHING_FIRED
        # Those that are decided one by one may come before these: then a claim finds the order.
        alone = len(asked) == len(plans) and not self._marks.slow
        if claimant is not None and not (alone and len(asked) <= claimant.limit):
            claimant = None
        columns = {name: [row[name] for row in asked] for name in asked[0] if name != "seq"}
        try:
            found = self.engine.single_tuples("fire", "fire_free", **columns, **_claims(claimant))
        except StorageError as fault:
            # Somebody took a slot meanwhile, or the ledger knows an occurrence already.
            if not _is_taken(fault):
                raise
            return NOTHING_FIRED
        made = rows.claimed_in_order(found)
        return Fired(
            frozenset(run.schedule_id for run in made if run.schedule_id is not None),
            {"fired": len(made)},
            tuple(run for run in made if run.attempt),
        )

    def fire_kin(self, plan: FirePlan, ids: Sequence[int], job: Job | None) -> Fired:
        """Many in two halves side by side: the server has more than one core."""
        if len(ids) < HALVED:
            return self._fire_part(plan, ids, job)
        half = len(ids) // 2
        second = Beside(lambda: self._fire_part(plan, ids[half:], job))
        fired = [tried(lambda: self._fire_part(plan, ids[:half], job)), second.wait()]
        made = [one for one in fired if isinstance(one, Fired)]
        if not made:
            raise next(one for one in fired if isinstance(one, Exception))
        return sum(made, NOTHING_FIRED)  # a half that failed is due as before

    def _fire_part(self, plan: FirePlan, ids: Sequence[int], job: Job | None) -> Fired:
        """One statement, which is the whole transaction."""
        run_ids = occurrence_ids(ids, plan.cursor)
        try:
            found = self.engine.single_tuples(
                "fire", "fire_kin", ids=list(ids), run_ids=run_ids, **kin_row(plan, job)
            )
        except StorageError as fault:
            if not _is_taken(fault):
                raise
            return NOTHING_FIRED  # by somebody who did not stand in the way when we looked
        return all_fired([schedule_id for (schedule_id,) in found])

    def _advance(self, tx: Transaction, plans: Sequence[FirePlan]) -> set[int]:
        """A row that another process has locked is being fired by it: it is passed over."""
        return {row["id"] for row in tx.many("advance_schedules", advances(plans))}

    def _take_slots(self, tx: Transaction, first: Mapping[str, int]) -> set[int]:
        # Sorted, so that two processes never wait for each other's slots.
        asked = [{"key": key, "seq": seq} for key, seq in sorted(first.items())]
        return {row["owner_run"] for row in tx.many("take_slots", asked)}

    def _admit_keys(self, tx: Transaction, keys: Collection[str]) -> int:
        """All keys in one statement, and another one for runs that go on to want a second slot."""
        admitted = 0
        pending = set(keys)
        while pending:
            wanted = [
                row["wanted_key"]
                for row in tx.all("admit_runs", keys=sorted(pending), limit=HELD_PER_KEY)
            ]
            admitted += wanted.count(None)
            pending = {key for key in wanted if key is not None}
        return admitted

    def enqueue_on(
        self, connection: Any, new_runs: Sequence[NewRun], *, notify: bool = True
    ) -> list[Enqueued]:
        """The queue's row is ours, not the caller's: until he commits, everybody else who names
        the same new queue would have to wait for him."""
        self.ensure_queues([run.queue for run in new_runs])
        return self.engine.on_connection(
            connection, lambda tx: self._insert(tx, new_runs), notify=notify
        )

    def _enqueue_alike(self, new_runs: BulkRuns, notify: bool) -> list[Enqueued]:
        """One round trip, with what all of them share bound once."""
        template, bound, plain = self._bound
        if template is not new_runs.template:
            template = new_runs.template
            shared = rows.new_run_row(template)
            bound = {name: bind(value) for name, value in shared.items()}
            plain = "insert_plain_run" if _is_plain(template) else None
            self._bound = template, bound, plain
        ids, args = new_runs.ids, new_runs.args
        if len(ids) == 1:
            name, own = "insert_run", {"id": ids[0], "args": bind(args[0])}
        else:
            name, own = "insert_new_runs", {"id": array(ids), "args": array(args)}
            plain = None
        told = {**bound, **own}
        try:
            self.engine.single_bound(
                "enqueue", name, told, made=len(ids), notify=notify, quietly=plain
            )
        except StorageError as fault:
            if not _is_taken(fault):
                raise
            # Sent before, perhaps, and its answer was lost: once more, each where it is not there.
            return super()._enqueue_alike(new_runs, notify)
        return [Enqueued(id, True) for id in ids]

    def _insert(self, tx: Transaction, new_runs: Sequence[NewRun]) -> list[Enqueued]:
        """The idempotency keys of all runs are taken at once."""
        if isinstance(new_runs, BulkRuns):
            tx.tuples("insert_alike_runs", **_alike(new_runs))
            return [Enqueued(id, True) for id in new_runs.ids]
        owners = self._take_keys(tx, new_runs)
        answers = [
            Enqueued(id=owner, created=owner == run.id)
            for run in new_runs
            for owner in [run.id if run.key is None else owners[run.job, run.key]]
        ]
        made = {answer.id for answer in answers if answer.created}
        tx.many("insert_runs", [rows.new_run_row(run) for run in new_runs if run.id in made])
        return answers

    def _take_keys(self, tx: Transaction, new_runs: Sequence[NewRun]) -> dict[tuple[str, str], str]:
        """Which run each (job, key) belongs to now. Within a batch the first one counts."""
        first: dict[tuple[str, str], NewRun] = {}
        for run in new_runs:
            if run.key is not None:
                first.setdefault((run.job, run.key), run)
        # Sorted, so that two processes never wait for each other's keys.
        asked = [
            {
                "job": job,
                "key": key,
                "run_id": run.id,
                "ttl_seconds": None if run.key_ttl is None else run.key_ttl.total_seconds(),
            }
            for (job, key), run in sorted(first.items(), key=lambda item: item[0])
        ]
        owners = {(row["job"], row["key"]): row["run_id"] for row in tx.many("take_keys", asked)}
        known = [pair for pair in first if pair not in owners]
        if known:
            jobs, keys = zip(*known, strict=True)
            for row in tx.all("find_keys", jobs=jobs, keys=keys):
                owners[row["job"], row["key"]] = row["run_id"]
        return owners

    def _run(self, tx: Transaction, run_id: str, statement: str = "run_by_id") -> Run:
        if not _UUID.fullmatch(run_id):
            raise Unknown(f"run {run_id!r} does not exist; `rota runs` lists them")
        return super()._run(tx, run_id, statement)

    def list_events(
        self, *, run_id: str | None = None, before: int | None = None, limit: int
    ) -> list[Row]:
        if run_id is not None and not _UUID.fullmatch(run_id):
            return []
        return super().list_events(run_id=run_id, before=before, limit=limit)


def _claims(claimant: ClaimRequest | None) -> dict[str, object]:
    """How fire_free is told who claims, or that nobody does."""
    if claimant is None:
        return {"worker_id": None, "queues": [], "jobs": [], "lease_seconds": 0.0}
    return {
        "worker_id": claimant.worker_id,
        "queues": list(claimant.queues),
        "jobs": list(claimant.jobs),
        "lease_seconds": claimant.lease.total_seconds(),
    }


def _is_taken(fault: StorageError) -> bool:
    """True if something that may be there once was there already."""
    return getattr(fault.__cause__, "sqlstate", None) == UNIQUE_VIOLATION


def _is_plain(run: NewRun) -> bool:
    """True if `insert_plain_run` says all of it: the rest is as a run has it by itself."""
    return run == NewRun(
        id=run.id,
        job=run.job,
        queue=run.queue,
        args=run.args,
        priority=run.priority,
        max_attempts=run.max_attempts,
        created_by=run.created_by,
    )


def _alike(new_runs: BulkRuns) -> dict[str, object]:
    return {
        **rows.new_run_row(new_runs.template),
        "id": list(new_runs.ids),
        "args": list(new_runs.args),
    }


# A run's id is a uuid in its column; a text that is none names no run, here as on other engines.
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def open_postgres(
    url: str,
    *,
    schema: str = "rota",
    clock: Clock | None = None,
    probe: Probe | None = None,
    pool_size: int = 8,
    prepare: bool = True,
) -> Store:
    """A store by URL; nothing is sent yet. `prepare=False` is as behind a pooler."""
    try:
        from rota.storage.postgres.engine import PostgresEngine
    except ImportError as fault:
        if (fault.name or "").partition(".")[0] not in ("", "psycopg", "psycopg_binary"):
            raise
        raise MissingExtra(
            f"a PostgreSQL store needs psycopg ({fault}); {how_to_install('postgres')}"
        ) from fault
    engine = PostgresEngine(
        url, schema=schema, clock=clock, probe=probe, pool_size=pool_size, prepare=prepare
    )
    return PostgresStore(engine)
