"""From the options people write to policies and schedules.

One set of names, whether they stand in a decorator, a job.toml or a Python file. A name that is
unknown is refused with the one that was probably meant.
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
from rota.model.schedule import DEFINITION, Schedule

TIMINGS = ("schedule", "every", "at")
SCHEDULE_OPTIONS = frozenset(DEFINITION) - {"name", "job", "kind", "expr"}
# What other tools call it, and what they have that Rota has not.
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
_CLOSE = 0.75  # a word that is less alike means something else
RETRY_OPTIONS = ("max_attempts", "backoff", "delay", "max_delay", "retry_jitter")


def timing_of(cron: object, every: object, at: object) -> dict[str, Any] | None:
    """The one that is given; None for a job without a schedule, which `schedule = false` says."""
    if cron is False:
        if every is not None or at is not None:
            raise Invalid("schedule = false and every or at contradict each other; keep one")
        return None
    given = {"cron": cron, "every": every, "at": at}
    told = {name: value for name, value in given.items() if value is not None}
    if len(told) > 1:
        raise Invalid(f"give one of schedule, every and at, not {' and '.join(told)}")
    return told or None


def kind_of(cron: Any = None, every: object = None, at: object = None) -> tuple[str, str]:
    """(kind, expr) as a schedule has them."""
    if cron is not None:
        return "cron", cron
    if every is not None:
        return "every", format_duration(parse_duration(every, "every"))
    return "once", parse_instant(at, "at").isoformat()


def retry_of(told: Mapping[str, Any], default: Retry) -> Retry:
    """The default with what is told; `retry_jitter` is apart from the jitter of a schedule."""
    names = {name: name.removeprefix("retry_") for name in RETRY_OPTIONS}
    given = {names[name]: told[name] for name in names if told.get(name) is not None}
    policy = {one.name: getattr(default, one.name) for one in fields(default)}
    return Retry(**{**policy, **given})


def split_retry(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the other options, what is told of retries). Each part of a retry policy is an option of its
    own, or they stand together in `retry`; a whole policy, or None, stays there."""
    others = {name: value for name, value in options.items() if name not in RETRY_OPTIONS}
    told = {name: value for name, value in options.items() if name in RETRY_OPTIONS}
    if not isinstance(others.get("retry"), Mapping):
        if told and others.get("retry") is not None:
            raise Invalid(f"retry is a whole policy; say {', '.join(told)} in it")
        return others, told
    for name, value in others.pop("retry").items():
        option = "retry_jitter" if name == "jitter" else name
        if option not in RETRY_OPTIONS:
            close = get_close_matches(str(name), (*RETRY_OPTIONS, "jitter"), n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"use {', '.join(RETRY_OPTIONS)}"
            raise Invalid(f"retry {name!r} is unknown; {hint}")
        if option in told:
            raise Invalid(f"{option} is told twice, also in retry; tell it once")
        told[option] = value
    return others, told


def told_retry(told: Mapping[str, Any], of_job: Retry, before: Retry | None = None) -> Retry | None:
    """The policy of a schedule: what is told, the rest as before, else as the job has it. A part
    that is None is as the job has it, and all of them if no other is told."""
    if all(value is None for value in told.values()):
        return None
    plain = {name: getattr(of_job, name.removeprefix("retry_")) for name in told}
    given = {name: value for name, value in told.items() if value is not None}
    return retry_of({**plain, **given}, before or of_job)


def make_schedule(
    name: str,
    job: str,
    timing: Mapping[str, Any],
    options: Mapping[str, Any],
    of_job: Retry | None = None,
) -> Schedule:
    """A schedule from its options, refused by its own name. `of_job` is how its job is retried,
    where that is known."""
    with named(f"schedule {name!r}"):
        refuse_unknown(options, {*SCHEDULE_OPTIONS, *RETRY_OPTIONS})
        others, retry = split_retry(options)
        kind, expr = kind_of(**timing)
        if retry:
            others["retry"] = told_retry(retry, of_job or Retry())
    return Schedule(name=name, job=job, kind=kind, expr=expr, **others)


@cache
def plain_schedule() -> Schedule:
    """One that says nothing but when: what each option is then."""
    return Schedule(name="default", job="default", kind="every", expr="1m")


def default_of(option: str, timezone: str) -> Any:
    """What a schedule has that says nothing about it, where `timezone` is the zone of all."""
    return timezone if option == "timezone" else getattr(plain_schedule(), option)


def without_effect(schedule: Schedule) -> list[str]:
    """Options that are told, and that nothing asks for while the others are as they are."""
    notes = []
    if schedule.queue_max is not None and schedule.overlap != "queue":
        notes.append(
            f"queue_max has no effect with overlap = {schedule.overlap}; it counts the runs that "
            "wait under overlap = queue"
        )
    for option, kind in (("anchor", "every"), ("dst", "cron")):
        told = getattr(schedule, option)
        if schedule.kind != kind and told != getattr(plain_schedule(), option):
            notes.append(f"{option} = {told} has no effect; it is for schedules by {kind}")
    return notes


def refuse_unknown(
    told: Iterable[str], known: Collection[str], also: Collection[str] = frozenset()
) -> None:
    """`also` are names that are known, and told elsewhere: those of the job beside a schedule's."""
    for name in told:
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
    """Say whose fault it is: a program defines many jobs and schedules."""
    try:
        yield
    except (Invalid, Unknown) as fault:
        raise type(fault)(f"{what}: {fault}") from None
