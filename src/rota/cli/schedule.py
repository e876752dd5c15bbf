"""Create a schedule, or change the options that are given and leave the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from rota.cli.arguments import read_arguments
from rota.cli.find import schedule_or_none
from rota.cli.options import HERE, JOBS, SCHEDULES, Option, Where, takes
from rota.cli.output import note, say, say_json
from rota.cli.records import schedule_record
from rota.cli.store import operating, settings_of
from rota.cli.times import when, zone_of
from rota.errors import Invalid
from rota.flow.control import Control
from rota.model.options import kind_of, retry_policy_of, split_retry, without_effect
from rota.model.policies import ANCHOR, CATCH_UP, DST
from rota.model.retry import BACKOFFS
from rota.model.schedule import Schedule

# What the command takes beside the name of a schedule.
OPTIONS = {
    "job": Option("The job it makes runs of. Needed for a new one.", "NAME", values=JOBS),
    "cron": Option(
        "Fire at these times: 5 fields, 6 with seconds first, or 7 with the year last.", "EXPR"
    ),
    "every": Option("Fire in this interval, such as 5m or 1h30m.", "DURATION"),
    "at": Option("Fire once, at this instant.", "INSTANT"),
    "timezone": Option(
        "The zone of --cron, such as Europe/Berlin, or local.", "ZONE", names=("--timezone", "--tz")
    ),
    "dst": Option("When clocks change: vixie, literal or skip_once.", "CHOICE", values=tuple(DST)),
    "anchor": Option(
        "Count --every from the previous slot (rate) or from the end of the run (delay).",
        "CHOICE",
        values=tuple(ANCHOR),
    ),
    "overlap": Option(
        "When the run before has not ended: queue, wait, skip or allow.",
        "CHOICE",
        values=("queue", "wait", "skip", "allow"),
    ),
    "overlap_key": Option("Schedules with one key count as one for --overlap.", "TEXT"),
    "queue_max": Option("With --overlap queue: at most this many wait.", "N", kind=int),
    "on_error": Option(
        "When a run is dead: next, retry or pause.", "CHOICE", values=("next", "retry", "pause")
    ),
    "pause_after": Option("Pause after this many dead runs in a row.", "N", kind=int),
    "catch_up": Option("After downtime: one, none or all.", "CHOICE", values=tuple(CATCH_UP)),
    "catch_up_limit": Option("With --catch-up all: at most this many at a time.", "N", kind=int),
    "misfire_grace": Option("With --catch-up none: how late a run may still be made.", "DURATION"),
    "jitter": Option("Delay each run by chance, up to this.", "DURATION"),
    "spread": Option("Delay by a part of this that follows from the name.", "DURATION"),
    "first_run": Option("The first time to fire.", "INSTANT"),
    "starts_at": Option("Do not fire before.", "INSTANT"),
    "ends_at": Option("Do not fire after.", "INSTANT"),
    "arg": Option(
        "One argument of its runs, may be repeated. Read as JSON unless the job asks for text.",
        "NAME=VALUE",
        many=True,
    ),
    "args": Option("All arguments of its runs, as a JSON object.", "JSON"),
    "priority": Option("Of its runs: higher first.", "N", kind=int),
    "max_attempts": Option("Failures until a run is dead.", "N", kind=int),
    "backoff": Option(
        "Between attempts: none, fixed, exponential or quadratic.", "CHOICE", values=BACKOFFS
    ),
    "delay": Option(
        "The first wait between attempts.", "DURATION", names=("--delay", "--retry-delay")
    ),
    "max_delay": Option("The longest wait between attempts.", "DURATION"),
    "retry_jitter": Option("Added to the wait by chance, up to this.", "DURATION"),
    "owner": Option("Whom to ask about it; of a new one, who makes it if not given.", "NAME"),
    "enabled": Option(
        "Whether it fires at all; a pause is the operator's own switch.",
        off="--disabled",
        kind=bool,
    ),
}


# Flags of a schedule whose name and meaning are those of its field.
PLAIN = (
    "job", "timezone", "dst", "anchor", "overlap", "overlap_key", "queue_max", "on_error",
    "pause_after", "catch_up", "catch_up_limit", "misfire_grace", "jitter", "spread", "first_run",
    "starts_at", "ends_at", "priority", "owner", "enabled",
)  # fmt: skip


@takes(OPTIONS)
def schedule(
    name: Annotated[str, Option("Its name.", "NAME", values=SCHEDULES)],
    /,
    *,
    where: Where = HERE,
    **flags: Any,
) -> None:
    """Create a schedule, or change the options given of one that exists."""
    with operating(where) as control:
        before = schedule_or_none(control, name)
        last = None if before is None else _last_change(control, name)
        wanted = _wanted(control, name, before, flags, where)
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
    control: Control, name: str, before: Schedule | None, flags: dict[str, Any], where: Where
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
    told.setdefault("timezone", settings_of(where).timezone)
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
