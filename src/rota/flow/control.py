"""What an operator may do: the admin object behind every surface.

Everything here is audited, and what leaves here is redacted: runs, schedules and rows. (A `Job` has
its body as runs need it; no surface shows that.) The command line, HTTP, SQL and the dashboard
call these functions and add nothing to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from rota.errors import Conflict, Invalid, Unknown
from rota.flow.charts import ChartsControl
from rota.flow.control_runs import RunControl, page_size, schedule_number, told_reason
from rota.flow.enqueue import encode_args, find_job
from rota.flow.files import list_files
from rota.flow.home import adopt
from rota.flow.lists import ListsControl
from rota.flow.look import LookControl
from rota.flow.prune import Prune
from rota.flow.tokens import TokenControl
from rota.model.duration import parse_instant
from rota.model.job import Job
from rota.model.limits import (
    PAGE,
    SELECT_ROWS,
    SELECT_SECONDS,
    STATEMENT_LENGTH,
    check_key,
    check_name,
    check_text,
    check_whole,
)
from rota.model.options import named
from rota.model.policies import CATCH_UP, choose
from rota.model.records import job_record
from rota.model.redact import redact_columns, redact_schedule, redact_text, restore_hidden
from rota.model.retention import Retention
from rota.model.run import Run
from rota.model.schedule import Schedule
from rota.storage import operations
from rota.storage.inside import StoreInside
from rota.storage.operations.audit import Actor
from rota.storage.store import AnyStore, Store

if TYPE_CHECKING:
    from rota.flow.explain import Explanation
    from rota.flow.findings import Finding
    from rota.flow.settle import FindTerminationHook
    from rota.model.result import Result


class Control(RunControl, LookControl, ChartsControl, ListsControl, TokenControl):
    """`actor` says who asks; `changed` is told after each write so that loops look at once,
    `ended` of each run that ended by it."""

    def __init__(
        self,
        store: AnyStore,
        *,
        actor: Actor,
        termination_hook_of: FindTerminationHook,
        changed: Callable[[], None] = lambda: None,
        retention: Retention | None = None,
        ended: Callable[[Run], None] = lambda run: None,
    ) -> None:
        self.store, self.actor = store, actor
        self.termination_hook_of, self.changed, self.ended = termination_hook_of, changed, ended
        self.retention = retention or Retention()

    def as_actor(self, actor: Actor) -> Control:
        """The same control in somebody else's name."""
        return Control(
            self.store,
            actor=actor,
            termination_hook_of=self.termination_hook_of,
            changed=self.changed,
            retention=self.retention,
            ended=self.ended,
        )

    def within(self, store: StoreInside, *, ended: Callable[[Run], None]) -> Control:
        """The same control on another store, such as an open transaction: nobody is woken
        before it is committed, and `ended` is told instead of the listeners."""
        return Control(
            store,
            actor=self.actor,
            termination_hook_of=self.termination_hook_of,
            retention=self.retention,
            ended=ended,
        )

    @property
    def _whole_store(self) -> Store:
        """For what takes transactions of its own: no statement of a control row asks for it."""
        assert isinstance(self.store, Store), "not within a transaction"
        return self.store

    # Reading

    def now(self) -> datetime:
        """What time it is for the store."""
        return self.store.now()

    def overview(self) -> dict[str, Any]:
        """Counts by state, schedules, and whether dispatch is on."""
        return self.store.read(operations.overview)

    def jobs(
        self, *, status: str | None = None, after: str = "", limit: int = PAGE
    ) -> list[dict[str, Any]]:
        """Jobs by name; those that are retired only if that status is asked for."""
        found = self.find_jobs(status=status, after=after, limit=page_size(limit))
        return [job_record(job) for job in found]

    def job(self, name: str) -> Job:
        """One job with all its policies; Unknown if no process registered it."""
        return find_job(self.store, name)

    def jobs_named(self, names: Sequence[str]) -> dict[str, Job]:
        """Those of them that there are, by name."""
        return self.store.read(operations.jobs_named, names)

    def audit(self, *, before: int | None = None, limit: int = PAGE) -> list[dict[str, Any]]:
        found = self.store.read(operations.list_audit, before=before, limit=page_size(limit))
        return [redact_columns(row, "before", "after") for row in found]

    def schedules(
        self, *, after: str = "", job: str | None = None, limit: int = PAGE
    ) -> list[Schedule]:
        found = self.store.read(
            operations.list_schedules, after=after, job=job, limit=page_size(limit)
        )
        return [redact_schedule(one) for one in found]

    def schedule(self, name: str) -> Schedule:
        return redact_schedule(self.store.read(operations.schedule_named, name))

    def schedule_name(self, schedule_id: int) -> str | None:
        """The name of a schedule by its number; None if there is none."""
        return self.store.read(operations.schedule_names, [schedule_id]).get(schedule_id)

    def running_by_schedule(self) -> dict[int, int]:
        """How many runs of each schedule workers have now, by its number."""
        return self.store.read(operations.running_by_schedule)

    @property
    def dialect(self) -> str:
        """Whose SQL the store speaks: sqlite, postgres or duckdb."""
        return self.store.dialect

    def occurrences(
        self, name: str, *, before: object = None, limit: int = 50
    ) -> list[dict[str, Any]]:
        """The ledger, newest first: what became of each instant that was due. `before` is the
        occurrence of the last one seen."""
        from rota.model.schedule import WAITING_FOR_RUN

        number = schedule_number(self.store, name)
        last = WAITING_FOR_RUN if before is None else parse_instant(before, "before")
        return self.store.read(
            operations.list_occurrences, number, before=last, limit=page_size(limit)
        )

    def changes(
        self, name: str, *, before: int | None = None, limit: int = 50
    ) -> list[dict[str, Any]]:
        """Who changed a schedule, when and why, newest first; `before` is the id of the last one
        seen."""
        number = schedule_number(self.store, name)
        last = 2**62 if before is None else before
        found = self.store.read(
            operations.list_schedule_changes, number, before=last, limit=page_size(limit)
        )
        return [redact_columns(row, "before", "after") for row in found]

    def dropped(self, name: str) -> dict[str, Any] | None:
        """The change by which a schedule was dropped; None while there is one of that name, and if
        there never was. Its occurrences, changes and runs are found by its name still."""
        found = self.store.read(operations.dropped_schedule, name)
        return None if found is None else redact_columns(found, "before", "after")

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
        return self.store.select(sql, limit=limit, seconds=seconds)

    def queues(self, *, after: str = "", limit: int = PAGE) -> list[dict[str, Any]]:
        return self.store.read(operations.list_queues, after=after, limit=page_size(limit))

    def workers(self, *, after: str = "", limit: int = PAGE) -> list[dict[str, Any]]:
        """By id, which begins with the host's name."""
        if after:
            check_key(after, "after")
        return self.store.read(operations.list_workers, after=after, limit=page_size(limit))

    def doctor(self, *, host: str = "127.0.0.1", cluster: str | None = None) -> list[Finding]:
        """Examine the store and the processes on it: what is wrong, and the fix."""
        from rota.flow.doctor import examine, look
        from rota.flow.worker import tzdata_version
        from rota.version import VERSION

        seen = look(
            self._whole_store, host=host, cluster=cluster, tzdata=tzdata_version(), version=VERSION
        )
        return [replace(one, says=redact_text(one.says)) for one in examine(seen)]

    def locks(self, *, after: str = "", limit: int = PAGE) -> list[dict[str, Any]]:
        if after:
            check_key(after, "after")
        return self.store.read(operations.list_locks, after=after, limit=page_size(limit))

    def files(
        self, prefix: str = "", *, after: str = "", limit: int = PAGE
    ) -> list[dict[str, Any]]:
        """What handlers keep, the oldest first; `after` is the id of the last one seen."""
        found = list_files(self.store, prefix, after, page_size(limit))
        return [msgspec.structs.asdict(file) for file in found]

    def file_content(self, file_id: str) -> bytes:
        content = self.store.read(operations.file_content, file_id)
        if content is None:
            raise Unknown(f"file {file_id!r} is not kept, or no longer")
        return content

    def delete_file(self, file_id: str) -> bool:
        """False if there was none."""
        return self.store.write(operations.delete_file, file_id, self.actor)

    # Schedules, queues, dispatch

    def put_schedule(
        self,
        schedule: Schedule,
        job: Job | None = None,
        *,
        new: bool = False,
        version: str | None = None,
        job_version: str | None = None,
    ) -> Schedule:
        """Create or edit by name. The job must exist, and the arguments must fit it; or it is a
        SQL job of the schedule's own, saved with it. `new` refuses a name that is taken,
        `version` a schedule that somebody else changed since it had that version, and
        `job_version` one whose SQL job was. Arguments that come back as they were shown keep what
        is hidden in them, as it is now."""
        before = None if new else self._schedule_or_none(schedule.name)
        if before is not None:
            self._refuse_to_leave_sql(before, schedule.job)
            if version == redact_schedule(before).version:
                version = before.version  # who edits it has seen it without its secrets
        with named(f"schedule {schedule.name!r}"):
            args = restore_hidden(schedule.args, {} if before is None else before.args)
        if before is not None and args != schedule.args:
            schedule = replace(schedule, args=args)
            version = version or before.version  # what was hidden is of this one
        encode_args(job or find_job(self.store, schedule.job), schedule.args)
        saved = self.store.write(
            operations.put_schedule,
            schedule,
            self.actor,
            job,
            new=new,
            version=version,
            job_version=job_version,
        )
        self.changed()
        return redact_schedule(saved)

    def _schedule_or_none(self, name: str) -> Schedule | None:
        try:
            return self.store.read(operations.schedule_named, name)
        except Unknown:
            return None

    def _refuse_to_leave_sql(self, before: Schedule, job: str) -> None:
        """A SQL job belongs to the schedule of its name, and nobody else would drop it."""
        if before.job == job or before.job != before.name:
            return
        own = self.store.read(operations.jobs_named, [before.job]).get(before.job)
        if own is not None and own.shared:
            raise Invalid(
                f"schedule {before.name!r} has SQL of its own; drop it, and create it for job "
                f"{job!r}: its own job goes with it"
            )

    def pause(self, name: str, reason: str | None = None) -> Schedule:
        """Stop the fires of a schedule until it is resumed; runs already made go on."""
        paused = self.store.write(operations.pause_schedule, name, told_reason(reason), self.actor)
        self.changed()
        return redact_schedule(paused)

    def resume(
        self, name: str, reason: str | None = None, *, catch_up: str | None = None
    ) -> Schedule:
        """Fire again from now on; what was missed is in the ledger, and is made up for only if
        `catch_up` says how: one or all."""
        if catch_up is not None and choose(catch_up, CATCH_UP, "catch_up") == "none":
            catch_up = None
        resumed = self.store.write(
            operations.resume_schedule, name, told_reason(reason), self.actor, catch_up=catch_up
        )
        self.changed()
        return redact_schedule(resumed)

    def drop(self, name: str, reason: str | None = None) -> None:
        """Remove a schedule, and a SQL job of its own; its ledger, changes and runs stay. That of
        a file would come back with the next start: the file has to go."""
        self._refuse_of_file(self.store.read(operations.schedule_named, name))
        self.store.write(operations.drop_schedule, name, told_reason(reason), self.actor)
        self.changed()

    def _refuse_of_file(self, schedule: Schedule) -> None:
        job = self.store.read(operations.jobs_named, [schedule.job]).get(
            schedule.name
        )  # the file's name is both
        if job is None or job.source != "file" or job.retired:
            return
        if job.enabled and not schedule.enabled:
            return  # its file has schedule = false: this one is left over from before
        raise Conflict(
            f"schedule {schedule.name!r} comes from {job.display_path}; pause it, "
            "set enabled = false there, or remove the file"
        )

    def explain(self, name: str, *, count: int = 5) -> Explanation:
        """A schedule in words, its next times, and what keeps it from running now."""
        from rota.flow.explain import explain  # and what it takes to put cron into words

        told = explain(self.store, name, check_whole(count, "count", 1, PAGE))
        return replace(
            told,
            schedule=redact_schedule(told.schedule),
            reasons=[redact_text(reason) for reason in told.reasons],
        )

    def why(self, name: str, at: object) -> str:
        """What became of the occurrence of a schedule at an instant."""
        from rota.flow.explain import why

        return redact_text(why(self.store, name, parse_instant(at, "at")))

    def pause_queue(self, name: str, reason: str | None = None) -> None:
        self.store.write(
            operations.pause_queue, check_name(name, "queue"), told_reason(reason), self.actor
        )

    def resume_queue(self, name: str) -> None:
        self.store.write(operations.resume_queue, name, self.actor)
        self.changed()

    def pause_dispatch(self, reason: str | None = None) -> None:
        """Stop claims in all processes; fires go on, running runs end."""
        self.store.write(operations.set_dispatch, False, told_reason(reason), self.actor)

    def resume_dispatch(self) -> None:
        self.store.write(operations.set_dispatch, True, None, self.actor)
        self.changed()

    def adopt(self, cluster: str | None = None) -> int:
        """Confirm that this store was moved here on purpose; how many schedules were resumed."""
        resumed = adopt(self._whole_store, cluster, self.actor)
        self.changed()
        return resumed

    def prune(self) -> int:
        """Delete what retention no longer keeps, now; how many runs."""
        deleted = Prune(self._whole_store, retention=self.retention).prune_all()
        self.store.write(operations.record_action, self.actor, "prune", "runs", after=str(deleted))
        return deleted
