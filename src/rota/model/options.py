"""Make policies and schedules from options.

The names are the same in a decorator, a job.toml and a Python file. An unknown name is refused with
a suggestion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from typing import Any

from rota.errors import Invalid, Unknown
from rota.model.duration import format_duration, parse_duration, parse_instant
from rota.model.retry import Retry
from rota.model.schedule import OPTIONS, Schedule

TIMINGS = ("schedule", "every", "at")
SCHEDULE_OPTIONS = frozenset(OPTIONS)
# Those that the file of a job takes. The others follow from the job that it defines.
FILE_OPTIONS = tuple(
    name for name in OPTIONS if name not in ("overlap_key", "retry", "priority", "enabled", "args")
)
# Names that other tools use, and their features that Rota does not have.
_MEANT = {
    "cron": "schedule",
    "crontab": "schedule",
    "interval": "every",
    "queue_name": "queue",
    "retries": "max_attempts",
    "run_after": "at",
}
_NOTES = {
    "rate_limit": "Rota has no rate limit; concurrency_limit bounds how many run at once",
    "expires": "a run does not expire; of a schedule, misfire_grace says how late one may begin",
}
_CLOSE = 0.75  # similarity that is needed for a suggestion
RETRY_OPTIONS = ("max_attempts", "backoff", "delay", "max_delay", "retry_jitter")


def timing_of(cron: object, every: object, at: object) -> dict[str, Any] | None:
    """The timing option that is set; None without a schedule, also for `schedule = false`."""
    if cron is False:
        if every is not None or at is not None:
            raise Invalid("schedule = false and every or at contradict each other; keep one")
        return None
    timings = {"cron": cron, "every": every, "at": at}
    set_timings = {name: value for name, value in timings.items() if value is not None}
    if len(set_timings) > 1:
        raise Invalid(f"give one of schedule, every and at, not {' and '.join(set_timings)}")
    return set_timings or None


def kind_of(cron: Any = None, every: object = None, at: object = None) -> tuple[str, str]:
    """(kind, expr) of a schedule."""
    if cron is not None:
        return "cron", cron
    if every is not None:
        return "every", format_duration(parse_duration(every, "every"))
    return "once", parse_instant(at, "at").isoformat()


def retry_of(options: Mapping[str, Any], default: Retry) -> Retry:
    """The default with the options that are set; `retry_jitter` is not the schedule's jitter."""
    names = {name: name.removeprefix("retry_") for name in RETRY_OPTIONS}
    set_options = {names[name]: options[name] for name in names if options.get(name) is not None}
    policy = {field.name: getattr(default, field.name) for field in fields(default)}
    return Retry(**{**policy, **set_options})


def split_retry(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(other options, retry options).

    A retry policy is given by single options, or as a mapping in `retry`. A whole policy, or None,
    stays in `retry`."""
    others = {name: value for name, value in options.items() if name not in RETRY_OPTIONS}
    retry = {name: value for name, value in options.items() if name in RETRY_OPTIONS}
    if not isinstance(others.get("retry"), Mapping):
        if retry and others.get("retry") is not None:
            raise Invalid(f"retry is a whole policy; say {', '.join(retry)} in it")
        return others, retry
    for name, value in others.pop("retry").items():
        option = "retry_jitter" if name == "jitter" else name
        if option not in RETRY_OPTIONS:
            close = get_close_matches(str(name), (*RETRY_OPTIONS, "jitter"), n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"use {', '.join(RETRY_OPTIONS)}"
            raise Invalid(f"retry {name!r} is unknown; {hint}")
        if option in retry:
            raise Invalid(f"{option} is set twice, also in retry; set it once")
        retry[option] = value
    return others, retry


def retry_policy_of(
    options: Mapping[str, Any], of_job: Retry, before: Retry | None = None
) -> Retry | None:
    """The retry policy of a schedule: the options that are set, else as before, else as the job's.

    An option that is None is as the job's. If all are None, the schedule has no own policy."""
    if all(value is None for value in options.values()):
        return None
    job_options = {name: getattr(of_job, name.removeprefix("retry_")) for name in options}
    set_options = {name: value for name, value in options.items() if value is not None}
    return retry_of({**job_options, **set_options}, before or of_job)


def make_schedule(
    name: str,
    job: str,
    timing: Mapping[str, Any],
    options: Mapping[str, Any],
    of_job: Retry | None = None,
) -> Schedule:
    """A schedule from its options; errors name it. `of_job` is the job's retry policy if known."""
    with named(f"schedule {name!r}"):
        refuse_unknown(options, {*SCHEDULE_OPTIONS, *RETRY_OPTIONS})
        others, retry = split_retry(options)
        kind, expr = kind_of(**timing)
        if retry:
            others["retry"] = retry_policy_of(retry, of_job or Retry())
    return Schedule(name=name, job=job, kind=kind, expr=expr, **others)


@cache
def plain_schedule() -> Schedule:
    """A schedule with the default of every option."""
    return Schedule(name="default", job="default", kind="every", expr="1m")


def default_of(option: str, timezone: str) -> Any:
    """The default of an option; `timezone` is the default zone."""
    return timezone if option == "timezone" else getattr(plain_schedule(), option)


def without_effect(schedule: Schedule) -> list[str]:
    """Notes on options that have no effect together with the others."""
    notes = []
    if schedule.queue_max is not None and schedule.overlap != "queue":
        notes.append(
            f"queue_max has no effect with overlap = {schedule.overlap}; it counts the runs that "
            "wait under overlap = queue"
        )
    for option, kind in (("anchor", "every"), ("dst", "cron")):
        value = getattr(schedule, option)
        if schedule.kind != kind and value != getattr(plain_schedule(), option):
            notes.append(f"{option} = {value} has no effect; it is for schedules by {kind}")
    return notes


def refuse_unknown(
    names: Iterable[str], known: Collection[str], also: Collection[str] = frozenset()
) -> None:
    """Invalid for an unknown option. `also` are known names that belong elsewhere, to the job."""
    for name in names:
        if name not in known:
            raise Invalid(f"option {name!r} is unknown; {_hint(name, known, also)}")


def _hint(name: str, known: Collection[str], also: Collection[str]) -> str:
    names = {*known, *also}
    close = [_MEANT[name]] if _MEANT.get(name) in names else []
    close = close or get_close_matches(name, names, n=1, cutoff=_CLOSE)
    if close:
        return f"did you mean {close[0]!r}?"
    if also and name in _NOTES:
        return _NOTES[name]
    if not also:
        return f"use {', '.join(sorted(known))}"
    only = sorted(set(known) - set(also))
    return f"a job has {', '.join(sorted(also))}; a schedule also {', '.join(only)}"


@contextmanager
def named(what: str) -> Iterator[None]:
    """Prefix errors with the name of the job or schedule: a program defines many of them."""
    try:
        yield
    except (Invalid, Unknown) as fault:
        raise type(fault)(f"{what}: {fault}") from None
