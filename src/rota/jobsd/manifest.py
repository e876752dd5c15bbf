"""Read a job and its schedule from a job.toml, or from the top level of a Python file.

The options are those of a decorator, with the defaults of their kind. An unknown key is refused,
with a suggestion: a misspelt `timeout` must not leave the job without one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any

from rota.errors import Invalid
from rota.model.bodies import KEYS
from rota.model.definition import Definition
from rota.model.duration import format_duration, parse_duration
from rota.model.environment import RESERVED
from rota.model.interpolate import VARIABLE_NAME, variable_of
from rota.model.job import DEFAULT_QUEUE, Job
from rota.model.limits import KEY_LENGTH, REASON_LENGTH, TAGS, check_key, check_name, check_payload
from rota.model.options import (
    FILE_OPTIONS,
    RETRY_OPTIONS,
    TIMINGS,
    make_schedule,
    refuse_unknown,
    retry_of,
    timing_of,
    without_effect,
)
from rota.model.policies import DEFAULT_OVERLAP, DEFAULT_RETRY, PYTHON, SQL_FILE
from rota.model.schedule import Schedule
from rota.model.signature import Parameter, Signature

OF_JOB = (
    "queue", "priority", "timeout", *RETRY_OPTIONS, "concurrency_key", "concurrency_limit",
    "description", "enabled", "tags", "target", "params", "executor",
)  # fmt: skip
OF_SQL = ("step_timeout", "run_as", "restart")
OF_PYTHON = ("isolation",)
KNOWN = {
    SQL_FILE: frozenset({*TIMINGS, *FILE_OPTIONS, *OF_JOB, *OF_SQL}),
    PYTHON: frozenset({*TIMINGS, *FILE_OPTIONS, *OF_JOB, *OF_PYTHON}) - {"executor"},
}
# A command or a request has no target and no steps.
PLAIN = KNOWN[SQL_FILE] - {*OF_SQL, "target"}
SAY_WHEN = (
    'say when: add schedule = "0 3 * * *", every = "1h" or at = "2026-01-31T09:00:00Z"; '
    "schedule = {false} runs it on demand only"
)
FALSE = {SQL_FILE: "false", PYTHON: "False"}
# Placeholder where there is no schedule, so that the other schedule options are still checked.
ANY_TIME = {"every": "1m"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestDefaults:
    """Values that a definition takes from the settings of the process that reads it."""

    origin: str
    timezone: str = "UTC"


def parse(text: str) -> dict[str, Any]:
    """The content of a job.toml; Invalid names the line that is not TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise Invalid(f"is not valid TOML: {_toml_error(str(fault), text)}") from None
    except RecursionError:
        raise Invalid("is nested too deeply to be a job.toml; flatten it") from None


def _toml_error(message: str, text: str) -> str:
    """A clearer message for an unclosed string: tomllib reports only the end of the line."""
    quote = next((quote for start, quote in _UNCLOSED.items() if message.startswith(start)), None)
    if quote is None:
        return message
    match = _TOML_LINE.search(message)
    odd = (at for at, line in enumerate(text.splitlines(), start=1) if line.count(quote) % 2)
    line = int(match[1]) if match else next(odd, 1)
    return f"a text that begins with {quote} is not closed (at line {line})"


def define(
    name: str,
    options: Mapping[str, Any],
    kind: str,
    spec: Mapping[str, Any],
    defaults: ManifestDefaults,
    *,
    signature: Signature | None = None,
    description: str = "",
) -> Definition:
    """A definition from options; Invalid names the option that is wrong."""
    executor = "python" if kind == PYTHON else executor_of(options)
    executor_keys = _refuse_unknown(options, kind, executor)
    params = _params(options)
    if executor == "sql" or executor in KEYS:
        _refuse_hidden(params)
    job = Job(
        name=name,
        executor=executor,
        source="file",
        origin=defaults.origin,
        spec={**spec, **executor_keys, **_extras(options, params)},
        signature=signature if signature is not None else _signature(params),
        description=_text(options, "description", REASON_LENGTH) or description,
        queue=options.get("queue", DEFAULT_QUEUE),
        priority=options.get("priority", 0),
        timeout=options.get("timeout"),
        retry=retry_of(options, DEFAULT_RETRY[kind]),
        isolation=options.get("isolation", "process" if kind == PYTHON else "thread"),
        concurrency_key=options.get("concurrency_key"),
        concurrency_limit=options.get("concurrency_limit", 1),
        enabled=_flag(options, "enabled", True),
    )
    schedule = _schedule(job, options, kind, params, defaults)
    idle = () if schedule is None else tuple(without_effect(schedule))
    return Definition(job=job, schedule=schedule, warnings=idle)


def _schedule(
    job: Job,
    options: Mapping[str, Any],
    kind: str,
    params: Mapping[str, Any],
    defaults: ManifestDefaults,
) -> Schedule | None:
    cron = options.get("schedule")
    if cron is not None and cron is not False and not isinstance(cron, str):
        false = FALSE[kind]
        raise Invalid(f'schedule {cron!r} must be a cron expression, as "0 3 * * *", or {false}')
    timing = timing_of(cron, options.get("every"), options.get("at"))
    if timing is None and cron is None:
        raise Invalid(SAY_WHEN.format(false=FALSE[kind]))
    schedule_options = {
        "timezone": defaults.timezone,
        "overlap": DEFAULT_OVERLAP[kind],
        "overlap_key": job.overlap_key,
        "enabled": job.enabled,
        **{key: value for key, value in options.items() if key in FILE_OPTIONS},
    }
    _text(options, "owner", KEY_LENGTH)
    made = make_schedule(
        job.name, job.name, timing or ANY_TIME, {**schedule_options, "args": params}
    )
    if timing is None:
        return None
    job.signature.check(job.name, params)
    return made


