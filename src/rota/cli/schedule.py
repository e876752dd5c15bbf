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
from rota.model.option import Arguments, Choice, Flag, Kind, RetryPolicy, Whole
from rota.model.option import Option as Declared
from rota.model.options import kind_of, retry_policy_of, split_retry, without_effect
from rota.model.retry import BACKOFFS
from rota.model.schedule import OPTIONS as DECLARED
from rota.model.schedule import Schedule

# How a flag differs from what the table of options makes of it.
SPECIAL: dict[str, dict[str, Any]] = {
    "timezone": {"names": ("--timezone", "--tz")},
    "enabled": {"off": "--disabled"},
}
# The parts of a retry policy are flags of their own.
RETRY = {
    "max_attempts": Option("Failures until a run is dead.", "N", kind=int),
    "backoff": Option(
        "Between attempts: none, fixed, exponential or quadratic.", "CHOICE", values=BACKOFFS
    ),
    "delay": Option(
        "The first wait between attempts.", "DURATION", names=("--delay", "--retry-delay")
    ),
    "max_delay": Option("The longest wait between attempts.", "DURATION"),
    "retry_jitter": Option("Added to the wait by chance, up to this.", "DURATION"),
}
# One by one, or all of them.
ARGUMENT = Option(
    "One argument of its runs, may be repeated. Read as JSON unless the job asks for text.",
    "NAME=VALUE",
    many=True,
)


def flags_of(option: Declared) -> dict[str, Option]:
    """The flags that set an option of a schedule."""
    if isinstance(option.kind, RetryPolicy):
        return RETRY
    flag = Option(
        option.explained(lambda name, value: f"--{name.replace('_', '-')} {value}".rstrip()),
        option.kind.metavar,
        values=option.kind.values if isinstance(option.kind, Choice) else (),
        kind=_TYPES.get(type(option.kind), str),
        **SPECIAL.get(option.name, {}),
    )
    if isinstance(option.kind, Flag) and not flag.off:
        flag = replace(flag, off=f"--no-{option.name.replace('_', '-')}")
    one_by_one = {"arg": ARGUMENT} if isinstance(option.kind, Arguments) else {}
    return {**one_by_one, option.name: flag}


_TYPES: dict[type[Kind], type] = {Whole: int, Flag: bool}
# What the command takes beside the name of a schedule.
OPTIONS = {
    "job": Option("The job it makes runs of. Needed for a new one.", "NAME", values=JOBS),
    "cron": Option(
        "Fire at these times: 5 fields, 6 with seconds first, or 7 with the year last.", "EXPR"
    ),
    "every": Option("Fire in this interval, such as 5m or 1h30m.", "DURATION"),
    "at": Option("Fire once, at this instant.", "INSTANT"),
    **{name: flag for each in DECLARED.values() for name, flag in flags_of(each).items()},
}


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
    told = {field: flags[field] for field in DECLARED if field in flags} | _timing(name, flags)
    if "job" in flags:
        told["job"] = flags["job"]
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
