"""What an operator may do: the admin object behind every surface.

Everything here is audited, and what leaves here is redacted. The command line, HTTP, SQL and
the dashboard call these functions and add nothing to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from rota.errors import Conflict, Invalid, Unknown
from rota.flow.bulk import CANCEL, DELETE, PAUSE, REDO, RESUME, Bulk, bulk_states, do_page
from rota.flow.charts import ChartsControl
from rota.flow.enqueue import Enqueue, Options, encode_args, find_job
from rota.flow.explain import Explanation, explain, why
from rota.flow.files import list_files
from rota.flow.findings import Finding
from rota.flow.look import LookControl, group_of
from rota.flow.prune import Prune
from rota.flow.tokens import TokenControl
from rota.model.duration import parse_instant
from rota.model.job import Job
from rota.model.limits import (
    BULK_RUNS,
    PAGE,
    REASON_LENGTH,
    SELECT_ROWS,
    SELECT_SECONDS,
    STATEMENT_LENGTH,
    check_name,
    check_text,
    check_whole,
)
from rota.model.policies import CATCH_UP, choose
from rota.model.redact import redact_args, redact_columns, redact_text, shorten
from rota.model.result import Result
from rota.model.retention import Retention
from rota.model.run import Enqueued, Run, begins_run_id
from rota.model.schedule import Schedule
from rota.model.transitions import CANCELLED, STATES
from rota.storage.protocol import Actor, Storage

if TYPE_CHECKING:
    from rota.executors.protocol import HearsTermination
    from rota.flow.settle import FindHearer

SHORTEST_ID = 6


class Control(LookControl, ChartsControl, TokenControl):
    """`actor` says who asks; `changed` is told after each write so that loops look at once,
    `ended` of each run that ended by it."""

    def __init__(
        self,
        storage: Storage,
        *,
        actor: Actor,
        hearer_of: FindHearer,
        changed: Callable[[], None] = lambda: None,
        retention: Retention | None = None,
        ended: Callable[[Run], None] = lambda run: None,
    ) -> None:
        self.storage, self.actor = storage, actor
        self.hearer_of, self.changed, self.ended = hearer_of, changed, ended
        self.retention = retention or Retention()

    def as_actor(self, actor: Actor) -> Control:
        """The same control in somebody else's name."""
        return Control(
            self.storage,
            actor=actor,
            hearer_of=self.hearer_of,
            changed=self.changed,
            retention=self.retention,
            ended=self.ended,
        )

    def within(self, storage: Storage, *, ended: Callable[[Run], None]) -> Control:
        """The same control on another storage, such as an open transaction: nobody is woken
        before it is committed, and `ended` is told instead of the listeners."""
        return Control(
            storage,
            actor=self.actor,
            hearer_of=self.hearer_of,
            retention=self.retention,
            ended=ended,
        )

    # Reading

    def now(self) -> datetime:
        """What time it is for the store."""
        return self.storage.now()

    def overview(self) -> dict[str, Any]:
        """Counts by state, schedules, and whether dispatch is on."""
        return self.storage.overview()

    def jobs(self, *, after: str = "", limit: int = PAGE) -> list[dict[str, Any]]:
        return [
            {
                "name": job.name,
                "executor": job.executor,
                "source": job.source,
                "queue": job.queue,
                "priority": job.priority,
                "timeout": job.timeout,
                "description": job.description,
                "enabled": job.enabled,
                "error": job.error,
                "version": job.version,
                "version_at": job.version_at,
                "args": job.signature.to_dict(),
                **job.policies(),
            }
            for job in self.storage.list_jobs(after=after, limit=_page(limit))
        ]

    def job(self, name: str) -> Job:
        """One job with all its policies; Unknown if no process registered it."""
        return find_job(self.storage, name)

    def jobs_named(self, names: Sequence[str]) -> dict[str, Job]:
        """Those of them that there are, by name."""
        return self.storage.jobs_named(names)

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
        """Newest first; `before` is the seq of the last one seen."""
        if state is not None and state not in STATES:
            raise Invalid(f"state {state!r} is unknown; use {', '.join(STATES)}")
        schedule_id = None if schedule is None else self.storage.schedule_named(schedule).id
        found = self.storage.list_runs(
            job=job,
            schedule_id=schedule_id,
            state=state,
            queue=queue,
            before=before,
            limit=_page(limit),
        )
        return [redact_args(run) for run in found]

    def run(self, run_id: str) -> Run:
        return redact_args(self.storage.run(run_id))

    def runs_beginning(self, prefix: str) -> list[Run]:
        """Runs whose id begins like this, SHORTEST_ID characters or more; at most three."""
        text = prefix.lower()
        if len(text) < SHORTEST_ID or not begins_run_id(text):
            return []
        return [self.run(run_id) for run_id in self.storage.run_ids(text, limit=3)]

    def attempts(self, run_id: str) -> list[dict[str, Any]]:
        """Every attempt that ended, also the only one of a run that succeeded at once."""
        run = self.storage.run(run_id)
        stored = [
            {
                "number": one.number,
                "worker_id": one.worker_id,
                "started_at": one.started_at,
                "finished_at": one.finished_at,
                "outcome": one.outcome,
                "error": None if one.error is None else redact_text(one.error),
            }
            for one in self.storage.list_attempts(run.seq, limit=PAGE)
        ]
        if run.state == "succeeded" and run.attempt == 1 and not stored:
            stored = [
                {
                    "number": 1,
                    "worker_id": run.worker_id,
                    "started_at": run.started_at,
                    "finished_at": run.finished_at,
                    "outcome": "succeeded",
                    "error": None,
                }
            ]
        return stored

    def logs(self, run_id: str, *, after: int = 0, limit: int = PAGE) -> list[dict[str, Any]]:
        run = self.storage.run(run_id)
        found = self.storage.list_logs(run.seq, after=after, limit=_page(limit))
        return [redact_columns(row, "text") for row in found]

    def log_tail(
        self, run_id: str, *, before: int | None = None, limit: int = PAGE
    ) -> list[dict[str, Any]]:
        """The last lines of a run, in their order; `before` is the id of the first one seen."""
        run = self.storage.run(run_id)
        found = self.storage.tail_logs(run.seq, before=before, limit=_page(limit))
        return [redact_columns(row, "text") for row in found]

    def events(
        self, run_id: str | None = None, *, before: int | None = None, limit: int = PAGE
    ) -> list[dict[str, Any]]:
        found = self.storage.list_events(run_id=run_id, before=before, limit=_page(limit))
        return [redact_columns(row, "detail") for row in found]

    def audit(self, *, before: int | None = None, limit: int = PAGE) -> list[dict[str, Any]]:
        found = self.storage.list_audit(before=before, limit=_page(limit))
        return [redact_columns(row, "before", "after") for row in found]

    def schedules(
        self, *, after: str = "", job: str | None = None, limit: int = PAGE
    ) -> list[Schedule]:
        return self.storage.list_schedules(after=after, job=job, limit=_page(limit))

    def schedule(self, name: str) -> Schedule:
        return self.storage.schedule_named(name)

    def schedule_name(self, schedule_id: int) -> str | None:
        """The name of a schedule by its number; None if there is none."""
        found = self.storage.schedule_words(schedule_id)
        return None if found is None else found[0]

    def running_by_schedule(self) -> dict[int, int]:
        """How many runs of each schedule workers have now, by its number."""
        return self.storage.running_by_schedule()

    @property
    def dialect(self) -> str:
        """Whose SQL the store speaks: sqlite, postgres or duckdb."""
        return self.storage.dialect

    def occurrences(
        self, name: str, *, before: object = None, limit: int = 50
    ) -> list[dict[str, Any]]:
        """The ledger, newest first: what became of each instant that was due. `before` is the
        occurrence of the last one seen."""
        from rota.model.schedule import WAITING_FOR_RUN

        schedule = self.storage.schedule_named(name)
        last = WAITING_FOR_RUN if before is None else parse_instant(before, "before")
        return self.storage.list_occurrences(schedule.id, before=last, limit=_page(limit))

    def changes(
        self, name: str, *, before: int | None = None, limit: int = 50
    ) -> list[dict[str, Any]]:
        """Who changed a schedule, when and why, newest first; `before` is the id of the last one
        seen."""
        schedule = self.storage.schedule_named(name)
        last = 2**62 if before is None else before
        found = self.storage.list_schedule_changes(schedule.id, before=last, limit=_page(limit))
        return [redact_columns(row, "before", "after") for row in found]

    def select(
        self, sql: str, *, limit: int = SELECT_ROWS, seconds: float = SELECT_SECONDS
    ) -> Result:
        """One SELECT over the views, by their bare names too; nothing else can be read with it,
        and nothing changed."""
        if len(sql) > STATEMENT_LENGTH:
            raise Invalid(
                f"the query has {len(sql):,} characters; the limit is {STATEMENT_LENGTH:,}"
            )
        check_text(sql, "the query")
        if "\0" in sql:
            raise Invalid("the query holds a NUL character; remove it")
        check_whole(limit, "limit", 1, SELECT_ROWS)
        if not 0 < seconds <= SELECT_SECONDS:
            raise Invalid(f"seconds {seconds!r} must be above 0 and at most {SELECT_SECONDS:g}")
        return self.storage.select(sql, limit=limit, seconds=seconds)

    def queues(self) -> list[dict[str, Any]]:
        return self.storage.list_queues(limit=PAGE)

    def workers(self) -> list[dict[str, Any]]:
        return self.storage.list_workers(limit=PAGE)

    def doctor(self, *, host: str = "127.0.0.1", cluster: str | None = None) -> list[Finding]:
        """Examine the store and the processes on it: what is wrong, and the fix."""
        from rota.flow.doctor import examine, look
        from rota.flow.worker import tzdata_version
        from rota.version import VERSION

        seen = look(
            self.storage, host=host, cluster=cluster, tzdata=tzdata_version(), version=VERSION
        )
        return [replace(one, says=redact_text(one.says)) for one in examine(seen)]

    def locks(self) -> list[dict[str, Any]]:
        return self.storage.list_locks(limit=PAGE)

    def files(
        self, prefix: str = "", *, after: str = "", limit: int = PAGE
    ) -> list[dict[str, Any]]:
        """What handlers keep, the oldest first; `after` is the id of the last one seen."""
        found = list_files(self.storage, prefix, after, _page(limit))
        return [msgspec.structs.asdict(file) for file in found]

    def file_content(self, file_id: str) -> bytes:
        content = self.storage.file_content(file_id)
        if content is None:
            raise Unknown(f"file {file_id!r} is not kept, or no longer")
        return content

    def delete_file(self, file_id: str) -> bool:
        """False if there was none."""
        return self.storage.delete_file(file_id, self.actor)

    # Runs

    def enqueue(self, job: str, args: Mapping[str, Any], options: Options) -> Enqueued:
        """A run of any job that some process registered."""
        enqueue = Enqueue(self.storage, enqueued=self.changed, created_by=self.actor.by)
        return self._audited(
            "enqueue", job, enqueue.one(find_job(self.storage, job), args, options)
        )

    def trigger(
        self, name: str, args: Mapping[str, Any] | None = None, *, force: bool = False
    ) -> Enqueued:
        """Run a job or a schedule now; the cursor stays. Takes the overlap slot unless forced.

        `args` add to the schedule's own, or are the job's.
        """
        try:
            schedule = self.storage.schedule_named(name)
        except Unknown:
            return self.trigger_job(name, args, force=force)
        enqueue = Enqueue(self.storage, enqueued=self.changed, created_by=self.actor.by)
        job = find_job(self.storage, schedule.job)
        overlap_key = None if force else schedule.slot
        told = {**schedule.args, **(args or {})}
        made = enqueue.triggered(job, told, overlap_key=overlap_key, schedule=schedule)
        return self._audited("trigger", name, made)

    def trigger_job(
        self, name: str, args: Mapping[str, Any] | None = None, *, force: bool = False
    ) -> Enqueued:
        """Run a job now, whatever schedule may bear its name."""
        enqueue = Enqueue(self.storage, enqueued=self.changed, created_by=self.actor.by)
        job = find_job(self.storage, name)
        overlap_key = None if force or job.source == "api" else job.overlap_key
        made = enqueue.triggered(job, args or {}, overlap_key=overlap_key)
        return self._audited("trigger", name, made)

    def _audited(self, action: str, name: str, made: Enqueued) -> Enqueued:
        self.storage.record_action(self.actor, action, name, after=made.id)
        return made

    def cancel(self, run_id: str, reason: str | None = None, *, running: bool = True) -> Run:
        """End a run that has not started; ask its worker to end one that runs (`running` false
        leaves that one alone)."""
        from rota.flow.settle import asking  # commands that look do not pay for what settles

        run = self.storage.run(run_id)
        hearer = self._hearer(run)
        ask = None if hearer is None else asking(hearer)
        told = self.storage.cancel_run(run_id, _reason(reason), self.actor, ask, running=running)
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
        the files as they are now, from the first."""
        if latest and from_step is not None:
            raise Invalid(
                "redo takes the latest files from the first step, or the kept ones from a step; "
                "say one of the two"
            )
        return self._changed(
            self.storage.redo_run(
                run_id, _reason(reason), self.actor, from_step=from_step, latest=latest
            )
        )

    def steps(self, run_id: str) -> list[dict[str, Any]]:
        """The steps of a SQL run, attempt by attempt."""
        run = self.storage.run(run_id)
        found = self.storage.list_steps(run.seq, limit=PAGE)
        return [redact_columns(row, "error") for row in found]

    def pause_run(self, run_id: str, reason: str | None = None) -> Run:
        return self._changed(self.storage.pause_run(run_id, _reason(reason), self.actor))

    def resume_run(self, run_id: str, reason: str | None = None) -> Run:
        return self._changed(self.storage.resume_run(run_id, _reason(reason), self.actor))

    def delete(self, run_id: str, reason: str | None = None) -> None:
        """Remove a run that is not running, with its attempts and logs."""
        self.storage.delete_run(run_id, _reason(reason), self.actor)
        self.changed()

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
        found = self.storage.list_runs(
            job=job,
            schedule_id=None if schedule is None else self.storage.schedule_named(schedule).id,
            state=state,
            queue=queue,
            before=before,
            limit=_page(limit),
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
        return self.storage.count_matching_runs(
            state,
            job=job,
            schedule_id=None if schedule is None else self.storage.schedule_named(schedule).id,
            queue=queue,
            limit=check_whole(limit, "limit", 1, BULK_RUNS),
        )

    def _hearer(self, run: Run) -> HearsTermination | None:
        try:
            return self.hearer_of(run.job)
        except Unknown as fault:
            raise Conflict(
                f"run {run.id} can only be cancelled where its executor is installed: {fault}"
            ) from None

    def _changed(self, run: Run) -> Run:
        self.changed()
        return redact_args(run)

    # Schedules, queues, dispatch

    def put_schedule(
        self,
        schedule: Schedule,
        job: Job | None = None,
        *,
        new: bool = False,
        version: str | None = None,
    ) -> Schedule:
        """Create or edit by name. The job must exist, and the arguments must fit it; or it is a
        SQL job of the schedule's own, saved with it. `new` refuses a name that is taken, and
        `version` a schedule that somebody else changed since it had that version."""
        encode_args(job or find_job(self.storage, schedule.job), schedule.args)
        saved = self.storage.put_schedule(schedule, self.actor, job, new=new, version=version)
        self.changed()
        return saved

    def pause(self, name: str, reason: str | None = None) -> Schedule:
        """Stop the fires of a schedule until it is resumed; runs already made go on."""
        paused = self.storage.pause_schedule(name, _reason(reason), self.actor)
        self.changed()
        return paused

    def resume(
        self, name: str, reason: str | None = None, *, catch_up: str | None = None
    ) -> Schedule:
        """Fire again from now on; what was missed is in the ledger, and is made up for only if
        `catch_up` says how: one or all."""
        if catch_up is not None and choose(catch_up, CATCH_UP, "catch_up") == "none":
            catch_up = None
        resumed = self.storage.resume_schedule(name, _reason(reason), self.actor, catch_up=catch_up)
        self.changed()
        return resumed

    def drop(self, name: str, reason: str | None = None) -> None:
        """Remove a schedule, and a SQL job of its own; its ledger, changes and runs stay."""
        self.storage.drop_schedule(name, _reason(reason), self.actor)
        self.changed()

    def explain(self, name: str, *, count: int = 5) -> Explanation:
        """A schedule in words, its next times, and what keeps it from running now."""
        return explain(self.storage, name, check_whole(count, "count", 1, PAGE))

    def why(self, name: str, at: object) -> str:
        """What became of the occurrence of a schedule at an instant."""
        return why(self.storage, name, parse_instant(at, "at"))

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
        """End the runs of jobs whose files are gone, but for those that run; how many."""
        ended = 0
        while ids := self.storage.unstarted_retired_runs(origin, limit=PAGE):
            for run_id in ids:
                with suppress(Conflict, Unknown):
                    self.cancel(run_id, "its job was retired: its files are gone", running=False)
                    ended += 1
            if len(ids) < PAGE:
                break
        return ended

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

    def pause_queue(self, name: str, reason: str | None = None) -> None:
        self.storage.pause_queue(check_name(name, "queue"), _reason(reason), self.actor)

    def resume_queue(self, name: str) -> None:
        self.storage.resume_queue(name, self.actor)
        self.changed()

    def pause_dispatch(self, reason: str | None = None) -> None:
        """Stop claims in all processes; fires go on, running runs end."""
        self.storage.set_dispatch(False, _reason(reason), self.actor)

    def resume_dispatch(self) -> None:
        self.storage.set_dispatch(True, None, self.actor)
        self.changed()

    def adopt(self, cluster: str | None = None) -> int:
        """Confirm that this store was moved here on purpose; how many schedules were resumed."""
        resumed = self.storage.adopt(cluster, self.actor)
        self.changed()
        return resumed

    def prune(self) -> int:
        """Delete what retention no longer keeps, now; how many runs."""
        deleted = Prune(self.storage, retention=self.retention).prune_all()
        self.storage.record_action(self.actor, "prune", "runs", after=str(deleted))
        return deleted


def _page(limit: int) -> int:
    return check_whole(limit, "limit", 1, PAGE)


def _reason(reason: str | None) -> str | None:
    return None if reason is None else shorten(reason, REASON_LENGTH)
