"""What operators do to runs and queues. Each call is one transaction that leaves an audit row."""

from __future__ import annotations

from typing import Any

from rota.errors import Conflict, Unknown
from rota.model.duration import EPOCH
from rota.model.run import RUN_ID, Attempt, Run
from rota.model.steps import begin_at, step_names
from rota.model.transitions import (
    PAUSED,
    PENDING,
    RUNNING,
    SUCCEEDED,
    TERMINAL,
    may_delete,
    require,
)
from rota.storage import rows
from rota.storage.engine import Row, Transaction
from rota.storage.scripts.changes import Actor, audit
from rota.storage.scripts.rescue import RescueScript
from rota.storage.scripts.settle import OnTerminated, SettleScript

# How many of the newest runs are looked through for those of one job, before its index is.
RECENT_RUNS = 1_000
# Up to so many runs that wait are sorted to find the newest of them.
RARE_RUNS = 5_000


class ControlScript(SettleScript, RescueScript):
    def cancel_run(
        self,
        run_id: str,
        reason: str | None,
        actor: Actor,
        on_terminated: OnTerminated | None = None,
        *,
        running: bool = True,
    ) -> Run:
        """End a run that has not started; ask for the end of one that runs, unless `running` is
        false: then it is left alone."""

        def work(tx: Transaction) -> Run:
            run = self._lock_run(tx, run_id)
            require(run.state, "cancel", f"run {run_id}")
            if run.state == RUNNING and not running:
                return run
            told = reason or f"cancelled by {actor.by}"
            if run.state == RUNNING:
                tx.all("request_cancel", seq=run.seq, reason=told)
            else:
                tx.all("cancel_run", seq=run.seq, reason=told)
                self._restart_delays(tx, [(run.schedule_id, run.occurrence)])
                freed = {row["key"] for row in tx.many("release_slots", [{"seq": run.seq}])}
                self._admit_keys(tx, freed)
                if on_terminated is not None:
                    self._add_to_end(tx, run.seq, on_terminated)
            changed = self._run(tx, run_id)
            audit(tx, actor, "cancel_run", run_id, reason, run.state, changed.state)
            return changed

        return self.engine.write("cancel_run", work)

    def redo_run(
        self,
        run_id: str,
        reason: str | None,
        actor: Actor,
        *,
        from_step: str | None = None,
        latest: bool = False,
    ) -> Run:
        """Start over a run that has ended: fresh counts, attempt numbers go on. Its steps begin at
        the first that is not done, or at `from_step`, with the texts it had; `latest` forgets
        those, so that it begins with the files as they are then, at the first or at `from_step`."""

        def work(tx: Transaction) -> Run:
            run = self._lock_run(tx, run_id)
            require(run.state, "redo", f"run {run_id}")
            self._reopen_steps(tx, run, from_step, latest)
            tx.all("redo_run", seq=run.seq, reason=reason)
            changed = self._run(tx, run_id)
            audit(tx, actor, "redo_run", run_id, reason, run.state, changed.state)
            return changed

        return self.engine.write("redo_run", work)

    def _reopen_steps(self, tx: Transaction, run: Run, from_step: str | None, latest: bool) -> None:
        tx.all("unpin_marks", seq=run.seq)
        if from_step is not None:
            self._begin_at(tx, run, from_step, latest)
        elif latest or run.state == SUCCEEDED:  # after a success no step is left to begin at
            tx.all("void_marks", seq=run.seq, number=0)
        if latest:
            tx.many("delete_run_files", [{"seq": run.seq}])

    def _begin_at(self, tx: Transaction, run: Run, from_step: str, latest: bool) -> None:
        kept = [row["name"] for row in tx.all("run_files", seq=run.seq)]
        names, what = None, f"run {run.id}"
        if latest:
            names, what = self._latest_steps(tx, run.job), f"job {run.job!r} as it is now"
        begin = begin_at(from_step, kept, names, what)
        tx.all("void_marks", seq=run.seq, number=begin.forget)
        tx.all("pin_marks", seq=run.seq, number=begin.first)

    def _latest_steps(self, tx: Transaction, name: str) -> tuple[str, ...]:
        row = tx.one("jobs_named", names=[name])
        if row is None:
            raise Unknown(f"job {name!r} does not exist any more, so there is no latest version")
        job = rows.checked_job(row)
        return step_names(job.executor, job.spec)

    def pause_run(self, run_id: str, reason: str | None, actor: Actor) -> Run:
        """Hold a run back. A running one is asked, and stops where its executor can."""

        def work(tx: Transaction) -> Run:
            run = self._lock_run(tx, run_id)
            require(run.state, "pause", f"run {run_id}")
            statement = "pause_run" if run.state in PENDING else "request_pause"
            tx.all(statement, seq=run.seq, reason=reason)
            changed = self._run(tx, run_id)
            audit(tx, actor, "pause_run", run_id, reason, run.state, changed.state)
            return changed

        return self.engine.write("pause_run", work)

    def resume_run(self, run_id: str, reason: str | None, actor: Actor) -> Run:
        return self._change(run_id, "resume", "resume_run", reason, actor)

    def _change(
        self, run_id: str, event: str, statement: str, reason: str | None, actor: Actor
    ) -> Run:
        def work(tx: Transaction) -> Run:
            run = self._lock_run(tx, run_id)
            require(run.state, event, f"run {run_id}")
            tx.all(statement, seq=run.seq, reason=reason)
            changed = self._run(tx, run_id)
            audit(tx, actor, statement, run_id, reason, run.state, changed.state)
            return changed

        return self.engine.write(statement, work)

    def delete_run(self, run_id: str, reason: str | None, actor: Actor) -> None:
        def work(tx: Transaction) -> None:
            run = self._lock_run(tx, run_id)
            self._restart_delays(tx, [(run.schedule_id, run.occurrence)])
            if not may_delete(run.state) or not self._delete_runs(tx, [run.seq]):
                raise Conflict(f"run {run_id} is running; cancel it first, then delete it")
            audit(tx, actor, "delete_run", run_id, reason, run.state)

        self.engine.write("delete_run", work)

    def pause_queue(self, name: str, reason: str | None, actor: Actor) -> None:
        """Stop claims from a queue in all processes."""

        def work(tx: Transaction) -> None:
            tx.all("pause_queue", name=name, reason=reason, by=actor.by)
            audit(tx, actor, "pause_queue", name, reason, after="paused")

        self.engine.write("pause_queue", work)

    def resume_queue(self, name: str, actor: Actor) -> None:
        """Let it be claimed from again; one that is open stays as it is."""

        def work(tx: Transaction) -> None:
            if tx.one("resume_queue", name=name) is not None:
                audit(tx, actor, "resume_queue", name, before="paused", after="open")
            elif tx.one("queue_named", name=name) is None:
                raise Unknown(f"queue {name!r} does not exist; `rota queues` lists them")

        self.engine.write("resume_queue", work)

    def set_dispatch(self, on: bool, reason: str | None, actor: Actor) -> None:
        """The switch for all claims of all processes; fires go on under their overlap policy."""

        def work(tx: Transaction) -> None:
            value = "on" if on else f"paused by {actor.by}" + (f": {reason}" if reason else "")
            before = self._meta(tx).get("dispatch")
            tx.all("set_meta", key="dispatch", value=value)
            action = "resume_dispatch" if on else "pause_dispatch"
            audit(tx, actor, action, "dispatch", reason, before, value)

        self.engine.write("set_dispatch", work)

    def record_action(
        self, actor: Actor, action: str, thing: str, *, after: str | None = None
    ) -> None:
        """Audit an action whose own transaction is the hot path's, and knows no actor."""
        self.engine.write(action, lambda tx: audit(tx, actor, action, thing, after=after))

    # Reads

    def run(self, run_id: str) -> Run:
        return self.engine.read(lambda tx: self._run(tx, run_id))

    def list_runs(
        self,
        *,
        job: str | None = None,
        schedule_id: int | None = None,
        state: str | None = None,
        queue: str | None = None,
        before: int | None = None,
        limit: int,
    ) -> list[Run]:
        """Newest first, in pages: `before` is the seq of the last one seen."""
        params: dict[str, Any] = {
            "before": before if before is not None else 2**62,
            "state": state,
            "queue": queue,
            "limit": limit,
        }
        name = "list_runs"
        if schedule_id is not None:
            name, params["schedule_id"], params["job"] = "list_runs_of_schedule", schedule_id, job
        elif job is not None:
            name, params["job"] = "list_runs_of_job", job
            recent = self.engine.read(
                lambda tx: tx.all("recent_runs_of_job", recent=RECENT_RUNS, **params)
            )
            if len(recent) == limit:
                return [rows.run(row) for row in recent]
        elif state is not None and self._is_rare(state):
            name = "list_runs_of_state"
        return [rows.run(row) for row in self.engine.read(lambda tx: tx.all(name, **params))]

    def count_matching_runs(
        self,
        state: str,
        *,
        job: str | None = None,
        schedule_id: int | None = None,
        queue: str | None = None,
        limit: int,
    ) -> int:
        """How many runs there are like this; counting ends at `limit`."""
        if job is None and queue is None and schedule_id is None:
            return self._count_state(state, limit)
        params = {"state": state, "job": job, "queue": queue, "schedule_id": schedule_id}
        name = "count_rare_runs" if self._is_rare(state) else "count_matching_runs"
        row = self.engine.read(lambda tx: tx.one(name, limit=limit, **params))
        return 0 if row is None else int(row["runs"])

    def _count_state(self, state: str, limit: int) -> int:
        """From the index alone, where the engine can: the rows themselves lie far apart."""

        def read(tx: Transaction) -> list[Row]:
            if state in TERMINAL:
                return tx.all("count_ended", since_at=EPOCH, limit=limit)
            return tx.all("count_open", limit=limit)

        return sum(row["runs"] for row in self.engine.read(read) if row["state"] == state)

    def _is_rare(self, state: str) -> bool:
        """True if the runs of a state are better found by its own index than among all. Of what is
        plenty, the newest are found soon."""
        if state in TERMINAL or state in (PAUSED, RUNNING):
            return state != SUCCEEDED
        found = self.engine.read(lambda tx: tx.all("count_open", limit=RARE_RUNS))
        return any(row["state"] == state and row["runs"] < RARE_RUNS for row in found)

    def run_ids(self, prefix: str, *, limit: int) -> list[str]:
        """Ids that begin like this, by the index; the caller has checked that one can."""
        low, high = prefix + RUN_ID[len(prefix) :], prefix + RUN_ID.replace("0", "f")[len(prefix) :]
        found = self.engine.read(
            lambda tx: tx.all("run_ids_between", low=low, high=high, limit=limit)
        )
        return [row["id"] for row in found]

    def list_attempts(self, seq: int, *, limit: int) -> list[Attempt]:
        found = self.engine.read(lambda tx: tx.all("list_attempts", seq=seq, limit=limit))
        return [rows.attempt(row) for row in found]

    def list_logs(self, seq: int, *, after: int = 0, limit: int) -> list[Row]:
        return self.engine.read(lambda tx: tx.all("list_logs", seq=seq, after=after, limit=limit))

    def tail_logs(self, seq: int, *, before: int | None = None, limit: int) -> list[Row]:
        """The last lines, in their order."""
        last = before if before is not None else 2**62
        found = self.engine.read(lambda tx: tx.all("tail_logs", seq=seq, before=last, limit=limit))
        return found[::-1]

    def list_events(
        self, *, run_id: str | None = None, before: int | None = None, limit: int
    ) -> list[Row]:
        last = before if before is not None else 2**62
        return self.engine.read(
            lambda tx: tx.all("list_events", run_id=run_id, before=last, limit=limit)
        )

    def list_audit(self, *, before: int | None = None, limit: int) -> list[Row]:
        last = before if before is not None else 2**62
        return self.engine.read(lambda tx: tx.all("list_audit", before=last, limit=limit))

    def overview(self) -> Row:
        """Counts by state and what the switches say."""

        def read(tx: Transaction) -> Row:
            return {
                "runs": {row["state"]: row["runs"] for row in tx.all("count_runs")},
                "schedules": tx.one("count_schedules"),
                "dispatch": self._dispatch(tx),
                "now_at": self._now(tx),
            }

        return self.engine.read(read)

    def _run(self, tx: Transaction, run_id: str, statement: str = "run_by_id") -> Run:
        row = tx.one(statement, id=run_id)
        if row is None:
            raise Unknown(f"run {run_id!r} does not exist; `rota runs` lists them")
        return rows.run(row)

    def _lock_run(self, tx: Transaction, run_id: str) -> Run:
        """Read a run and keep others from changing it until we commit."""
        return self._run(tx, run_id, "lock_run")
