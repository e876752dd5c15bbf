"""The options of schedules as fields of requests and answers, from the table of options."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeAlias, cast

from msgspec import UNSET, Meta, UnsetType

from rota.model import option as kinds
from rota.model.limits import KEY_LENGTH
from rota.model.option import Kind, Option
from rota.model.records import schedule_record
from rota.model.retry import MAX_ATTEMPTS
from rota.model.schedule import DEFINITION, OPTIONS, Schedule, to_json_value
from rota.model.zone import NAME_LENGTH
from rota.web.models import Instant, Maybe, Moment, RequestModel, ResponseModel, Span

ShortText: TypeAlias = Annotated[str, Meta(max_length=KEY_LENGTH)]
Attempts: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)]
OptionKind: TypeAlias = Literal[
    "text", "zone", "choice", "whole number", "duration", "instant", "flag", "arguments",
    "retry policy",
]  # fmt: skip
ZoneName: TypeAlias = Annotated[str, Meta(max_length=NAME_LENGTH, examples=["Europe/Berlin"])]


class RetryIn(RequestModel):
    """What is null is as the job has it. `jitter` is `retry_jitter`."""

    max_attempts: Maybe[Attempts] = UNSET
    backoff: Maybe[ShortText] = UNSET
    delay: Maybe[Span] = UNSET
    max_delay: Maybe[Span] = UNSET
    retry_jitter: Maybe[Span] = UNSET
    jitter: Maybe[Span] = UNSET


def requested(options: Iterable[Option]) -> dict[str, Any]:
    """The types of these options as fields of a request that may be absent, or null."""
    return {option.name: _requested(option.kind) | UnsetType | None for option in options}


def _requested(kind: Kind) -> Any:
    match kind:
        case kinds.Choice(spellings) if len(kind.values) == len(spellings):
            return Literal[kind.values]
        case kinds.Zone():
            return ZoneName
        case kinds.Text() | kinds.Choice():  # a choice may be spelled in several ways
            return ShortText
        case kinds.Whole(low, high):
            return Annotated[int, Meta(ge=low, le=high)]
        case kinds.Duration():
            return Span
        case kinds.Instant():
            return Moment
        case kinds.Flag():
            return bool
        case kinds.Arguments():
            return dict[str, Any]
        case kinds.RetryPolicy():
            return RetryIn
    raise AssertionError(f"{kind} has no type of a request")


def answered() -> dict[str, Any]:
    """The types of all options as fields of an answer, in the order of a definition."""
    return {name: _answered(OPTIONS[name]) for name in DEFINITION if name in OPTIONS}


def _answered(option: Option) -> Any:
    match option.kind:
        case kinds.Arguments() | kinds.RetryPolicy():
            return Any
        case kinds.Whole():
            plain: Any = int
        case kinds.Flag():
            plain = bool
        case _:
            plain = str
    return plain | None if option.nullable else plain


class OptionOut(ResponseModel):
    """An option of a schedule. `values` are those of a choice, `lowest` and `highest` those of a
    whole number. `moves_cursor`: the next fire depends on it."""

    name: str
    kind: OptionKind
    values: list[str]
    lowest: int | None
    highest: int | None
    default: Any
    nullable: bool
    group: str
    moves_cursor: bool
    help: str


def option_out(option: Option) -> OptionOut:
    kind = option.kind
    return OptionOut(
        name=option.name,
        kind=cast(OptionKind, kind.word),
        values=list(kind.values) if isinstance(kind, kinds.Choice) else [],
        lowest=kind.low if isinstance(kind, kinds.Whole) else None,
        highest=kind.high if isinstance(kind, kinds.Whole) else None,
        default=to_json_value(option.default),
        nullable=option.nullable,
        group=option.group,
        moves_cursor=option.moves_cursor,
        help=option.explained(lambda name, value: f"{name} = {value}" if value else name),
    )


class _Timed(ResponseModel):
    id: int
    name: str
    job: str
    kind: str
    expr: str


class _Defined(_Timed, required=answered()):
    """With all its options."""


class ScheduleOut(_Defined):
    """`waits_for_run`: the next time is counted from the end of a run that is on its way. `edits`:
    what is not as its code or file says, with what they say."""

    status: str
    next_fire_at: Instant | None
    waits_for_run: bool
    last_fired_at: Instant | None
    paused: bool
    paused_by: str | None
    paused_at: Instant | None
    paused_reason: str | None
    created_at: Instant | None
    state: str | None
    error: str | None
    edits: dict[str, Any]
    version: str


def schedule_fields(schedule: Schedule) -> dict[str, Any]:
    return {**schedule_record(schedule), "version": schedule.version}
