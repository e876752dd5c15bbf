"""What there is: jobs, schedules, queues, workers, locks, and the installation itself."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from rota.errors import Conflict, Invalid, Unknown
from rota.model.job import Job
from rota.model.plan import Stretch, plan_resume
from rota.model.schedule import Schedule, edited
from rota.storage import rows
from rota.storage.engine import Row, Transaction
from rota.storage.scripts.base import Script


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who asks, and through which surface: every write leaves it in the audit."""

    by: str
    via: str


SYSTEM = Actor(by="rota", via="system")


class CatalogScript(Script):
    def put_jobs(self, jobs: Sequence[Job]) -> None:
        """Make definitions known to every process. The same version changes nothing."""

        def work(tx: Transaction) -> None:
            ordered = sorted(jobs, key=lambda job: job.name)
            tx.many("put_jobs", [rows.job_row(job) for job in ordered])
            queues = sorted({job.queue for job in jobs})
            tx.many("insert_queues", [{"name": queue} for queue in queues])

        self.engine.write("put_jobs", work)

    def jobs_named(self, names: Collection[str]) -> dict[str, Job]:
        found = self.engine.read(lambda tx: tx.all("jobs_named", names=sorted(names)))
        return {row["name"]: rows.job(row) for row in found}

    def list_jobs(self, *, after: str = "", limit: int) -> list[Job]:
        found = self.engine.read(lambda tx: tx.all("list_jobs", after=after, limit=limit))
        return [rows.job(row) for row in found]

    def put_schedule(self, wanted: Schedule, actor: Actor) -> Schedule:
        """Create or edit by name. The same definition changes nothing; nothing fires the past."""
        return self.engine.write("put_schedule", lambda tx: self._put(tx, wanted, actor))

    def _put(self, tx: Transaction, wanted: Schedule, actor: Actor) -> Schedule:
        now = self._now(tx)
        row = tx.one("lock_schedule", name=wanted.name)
        if row is None:
            new = replace(wanted, next_fire_at=wanted.first_fire(now))
            _refuse_never(new)
            made = tx.one("insert_schedule", **_without(rows.schedule_row(new), "id"))
            if made is None:
                raise Conflict(f"schedule {wanted.name!r} was created by another process just now")
            created = rows.schedule(made)
            self._changed(tx, created, actor, "create", None, None, created)
            return created
        old = rows.schedule(row)
        if old.definition() == wanted.definition():
            return old
        new = edited(old, wanted, now)
        if old.timing() != wanted.timing():
            _refuse_never(new)
        if new.enabled and not old.enabled:
            resumed, missed = plan_resume(new, now)
            new = replace(new, next_fire_at=resumed)
            self._record(tx, new, missed)
        changed = tx.one("update_schedule", **rows.schedule_row(new))
        assert changed is not None
        saved = rows.schedule(changed)
        self._changed(tx, saved, actor, "alter", None, old, saved)
        return saved

    def schedule_named(self, name: str) -> Schedule:
        return self.engine.read(lambda tx: self._schedule(tx, name))

    def list_schedules(
        self, *, after: str = "", job: str | None = None, limit: int
    ) -> list[Schedule]:
        found = self.engine.read(
            lambda tx: tx.all("list_schedules", after=after, job=job, limit=limit)
        )
        return [rows.schedule(row) for row in found]

    def pause_schedule(self, name: str, reason: str | None, actor: Actor) -> Schedule:
        """Stop fires. Runs already made go on; the cursor stays where it is."""

        def work(tx: Transaction) -> Schedule:
            old = self._schedule(tx, name, "lock_schedule")
            told = f"paused by {actor.by}" + (f": {reason}" if reason else "")
            row = tx.one("pause_schedule", id=old.id, by=actor.by, reason=reason, state=told)
            if row is None:
                return old
            paused = rows.schedule(row)
            self._changed(tx, paused, actor, "pause", reason, old, paused)
            return paused

        return self.engine.write("pause_schedule", work)

    def resume_schedule(self, name: str, reason: str | None, actor: Actor) -> Schedule:
        """Fire again from now on. What was missed is recorded, not replayed."""

        def work(tx: Transaction) -> Schedule:
            old, now = self._schedule(tx, name, "lock_schedule"), self._now(tx)
            if not old.paused:
                return old
            following, missed = plan_resume(old, now)
            told = f"resumed by {actor.by}"
            if old.kind == "once" and missed is not None:
                told = f"its time passed while it was paused; marked missed by {actor.by}"
            row = tx.one("resume_schedule", id=old.id, next_fire_at=following, state=told)
            assert row is not None, "the row was paused in this transaction"
            resumed = rows.schedule(row)
            self._record(tx, resumed, missed)
            self._changed(tx, resumed, actor, "resume", reason, old, resumed)
            return resumed

        return self.engine.write("resume_schedule", work)

    def drop_schedule(self, name: str, reason: str | None, actor: Actor) -> None:
        """Remove the schedule; ledger, changes and runs stay."""

        def work(tx: Transaction) -> None:
            old = self._schedule(tx, name, "lock_schedule")
            tx.all("drop_schedule", id=old.id)
            self._changed(tx, old, actor, "drop", reason, old, None)

        self.engine.write("drop_schedule", work)

    def _schedule(self, tx: Transaction, name: str, statement: str = "schedule_named") -> Schedule:
        row = tx.one(statement, name=name)
        if row is None:
            raise Unknown(f"schedule {name!r} does not exist; `rota schedules` lists them")
        return rows.schedule(row)

    def _record(self, tx: Transaction, schedule: Schedule, missed: Stretch | None) -> None:
        if missed is not None:
            row = {
                "schedule_id": schedule.id,
                "occurrence": missed.first,
                "last_occurrence": missed.last,
                "count": missed.count,
                "outcome": missed.outcome,
                "reason": missed.reason,
                "run_id": None,
            }
            tx.many("insert_occurrences", [row])

    def _changed(
        self,
        tx: Transaction,
        schedule: Schedule,
        actor: Actor,
        action: str,
        reason: str | None,
        before: Schedule | None,
        after: Schedule | None,
    ) -> None:
        told_before, told_after = _told(before), _told(after)
        change = {
            "schedule_id": schedule.id,
            "name": schedule.name,
            "by": actor.by,
            "action": action,
            "reason": reason,
            "before": told_before,
            "after": told_after,
        }
        tx.many("insert_schedule_changes", [change])
        audit(tx, actor, f"{action}_schedule", schedule.name, reason, told_before, told_after)

    def list_schedule_changes(self, schedule_id: int, *, before: int, limit: int) -> list[Row]:
        return self.engine.read(
            lambda tx: tx.all(
                "list_schedule_changes", schedule_id=schedule_id, before=before, limit=limit
            )
        )

    def list_occurrences(self, schedule_id: int, *, before: datetime, limit: int) -> list[Row]:
        return self.engine.read(
            lambda tx: tx.all(
                "list_occurrences", schedule_id=schedule_id, before=before, limit=limit
            )
        )

    def put_worker(self, worker: Row) -> None:
        """Say that a worker is alive, and what it knows."""
        self.engine.single("put_worker", [worker])

    def forget_worker(self, worker_id: str) -> None:
        self.engine.single("forget_worker", [{"id": worker_id}])

    def forget_old_workers(self, age_seconds: float) -> None:
        self.engine.single("forget_old_workers", [{"age_seconds": age_seconds}])

    def list_workers(self, *, limit: int) -> list[Row]:
        found = self.engine.read(lambda tx: tx.all("list_workers", limit=limit))
        for row in found:
            row["jobs"], row["queues"] = rows.from_json(row["jobs"]), rows.from_json(row["queues"])
        return found

    def acquire_lock(self, name: str, owner: str, ttl_seconds: float) -> int | None:
        """A fencing token, or None while somebody else holds it."""
        row = {"name": name, "owner": owner, "ttl_seconds": ttl_seconds}
        got = self.engine.single("acquire_lock", [row])
        return got[0]["token"] if got else None

    def extend_lock(self, name: str, token: int, ttl_seconds: float) -> bool:
        row = {"name": name, "token": token, "ttl_seconds": ttl_seconds}
        return bool(self.engine.single("extend_lock", [row]))

    def release_lock(self, name: str, token: int) -> bool:
        return bool(self.engine.single("release_lock", [{"name": name, "token": token}]))

    def list_locks(self, *, limit: int) -> list[Row]:
        return self.engine.read(lambda tx: tx.all("list_locks", limit=limit))

    def list_queues(self, *, limit: int) -> list[Row]:
        found = self.engine.read(lambda tx: tx.all("list_queues", limit=limit))
        for row in found:
            row["paused"] = bool(row["paused"])
        return found

    def meta(self) -> dict[str, str]:
        """Schema version, installation id, cluster, dispatch switch."""
        return {row["key"]: row["value"] for row in self.engine.read(lambda tx: tx.all("all_meta"))}


def audit(
    tx: Transaction,
    actor: Actor,
    action: str,
    thing: str,
    reason: str | None = None,
    before: str | None = None,
    after: str | None = None,
) -> None:
    row = {
        "by": actor.by, "via": actor.via, "action": action, "thing": thing,
        "reason": reason, "before": before, "after": after,
    }  # fmt: skip
    tx.many("insert_audit", [row])


def _refuse_never(schedule: Schedule) -> None:
    """Expressions are checked when they are saved, against the clock that will decide."""
    if schedule.next_fire_at is None:
        raise Invalid(
            f"schedule {schedule.name!r}: {schedule.described()} has no occurrence from now on; "
            "check day, month, year and ends_at"
        )


def _told(schedule: Schedule | None) -> str | None:
    if schedule is None:
        return None
    told: dict[str, Any] = {
        **schedule.definition(),
        "paused": schedule.paused,
        "next_fire_at": schedule.next_fire_at,
    }
    return rows.to_json(told)


def _without(row: Row, *names: str) -> Row:
    return {name: value for name, value in row.items() if name not in names}
