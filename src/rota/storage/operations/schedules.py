"""Schedules as rows: create, edit, pause, resume, drop; each leaves its change behind."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

import msgspec

from rota.errors import Invalid, Unknown
from rota.model.control_row import FAILED, PAUSE, RESUME, matches_request
from rota.model.limits import PENDING_REQUESTS, REASON_LENGTH
from rota.model.plan import OccurrenceRange, plan_fire, plan_resume
from rota.model.records import dropped_in_words
from rota.model.redact import redact_text
from rota.model.schedule import Schedule, edited
from rota.storage import rows
from rota.storage.engine import Row, Transaction
from rota.storage.operations.audit import Actor, record_change, record_changes
from rota.storage.operations.firing import fire_plans
from rota.storage.operations.installation import read_clock

REPLAYED = 10_000


REGISTERED_ANEW = "its definition in code or file changed; what was edited here is replaced"


def register_schedule(tx: Transaction, wanted: Schedule, actor: Actor) -> Schedule:
    """Create it, or make it what its code says by now. The definition that was registered last
    says nothing new: what an operator edited since then stays."""
    return register_one(tx, wanted, actor)


def register_one(tx: Transaction, wanted: Schedule, actor: Actor) -> Schedule:
    """Another definition than the one registered last wins as a whole."""
    now, wanted = read_clock(tx), wanted.as_registered()
    old = _made_or_locked(tx, wanted, now, actor)
    if old.registered == wanted.registered and old.error is None:
        return old
    if old.definition() == wanted.definition() and old.error is None:
        tx.all("set_registered", id=old.id, registered=wanted.registered)
        return old.copy_unchecked(registered=wanted.registered)
    reason = REGISTERED_ANEW if old.operator_changes() else None
    return _edit(tx, old, wanted, now, actor, reason)


def put_one_schedule(tx: Transaction, wanted: Schedule, actor: Actor) -> Schedule:
    """Create or edit by name. The same definition changes nothing; nothing fires the past."""
    now = read_clock(tx)
    # What a program registered is no part of what somebody asks for, who may have read it.
    old = _made_or_locked(tx, wanted.copy_unchecked(registered=None), now, actor)
    if old.definition() == wanted.definition() and old.error is None:
        return old
    return _edit(tx, old, wanted.copy_unchecked(registered=old.registered), now, actor)


def _made_or_locked(tx: Transaction, wanted: Schedule, now: datetime, actor: Actor) -> Schedule:
    """The schedule of that name, which is made if there is none."""
    row = tx.one("lock_schedule", name=wanted.name)
    if row is None:
        if made := insert_schedules(tx, [planned(wanted, now)], actor):
            return made[0]
        # Another process was faster: from here on it is an edit, mostly of nothing.
        row = tx.one("lock_schedule", name=wanted.name)
        assert row is not None, "what conflicts exists"
    return rows.schedule(row)


def _edit(
    tx: Transaction,
    old: Schedule,
    wanted: Schedule,
    now: datetime,
    actor: Actor,
    reason: str | None = None,
) -> Schedule:
    new = edited(old, wanted, now)
    if old.timing() != wanted.timing() or old.error is not None:
        _refuse_never(new)
        _record_abandoned(tx, old, now)
    if new.enabled and not old.enabled:
        resumed, missed = plan_resume(new, now)
        new = replace(new, next_fire_at=resumed)
        record_missed(tx, new, missed)
    changed = tx.one("update_schedule", **rows.schedule_row(new))
    assert changed is not None
    saved = rows.schedule(changed)
    record_change(tx, saved, actor, "alter", reason, old, saved)
    return saved


def insert_schedules(tx: Transaction, new: Sequence[Schedule], actor: Actor) -> list[Schedule]:
    """Create schedules; those of a name that exists are not among the answers."""
    told = [_without(rows.schedule_row(one), "id") for one in new]
    made = [rows.schedule(row) for row in tx.many("insert_schedules", told)]
    record_changes(tx, [(one, None, one) for one in made], actor, "create")
    return made


def _record_abandoned(tx: Transaction, old: Schedule, now: datetime) -> None:
    """What was due by the old timing and had not fired does not fire any more."""
    if old.error is not None:
        return
    _, missed = plan_resume(old, now)
    if missed is not None and old.enabled and not old.paused:
        missed = msgspec.structs.replace(missed, reason="the timing was changed before it fired")
    record_missed(tx, old, missed)


def schedule_words(tx: Transaction, ids: Collection[int]) -> dict[int, tuple[str, str]]:
    """The names of schedules and what they say, as the view `jobs` does; of those there are."""
    if not ids:
        return {}
    found = tx.all("schedules_by_id", ids=sorted(ids))
    return {
        row["id"]: (
            row["name"],
            row["expr"] if row["kind"] == "cron" else f"{row['kind']} {row['expr']}",
        )
        for row in found
    }


def list_schedules(
    tx: Transaction, *, after: str = "", job: str | None = None, limit: int
) -> list[Schedule]:
    found = tx.all("list_schedules", after=after, job=job, limit=limit)
    return [rows.schedule(row) for row in found]


def pause_schedule(tx: Transaction, name: str, reason: str | None, actor: Actor) -> Schedule:
    """Stop fires. Runs already made go on; the cursor stays where it is."""
    withdrawn = _withdraw(tx, RESUME, name, f"paused by {actor.by}")
    old = schedule_named(tx, name, "lock_schedule")
    _tell_withdrawn(tx, old, withdrawn, "resume", f"paused by {actor.by}")
    told = f"paused by {actor.by}" + (f": {reason}" if reason else "")
    verb = "pause_again" if old.paused and withdrawn else "pause_schedule"
    row = tx.one(verb, id=old.id, by=actor.by, reason=reason, state=told)
    if row is None:
        return old
    paused = rows.schedule(row)
    record_change(tx, paused, actor, "pause", reason, old, paused)
    return paused


def resume_schedule(
    tx: Transaction, name: str, reason: str | None, actor: Actor, *, catch_up: str | None = None
) -> Schedule:
    """Fire again from now on. What was missed is recorded; it is replayed only if asked."""
    withdrawn = _withdraw(tx, PAUSE, name, f"resumed by {actor.by}")
    old, now = schedule_named(tx, name, "lock_schedule"), read_clock(tx)
    _tell_withdrawn(tx, old, withdrawn, "pause", f"resumed by {actor.by}")
    if not old.paused:
        return old
    following, missed = plan_resume(old, now)
    told = f"resumed by {actor.by}"
    # A disabled schedule fires nothing, also not what it missed.
    replay = catch_up if old.enabled and missed is not None else None
    if replay is not None:
        following = old.next_fire_at
        told += f", what was missed is made up for (catch-up {replay})"
    elif missed is not None and old.kind == "once":
        told = f"its time passed while it was paused; marked missed by {actor.by}"
    row = tx.one("resume_schedule", id=old.id, next_fire_at=following, state=told)
    assert row is not None, "the row was paused in this transaction"
    resumed = rows.schedule(row)
    if replay is None:
        record_missed(tx, resumed, missed)
    else:
        resumed = _replay(tx, resumed, replay, now)
    record_change(tx, resumed, actor, "resume", reason, old, resumed)
    return resumed


def _withdraw(tx: Transaction, verb: str, name: str, because: str) -> list[str]:
    """Answer the rows that ask for the opposite and that nobody has done: the last word
    counts. Who had asked. Rows are locked before the schedule, as by who answers them."""
    if tx.answers_request:  # those that wait still were asked later
        return []
    tx.one("lock_words", name=name)
    longest = 3 * REASON_LENGTH  # each quote in a reason is written twice
    found = tx.all("waiting_words", verb=verb, longest=longest, limit=PENDING_REQUESTS)
    error = f"withdrawn before it was done: schedule {name!r} was {because}"
    asked = []
    for row in found:
        told = {"rows": None, "more": False, "error": error}
        kept = redact_text(row["statement"])
        if matches_request(row["statement"], verb, name) and tx.one(
            "answer_row", id=row["id"], status=FAILED, kept=kept, **told
        ):
            asked.append(row["requested_by"] or "unknown")
    return asked


def _tell_withdrawn(
    tx: Transaction, schedule: Schedule, asked: Sequence[str], action: str, because: str
) -> None:
    """A word that was withdrawn, in the history of the schedule that it did not change."""
    reason = f"withdrawn before it was done: {because}"
    for by in asked:
        actor = Actor(by=by, via="control")
        record_change(tx, schedule, actor, action, reason, schedule, schedule)


def _replay(tx: Transaction, schedule: Schedule, catch_up: str, now: datetime) -> Schedule:
    """Fire what was missed as `catch_up` says, up to REPLAYED occurrences; what is left
    then follows the schedule's own policy."""
    found = tx.all("jobs_named", names=[schedule.job])
    jobs = {row["name"]: rows.checked_job(row) for row in found}
    fired = 0
    while schedule.next_fire_at is not None and schedule.next_fire_at <= now:
        plan = plan_fire(replace(schedule, catch_up=catch_up), now)
        if plan.broken is not None or fired >= REPLAYED:
            break
        fire_plans(tx, [plan], jobs)
        fired += len(plan.runs)
        schedule = replace(schedule, next_fire_at=plan.next_fire_at)
    return schedule_named(tx, schedule.name)


