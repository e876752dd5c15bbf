"""Create a schedule, or change the options that are given and leave the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from rota.cli.arguments import read_arguments
from rota.cli.find import schedule_or_none
from rota.cli.options import HERE, Where
from rota.cli.output import note, say, say_json
from rota.cli.parameter import Parameter
from rota.cli.records import schedule_record
from rota.cli.store import operating, settings_of
from rota.cli.times import when, zone_of
from rota.errors import Invalid
from rota.flow.control import Control
from rota.model.options import kind_of, retry_policy_of, split_retry, without_effect
from rota.model.schedule import Schedule

Name = Annotated[str | None, Parameter(metavar="NAME")]
Span = Annotated[str | None, Parameter(metavar="DURATION")]
Instant = Annotated[str | None, Parameter(metavar="INSTANT")]
Choice = Annotated[str | None, Parameter(metavar="CHOICE")]
Whole = Annotated[int | None, Parameter(metavar="N")]

# Flags of a schedule whose name and meaning are those of its field.
PLAIN = (
    "job", "timezone", "dst", "anchor", "overlap", "overlap_key", "queue_max", "on_error",
    "pause_after", "catch_up", "catch_up_limit", "misfire_grace", "jitter", "spread", "first_run",
    "starts_at", "ends_at", "priority", "owner", "enabled",
)  # fmt: skip


def schedule(
    name: Annotated[str, Parameter(name="NAME")],
    /,
    *,
    job: Name = None,
    cron: Annotated[str | None, Parameter(metavar="EXPR")] = None,
    every: Span = None,
    at: Instant = None,
    timezone: Annotated[str | None, Parameter(alias="--tz", metavar="ZONE")] = None,
    dst: Choice = None,
    anchor: Choice = None,
    overlap: Choice = None,
    overlap_key: Annotated[str | None, Parameter(metavar="TEXT")] = None,
    queue_max: Whole = None,
    on_error: Choice = None,
    pause_after: Whole = None,
    catch_up: Choice = None,
    catch_up_limit: Whole = None,
    misfire_grace: Span = None,
    jitter: Span = None,
    spread: Span = None,
    first_run: Instant = None,
    starts_at: Instant = None,
    ends_at: Instant = None,
    arg: Annotated[list[str] | None, Parameter(metavar="NAME=VALUE")] = None,
    args: Annotated[str | None, Parameter(metavar="JSON")] = None,
    priority: Whole = None,
    max_attempts: Whole = None,
    backoff: Choice = None,
    delay: Annotated[str | None, Parameter(alias="--retry-delay", metavar="DURATION")] = None,
    max_delay: Span = None,
    retry_jitter: Span = None,
    owner: Name = None,
    enabled: Annotated[bool | None, Parameter(negative="--disabled")] = None,
    where: Where = HERE,
) -> None:
    """Create a schedule, or change the options given of one that exists.

    Parameters
    ----------
    name
        Its name.
    job
        The job it makes runs of. Needed for a new one.
    cron
        Fire at these times: 5 fields, 6 with seconds first, or 7 with the year last.
    every
        Fire in this interval, such as 5m or 1h30m.
    at
        Fire once, at this instant.
    timezone
        The zone of --cron, such as Europe/Berlin, or local.
    dst
        When clocks change: vixie, literal or skip_once.
    anchor
        Count --every from the previous slot (rate) or from the end of the run (delay).
    overlap
        When the run before has not ended: queue, wait, skip or allow.
    overlap_key
        Schedules with one key count as one for --overlap.
    queue_max
        With --overlap queue: at most this many wait.
    on_error
        When a run is dead: next, retry or pause.
    pause_after
        Pause after this many dead runs in a row.
    catch_up
        After downtime: one, none or all.
    catch_up_limit
        With --catch-up all: at most this many at a time.
    misfire_grace
        With --catch-up none: how late a run may still be made.
    jitter
        Delay each run by chance, up to this.
    spread
        Delay by a part of this that follows from the name.
    first_run
        The first time to fire.
    starts_at
        Do not fire before.
    ends_at
        Do not fire after.
    arg
        One argument of its runs, may be repeated. Read as JSON unless the job asks for text.
    args
        All arguments of its runs, as a JSON object.
    priority
        Of its runs: higher first.
    max_attempts
        Failures until a run is dead.
    backoff
        Between attempts: none, fixed, exponential or quadratic.
    delay
        The first wait between attempts.
    max_delay
        The longest wait between attempts.
    retry_jitter
        Added to the wait by chance, up to this.
    owner
        Whom to ask about it; of a new one, who makes it if not given.
    enabled
        Whether it fires at all; a pause is the operator's own switch.
    """
    flags = {flag: value for flag, value in locals().items() if value is not None}
    with operating(where) as control:
        before = schedule_or_none(control, name)
        last = None if before is None else _last_change(control, name)
        wanted = _wanted(control, name, before, flags)
        version = None if before is None else before.version
        saved = control.put_schedule(wanted, new=before is None, version=version)
        now, same = control.now(), _last_change(control, name) == last
    if where.json:
        return say_json(schedule_record(saved))
    done = "created" if before is None else "unchanged" if same else "changed"
    active = saved.status == "ACTIVE"
    fires = when(saved.next_fire_at, now, zone_of(saved), named=True)
    told = f"next {fires}" if active else saved.status.lower()
    say(f"schedule {name} is {done}: {saved.described()}, {told}")
    for idle in without_effect(saved):
        note(idle)
    if saved.operator_changes():
        note("this differs from its code or file, and stays until that says something else")


def _last_change(control: Control, name: str) -> object:
    """Tells a change apart that is not shown, such as another password."""
    return next((row["id"] for row in control.changes(name, limit=1)), None)


def _wanted(
    control: Control, name: str, before: Schedule | None, flags: dict[str, Any]
) -> Schedule:
    """The definition after this command: what it was, with what was told."""
    told = {field: flags[field] for field in PLAIN if field in flags} | _timing(name, flags)
    job = control.job(_job(name, before, flags))
    if "arg" in flags or "args" in flags:
        told["args"] = read_arguments(job, flags.get("arg"), flags.get("args"))
    if retry := split_retry(flags)[1]:
        told["retry"] = retry_policy_of(retry, job.retry, None if before is None else before.retry)
    if before is not None:
        return replace(before, **told)
    if "kind" not in told:
        raise Invalid(f"schedule {name!r} is new; give --cron, --every or --at")
    told.setdefault("timezone", settings_of(flags["where"]).timezone)
    told.setdefault("owner", control.actor.by)
    return Schedule(name=name, **told)


def _job(name: str, before: Schedule | None, flags: dict[str, Any]) -> str:
    if "job" in flags:
        return str(flags["job"])
    if before is None:
        raise Invalid(f"schedule {name!r} is new; give --job")
    return before.job


def _timing(name: str, flags: dict[str, Any]) -> dict[str, str]:
    """Kind and expression, if one was given."""
    given = [flag for flag in ("cron", "every", "at") if flag in flags]
    if len(given) > 1:
        raise Invalid(f"schedule {name!r}: give one of --cron, --every and --at")
    if not given:
        return {}
    kind, expr = kind_of(**{flag: flags[flag] for flag in given})
    return {"kind": kind, "expr": expr}