def executor_of(options: Mapping[str, Any]) -> str:
    """The executor of a job.toml."""
    return check_name(options.get("executor", "sql"), "executor")


def _refuse_unknown(options: Mapping[str, Any], kind: str, executor: str) -> dict[str, Any]:
    """The keys that belong to the executor and become its spec; unknown keys are refused."""
    if executor in KEYS:
        refuse_unknown(options, {*PLAIN, *KEYS[executor]})
        return {key: _json(options[key]) for key in KEYS[executor] if key in options}
    unknown = {key: value for key, value in options.items() if key not in KNOWN[kind]}
    if executor in ("sql", "python"):
        refuse_unknown(unknown, KNOWN[kind])
    else:
        check_payload(unknown, "job.toml")
    return unknown


def _extras(options: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of the spec that only some executors have, where they are set."""
    extras: dict[str, Any] = {}
    if "target" in options:
        extras["target"] = check_name(options["target"], "target")
    if "run_as" in options:
        extras["run_as"] = check_key(options["run_as"], "run_as")
    if "step_timeout" in options:
        span = parse_duration(options["step_timeout"], "step_timeout")
        extras["step_timeout"] = format_duration(span)
    if "restart" in options:
        extras["restart"] = _flag(options, "restart", False)
    if tags := _tags(options):
        extras["tags"] = tags
    if params:
        extras["params"] = dict(params)
    return extras


def _params(options: Mapping[str, Any]) -> dict[str, Any]:
    params = options.get("params", {})
    if not isinstance(params, Mapping):
        raise Invalid("params is a table: [params] and a line NAME = VALUE for each")
    plain = {key: _json(value) for key, value in params.items()}
    check_payload(plain, "params")
    return plain


def _refuse_hidden(params: Mapping[str, Any]) -> None:
    """Refuse a parameter that cannot be a variable, and two that are the same variable."""
    taken: dict[str, str] = {}
    for name in params:
        variable = variable_of(name)
        if not VARIABLE_NAME.fullmatch(variable) or variable.startswith(RESERVED):
            raise Invalid(
                f"params: {name!r} cannot be a variable; use letters, digits and _, not beginning "
                f"with a digit or {RESERVED}"
            )
        if variable in taken:
            both = f"{taken[variable]!r} and {name!r}"
            raise Invalid(f"params: {both} are one variable, ${{{variable}}}; rename one of them")
        taken[variable] = name


def _signature(params: Mapping[str, Any]) -> Signature:
    """A signature without required parameters: each has a default, which a run may replace."""
    names = {str: "string", bool: "boolean", list: "array", dict: "object"}
    numbers = {int: ("integer",), float: ("number",)}
    return Signature(
        tuple(
            Parameter(
                name=key,
                types=numbers.get(type(value), (names.get(type(value), "string"),)),
                required=False,
            )
            for key, value in params.items()
        )
    )


def _tags(options: Mapping[str, Any]) -> list[str]:
    tags = options.get("tags", [])
    if not isinstance(tags, list) or len(tags) > TAGS:
        raise Invalid(f'tags {tags!r} must be a list of up to {TAGS} names, such as ["finance"]')
    return [check_name(tag, "tags: tag") for tag in tags]


def _text(options: Mapping[str, Any], key: str, limit: int) -> str:
    value = options.get(key, "")
    if not isinstance(value, str) or len(value) > limit:
        raise Invalid(f"{key} must be text of up to {limit:,} characters")
    return value


def _flag(options: Mapping[str, Any], key: str, default: bool) -> bool:
    value = options.get(key, default)
    if not isinstance(value, bool):
        raise Invalid(f"{key} {value!r} must be true or false")
    return value


def _json(value: Any) -> Any:
    match value:
        case datetime() | date() | time():
            return value.isoformat()
        case Mapping():
            return {key: _json(inner) for key, inner in value.items()}
        case list():
            return [_json(inner) for inner in value]
        case _:
            return value


# Lines of errors

_PREFIX = re.compile(r"^(?:(?:job|schedule) '[^']*': )+")
# Beginnings of tomllib's messages for an unclosed quote.
_UNCLOSED = {
    "Illegal character '\\n'": '"', "Unterminated string": '"',
    "Found invalid character '\\n'": "'", 'Expected "\'" ': "'",
}  # fmt: skip
_TOML_LINE = re.compile(r"\(at line (\d+)(?:, column \d+)?\)")


def plain_message(fault: Exception) -> str:
    """The message without the leading names of job and schedule: the location names the job."""
    return _PREFIX.sub("", str(fault))


def line_of(message: str, text: str) -> int | None:
    """The line of a job.toml that a message is about; None if the message names no option."""
    if match := _TOML_LINE.search(message):
        return int(match[1])
    if "(at end of document)" in message:
        return text.rstrip("\n").count("\n") + 1
    # The message names the option, or the kind of timing, in its first words.
    tokens = re.findall(r"[A-Za-z_]\w*", message.replace("cron ", "schedule "))
    for token in tokens:
        key = re.search(rf'^[ \t]*(?:\[{token}\]|"?{token}"?[ \t]*=)', text, re.MULTILINE)
        if key is not None:
            return text.count("\n", 0, key.start()) + 1
    return None