def drop_one(tx: Transaction, name: str, reason: str | None, actor: Actor) -> Schedule:
    old = schedule_named(tx, name, "lock_schedule")
    tx.all("drop_schedule", id=old.id)
    record_change(tx, old, actor, "drop", reason, old, None)
    return old


def schedule_named(tx: Transaction, name: str, statement: str = "schedule_named") -> Schedule:
    row = tx.one(statement, name=name)
    if row is None:
        dropped = tx.one("dropped_schedule", name=name)
        if dropped is None:
            raise Unknown(f"schedule {name!r} does not exist; `rota schedules` lists them")
        raise Unknown(f"{dropped_in_words(dropped)}; `rota show {name}` has its history")
    return rows.schedule(row)


def record_missed(tx: Transaction, schedule: Schedule, missed: OccurrenceRange | None) -> None:
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


def list_schedule_changes(
    tx: Transaction, schedule_id: int, *, before: int, limit: int
) -> list[Row]:
    return tx.all("list_schedule_changes", schedule_id=schedule_id, before=before, limit=limit)


def dropped_schedule(tx: Transaction, name: str) -> Row | None:
    """How the last schedule of this name was dropped; None if there never was one, or is one
    again."""
    if tx.one("schedule_named", name=name) is not None:
        return None
    return tx.one("dropped_schedule", name=name)


