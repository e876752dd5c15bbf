"""Runs: what an operator may see of them and do to them. A part of Control."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rota.errors import Conflict, Invalid, Unknown
from rota.flow.bulk import CANCEL, DELETE, PAUSE, REDO, RESUME, Bulk, bulk_states, do_page
from rota.flow.enqueue import Enqueue, Options, find_job
from rota.flow.look import group_of
from rota.flow.waits import with_reasons
from rota.model.history import events_of
from rota.model.limits import BULK_RUNS, PAGE, REASON_LENGTH, check_whole
from rota.model.redact import redact_args, redact_columns, redact_text, shorten
from rota.model.run import Attempt, Enqueued, Run, begins_run_id
from rota.model.steps import SKIPPED_STEPS, redo_notes
from rota.model.transitions import CANCELLED, STATES, SUCCEEDED
from rota.storage import operations
from rota.storage.operations.audit import Actor
from rota.storage.store import AnyStore

if TYPE_CHECKING:
    from rota.executors.protocol import TerminationHook
    from rota.flow.settle import FindTerminationHook

SHORTEST_ID = 6


class RunControl:
    store: AnyStore
    actor: Actor
    termination_hook_of: FindTerminationHook
    changed: Callable[[], None]
    ended: Callable[[Run], None]

    # Looking

    def runs(
        self,
        *,
        job: str | None = None,
        schedule: str | None = None,
        state: str | None = None,
        queue: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[Run]:
        """Newest first; `before` is the seq of the last one seen. A run that nobody alive can run
        has that as its reason."""
        if state is not None and state not in STATES:
            raise Invalid(f"state {state!r} is unknown; use {', '.join(STATES)}")
        schedule_id = None if schedule is None else schedule_number(self.store, schedule)
        found = self.store.read(
            operations.list_runs,
            job=job,
            schedule_id=schedule_id,
            state=state,
            queue=queue,
            before=before,
            limit=page_size(limit),
        )
        return [redact_args(run) for run in with_reasons(self.store, found)]

    def run(self, run_id: str) -> Run:
        (run,) = with_reasons(self.store, [self.store.read(operations.get_run, run_id)])
        return redact_args(run)

    def runs_beginning(self, prefix: str) -> list[Run]:
        """Runs whose id begins like this, SHORTEST_ID characters or more; at most three."""
        text = prefix.lower()
        if len(text) < SHORTEST_ID or not begins_run_id(text):
            return []
        return [self.run(run_id) for run_id in self.store.read(operations.run_ids, text, limit=3)]

    def attempts(self, run_id: str) -> list[dict[str, Any]]:
        """Every attempt that ended, also the only one of a run that succeeded at once."""
        run = self.store.read(operations.get_run, run_id)
        found = self.store.read(operations.list_attempts, run.seq, limit=PAGE) or _only_attempt(run)
        return [
            {
                "number": one.number,
                "worker_id": one.worker_id,
                "started_at": one.started_at,
                "finished_at": one.finished_at,
                "outcome": one.outcome,
                "error": None if one.error is None else redact_text(one.error),
            }
            for one in found
        ]

    def steps(self, run_id: str) -> list[dict[str, Any]]:
        """The steps of a SQL run, attempt by attempt."""
        run = self.store.read(operations.get_run, run_id)
        found = self.store.read(operations.list_steps, run.seq, limit=PAGE)
        return [redact_columns(row, "error") for row in found]

    def logs(self, run_id: str, *, after: int = 0, limit: int = PAGE) -> list[dict[str, Any]]:
        run = self.store.read(operations.get_run, run_id)
        found = self.store.read(operations.list_logs, run.seq, after=after, limit=page_size(limit))
        return [redact_columns(row, "text") for row in found]

    def log_tail(
        self, run_id: str, *, before: int | None = None, limit: int = PAGE
    ) -> list[dict[str, Any]]:
        """The last lines of a run, in their order; `before` is the id of the first one seen."""
        run = self.store.read(operations.get_run, run_id)
        found = self.store.read(
            operations.tail_logs, run.seq, before=before, limit=page_size(limit)
        )
        return [redact_columns(row, "text") for row in found]

    def events(
        self, run_id: str | None = None, *, before: int | None = None, limit: int = PAGE
    ) -> list[dict[str, Any]]:
        """What happened to a run, as the view `events` tells it, newest first; `id` is its number
        in the history of that run, of whose attempts the last PAGE are told. Without a run: what
        was recorded about runs beside that, such as an `on_terminated` that failed."""
        page = page_size(limit)
        if run_id is None:
            recorded = self.store.read(
                operations.list_events, run_id=None, before=before, limit=page
            )
            found = [{**row, "attempt": None} for row in recorded]
        else:
            found = self._history(run_id)
            found = [one for one in reversed(found) if before is None or one["id"] < before][:page]
        return [redact_columns(row, "detail") for row in found]

    def _history(self, run_id: str) -> list[dict[str, Any]]:
        run = self.store.read(operations.get_run, run_id)
        last = {run.seq: max(0, run.attempt - PAGE)}
        return events_of(
            run,
            self.store.read(operations.attempts_above, last, limit=PAGE) or _only_attempt(run),
            self.store.read(operations.list_events, run_id=run.id, before=None, limit=PAGE),
        )

    # One run

    def enqueue(self, job: str, args: Mapping[str, Any], options: Options) -> Enqueued:
        """A run of any job that some process registered."""
        enqueue = Enqueue(self.store, enqueued=self.changed, created_by=self.actor.by)
        return self._audited("enqueue", job, enqueue.one(find_job(self.store, job), args, options))

    def trigger(
        self, name: str, args: Mapping[str, Any] | None = None, *, force: bool = False
    ) -> Enqueued:
        """Run a job or a schedule now; the cursor stays. Takes the overlap slot unless forced.

        `args` add to the schedule's own, or are the job's.
        """
        try:
            schedule = self.store.read(operations.schedule_named, name)
        except Unknown:
            return self.trigger_job(name, args, force=force)
        enqueue = Enqueue(self.store, enqueued=self.changed, created_by=self.actor.by)
        job = find_job(self.store, schedule.job)
        overlap_key = None if force else schedule.slot
        told = {**schedule.args, **(args or {})}
        made = enqueue.triggered(job, told, overlap_key=overlap_key, schedule=schedule)
        return self._audited("trigger", name, made)

    def trigger_job(
        self, name: str, args: Mapping[str, Any] | None = None, *, force: bool = False
    ) -> Enqueued:
        """Run a job now, whatever schedule may bear its name."""
        enqueue = Enqueue(self.store, enqueued=self.changed, created_by=self.actor.by)
        job = find_job(self.store, name)
        overlap_key = None if force or job.source == "api" else job.overlap_key
        made = enqueue.triggered(job, args or {}, overlap_key=overlap_key)
        return self._audited("trigger", name, made)

    def _audited(self, action: str, name: str, made: Enqueued) -> Enqueued:
        self.store.write(operations.record_action, self.actor, action, name, after=made.id)
        return made

    def cancel(self, run_id: str, reason: str | None = None, *, running: bool = True) -> Run:
        """End a run that has not started; ask its worker to end one that runs (`running` false
        leaves that one alone)."""
        from rota.flow.settle import asking  # commands that look do not pay for what settles

        run = self.store.read(operations.get_run, run_id)
        hook = self._hook(run)
        ask = None if hook is None else asking(hook)
        told = self.store.write(
            operations.cancel_run, run_id, told_reason(reason), self.actor, ask, running=running
        )
        self.changed()
        if told.state == CANCELLED:  # at once: no worker had it
            self.ended(told)
        return redact_args(told)

    def redo(
        self,
        run_id: str,
        reason: str | None = None,
        *,
        from_step: str | None = None,
        latest: bool = False,
    ) -> Run:
        """Start over a run that has ended. A SQL run goes on at the first step that is not done,
        or at `from_step` (a file's name or number), with the texts it began with; `latest` takes
        the files as they are now, from the first or from that step."""
        return self._changed(
            self.store.write(
                operations.redo_run,
                run_id,
                told_reason(reason),
                self.actor,
                from_step=from_step,
                latest=latest,
            )
        )

    def redo_notes(self, run_id: str) -> list[str]:
        """What is worth knowing about a redo just asked for: files that have changed since the run
        began, steps that it passes over and that were never done."""
        run = self.store.read(operations.get_run, run_id)
        job = self.store.read(operations.jobs_named, [run.job]).get(run.job)
        if job is None or job.executor != "sql":
            return []
        steps = self.store.read(operations.list_steps, run.seq, limit=PAGE)
        return redo_notes(
            self.store.read(operations.kept_files, run.seq),
            job.executor,
            job.spec,
            skipped=self.store.read(operations.done_steps, run.seq, SKIPPED_STEPS),
            succeeded={one["number"] for one in steps if one["status"] == "succeeded"},
        )

    def pause_run(self, run_id: str, reason: str | None = None) -> Run:
        return self._changed(
            self.store.write(operations.pause_run, run_id, told_reason(reason), self.actor)
        )

    def resume_run(self, run_id: str, reason: str | None = None) -> Run:
        return self._changed(
            self.store.write(operations.resume_run, run_id, told_reason(reason), self.actor)
        )

    def delete(self, run_id: str, reason: str | None = None) -> None:
        """Remove a run that is not running, with its attempts and logs."""
        self.store.write(operations.delete_run, run_id, told_reason(reason), self.actor)
        self.changed()

    def _hook(self, run: Run) -> TerminationHook | None:
        try:
            return self.termination_hook_of(run.job)
        except (Invalid, Unknown) as fault:
            raise Conflict(
                f"run {run.id} can only be cancelled where its executor is installed: {fault}"
            ) from None

    def _changed(self, run: Run) -> Run:
        self.changed()
        return redact_args(run)

    # Many runs

    def bulk(
        self,
        verb: str,
        state: str,
        *,
        job: str | None = None,
        schedule: str | None = None,
        queue: str | None = None,
        group: str | None = None,
        before: int | None = None,
        reason: str | None = None,
        latest: bool = False,
        limit: int = PAGE,
    ) -> Bulk:
        """Redo, cancel, delete, pause or resume one page of the runs that a filter finds, newest
        first; `before` of the answer asks for the next page. A run that changes meanwhile is left
        out. `group` is one of `dead_groups`, `latest` is for redo."""
        (state,) = bulk_states(verb, state)
        change: dict[str, Callable[[str], object]] = {
            REDO: lambda run_id: self.redo(run_id, reason, latest=latest),
            CANCEL: lambda run_id: self.cancel(run_id, reason),
            DELETE: lambda run_id: self.delete(run_id, reason),
            PAUSE: lambda run_id: self.pause_run(run_id, reason),
            RESUME: lambda run_id: self.resume_run(run_id, reason),
        }
        found = self.store.read(
            operations.list_runs,
            job=job,
            schedule_id=None if schedule is None else schedule_number(self.store, schedule),
            state=state,
            queue=queue,
            before=before,
            limit=page_size(limit),
        )
        following = found[-1].seq if len(found) == limit else None
        if group is not None:
            found = [run for run in found if group_of(run.job, run.error) == group]
        return do_page(found, change[verb], following)

    def count_runs(
        self,
        state: str,
        *,
        job: str | None = None,
        schedule: str | None = None,
        queue: str | None = None,
        limit: int = BULK_RUNS,
    ) -> int:
        """How many runs a filter finds; no more than `limit` are counted."""
        return self.store.read(
            operations.count_matching_runs,
            state,
            job=job,
            schedule_id=None if schedule is None else schedule_number(self.store, schedule),
            queue=queue,
            limit=check_whole(limit, "limit", 1, BULK_RUNS),
        )

    def pause_runs(self, schedule: str, reason: str | None = None) -> int:
        """Hold back every run of a schedule that has not ended; how many."""
        return self._each(schedule, PAUSE, reason)

    def resume_runs(self, schedule: str, reason: str | None = None) -> int:
        """Let every paused run of a schedule go on; how many."""
        return self._each(schedule, RESUME, reason)

    def cancel_runs(self, schedule: str, reason: str | None = None) -> int:
        """End every run of a schedule that has not ended; how many."""
        return self._each(schedule, CANCEL, reason)

    def cancel_retired(self, origin: str) -> int:
        """End the runs of jobs whose files are gone, but for those that run; how many. What only
        another process can end is left to it."""
        total, left = 0, set[str]()
        while True:
            limit = PAGE + len(left)  # what is left is found again
            ids = self.store.read(operations.unstarted_retired_runs, origin, limit=limit)
            for run_id in ids:
                if run_id in left:
                    continue
                if self._cancel_retired(run_id):
                    total += 1
                else:
                    left.add(run_id)
            if len(ids) < limit:
                return total

    def _cancel_retired(self, run_id: str) -> bool:
        try:
            self.cancel(run_id, "its job was retired: its files are gone", running=False)
        except (Conflict, Unknown):
            return False
        return True

    def _each(self, schedule: str, verb: str, reason: str | None) -> int:
        changed = 0
        for state in bulk_states(verb, None):
            before = None
            while True:
                page = self.bulk(verb, state, schedule=schedule, before=before, reason=reason)
                changed, before = changed + page.done, page.before
                if before is None:
                    break
        return changed


def _only_attempt(run: Run) -> list[Attempt]:
    """Of a run that succeeded at once: it has no row of its own."""
    if run.state != SUCCEEDED or run.attempt != 1:
        return []
    return [
        Attempt(
            run_seq=run.seq,
            number=1,
            worker_id=run.worker_id,
            started_at=run.started_at,
            finished_at=run.finished_at,
            outcome="succeeded",
            error=None,
        )
    ]


def schedule_number(store: AnyStore, name: str) -> int:
    """The number of a schedule, or of the last one of its name that was dropped: its ledger, its
    changes and its runs stay."""
    try:
        return store.read(operations.schedule_named, name).id
    except Unknown:
        row = store.read(operations.dropped_schedule, name)
        if row is None:
            raise
        return int(row["schedule_id"])


def page_size(limit: int) -> int:
    return check_whole(limit, "limit", 1, PAGE)


def told_reason(reason: str | None) -> str | None:
    return None if reason is None else shorten(reason, REASON_LENGTH)