def planned(wanted: Schedule, now: datetime) -> Schedule:
    new = replace(wanted, next_fire_at=wanted.first_fire(now))
    _refuse_never(new)
    return new


def _refuse_never(schedule: Schedule) -> None:
    """Expressions are checked when they are saved, against the clock that will decide."""
    if schedule.next_fire_at is None:
        raise Invalid(
            f"schedule {schedule.name!r}: {schedule.described()} has no occurrence from now on; "
            "check day, month, year and ends_at"
        )


def _without(row: Row, *names: str) -> Row:
    return {name: value for name, value in row.items() if name not in names}


def schedule_names(tx: Transaction, ids: Collection[int]) -> dict[int, str]:
    """Those of them that there still are."""
    if not ids:
        return {}
    found = tx.all("schedules_by_id", ids=sorted(ids))
    return {row["id"]: row["name"] for row in found}


def schedules_due(tx: Transaction, until_at: datetime, *, limit: int) -> list[Schedule]:
    """Schedules that fire until then, the earliest first."""

    ids = [row["id"] for row in tx.all("schedule_ids_due", until_at=until_at, limit=limit)]
    return [rows.schedule(row) for row in tx.all("schedules_by_id", ids=ids)] if ids else []


def find_schedules(
    tx: Transaction,
    *,
    words: str | None,
    job: str | None,
    status: str | None,
    sort: str,
    after_key: int,
    after: str,
    limit: int,
) -> list[tuple[int, Schedule]]:
    """Schedules whose name or job holds `words`, with the key that they are sorted by."""
    found = tx.all(
        "find_schedules", words=words, job=job, status=status, sort=sort,
        after_key=after_key, after=after, limit=limit,
    )  # fmt: skip
    ids = [row["id"] for row in found]
    there = {row["id"]: row for row in tx.all("schedules_by_id", ids=ids)} if ids else {}
    return [
        (row["sort_key"], rows.schedule(there[row["id"]])) for row in found if row["id"] in there
    ]


def schedules_of_jobs(
    tx: Transaction, names: Collection[str], *, each: int
) -> dict[str, tuple[int, list[Schedule]]]:
    """How many schedules each of the jobs has, and the first `each` of them."""

    found = tx.all("schedule_ids_of_jobs", names=sorted(names), each=each) if names else []
    ids = [row["id"] for row in found]
    there = {row["id"]: row for row in tx.all("schedules_by_id", ids=ids)} if ids else {}
    told: dict[str, tuple[int, list[Schedule]]] = {}
    for row in found:
        _, some = told.setdefault(row["job"], (row["schedules"], []))
        if row["id"] in there:
            some.append(rows.schedule(there[row["id"]]))
    return told
