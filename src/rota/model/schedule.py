"""A schedule: when to make runs of a job. A row with a cursor."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from rota.errors import Invalid
from rota.model.duration import format_duration, parse_duration, parse_instant
from rota.model.limits import PRIORITY, check_name
from rota.model.option import (
    OPTION,
    Arguments,
    Choice,
    Duration,
    Flag,
    Instant,
    Option,
    RetryPolicy,
    Text,
    Whole,
    Zone,
    option,
)
from rota.model.policies import ANCHOR, API, CATCH_UP, DEFAULT_OVERLAP, DST, ON_ERROR, OVERLAP
from rota.model.retry import Retry
from rota.model.zone import parse_zone

if TYPE_CHECKING:
    from rota.model.cron import Cron

KINDS = ("cron", "every", "once")
QUEUE_MAX = 1_000_000
CATCH_UP_LIMIT = 10_000

# The cursor of a delay schedule while its run is on the way: later than any real instant.
WAITING_FOR_RUN = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Definition, cursor and the operator's bits. Everything is checked at construction.

    A field that is an `option` declares it for every surface: its values, default, group and help.
    `expr` is a cron expression, a duration or an instant, by `kind`. `next_fire_at` None means
    finished; `enabled` belongs to the definition, `paused` to the operator.
    """

    name: str
    job: str
    kind: str
    expr: str
    id: int = 0

    timezone: str = option(
        "UTC",
        Zone(),
        group="timing",
        moves_cursor=True,
        help="The zone of {cron}, such as Europe/Berlin, or local.",
    )
    dst: str = option(
        "vixie",
        Choice(DST),
        group="timing",
        moves_cursor=True,
        in_view=False,
        help="When clocks change: {values}.",
    )
    anchor: str = option(
        "rate",
        Choice(ANCHOR),
        group="timing",
        moves_cursor=True,
        own_plan=True,
        in_view=False,
        help="Count {every} from the previous slot (rate) or from the end of the run (delay).",
    )
    overlap: str = option(
        DEFAULT_OVERLAP[API],
        Choice(OVERLAP),
        group="overlap",
        help="When the run before has not ended: {values}.",
    )
    overlap_key: str | None = option(
        None,
        Text(),
        group="overlap",
        own_plan=True,
        in_view=False,
        help="Schedules with one key count as one for {overlap}.",
    )
    queue_max: int | None = option(
        None,
        Whole(0, QUEUE_MAX),
        group="overlap",
        help="With {overlap=queue}: at most this many wait.",
    )
    on_error: str = option(
        "next", Choice(ON_ERROR), group="failure", help="When a run is dead: {values}."
    )
    pause_after: int | None = option(
        None, Whole(1, 1_000), group="failure", help="Pause after this many dead runs in a row."
    )
    catch_up: str = option(
        "one", Choice(CATCH_UP), group="catch-up", help="After downtime: {values}."
    )
    catch_up_limit: int = option(
        100,
        Whole(1, CATCH_UP_LIMIT),
        group="catch-up",
        in_view=False,
        help="With {catch_up=all}: at most this many at a time.",
    )
    misfire_grace: timedelta = option(
        timedelta(seconds=60),
        Duration(),
        group="catch-up",
        in_view=False,
        help="With {catch_up=none}: how late a run may still be made.",
    )
    jitter: timedelta = option(
        timedelta(0),
        Duration(),
        group="delay",
        own_plan=True,
        in_view=False,
        help="Delay each run by chance, up to this.",
    )
    spread: timedelta = option(
        timedelta(0),
        Duration(),
        group="delay",
        own_plan=True,
        in_view=False,
        help="Delay by a part of this that follows from the name.",
    )
    first_run: datetime | None = option(
        None,
        Instant(),
        group="timing",
        moves_cursor=True,
        in_view=False,
        help="The first time to fire.",
    )
    starts_at: datetime | None = option(
        None, Instant(), group="timing", moves_cursor=True, help="Do not fire before."
    )
    ends_at: datetime | None = option(
        None, Instant(), group="timing", moves_cursor=True, help="Do not fire after."
    )
    args: Mapping[str, Any] = option(
        {},
        Arguments(),
        group="run",
        in_plan=False,
        in_view=False,
        help="All arguments of its runs, as a JSON object.",
    )
    priority: int | None = option(
        None,
        Whole(-PRIORITY, PRIORITY),
        group="run",
        in_view=False,
        help="Of its runs: higher first.",
    )
    retry: Retry | None = option(
        None,
        RetryPolicy(),
        group="failure",
        in_view=False,
        help="When attempts of its runs are repeated.",
    )
    owner: str | None = option(
        None,
        Text("NAME"),
        group="about",
        in_plan=False,
        help="Whom to ask about it; of a new one, who makes it if not given.",  # words: of people
    )
    enabled: bool = option(
        True,
        Flag(),
        group="about",
        in_plan=False,
        help="Whether it fires at all; a pause is the operator's own switch.",
    )

    paused: bool = False
    paused_by: str | None = None
    paused_at: datetime | None = None
    paused_reason: str | None = None
    next_fire_at: datetime | None = None
    last_fired_at: datetime | None = None
    created_at: datetime | None = None
    state: str | None = None
    error: str | None = None
    registered: str | None = None  # the definition in code or file, by `registration()`
    revision: int = 0  # counts its edits
    plan_key: str | None = field(default=None, compare=False)  # of its row, by `shared_plan()`

    def __post_init__(self) -> None:
        check_name(self.name, "schedule name")
        check_name(self.job, f"schedule {self.name!r}: job")
        try:
            self._check()
        except Invalid as fault:
            raise Invalid(f"schedule {self.name!r}: {fault}") from None

    def _check(self) -> None:
        if self.kind not in KINDS:
            raise Invalid(f"kind {self.kind!r} is unknown; use {', '.join(KINDS)}")
        if not isinstance(self.expr, str):
            raise Invalid(f"expr {self.expr!r} must be text")
        for name, declared in OPTIONS.items():
            object.__setattr__(self, name, declared.check(getattr(self, name)))
        if self.starts_at and self.ends_at and self.ends_at < self.starts_at:
            raise Invalid("ends_at is before starts_at")
        _ = self.calendar  # parses expr, so that a bad one is refused here

    @classmethod
    def from_unreadable_row(cls, fields: Mapping[str, Any], error: str) -> Schedule:
        """A schedule from a row that does not pass the checks; it never fires."""
        made = object.__new__(cls)
        for name in cls.__dataclass_fields__:
            object.__setattr__(made, name, fields[name])
        object.__setattr__(made, "error", error)
        return made

    def copy_unchecked(self, **values: Any) -> Schedule:
        """A copy with other values, without checks: no check may depend on these values."""
        copy = object.__new__(Schedule)
        copy.__dict__.update(self.__dict__, **values)
        return copy

    @cached_property
    def calendar(self) -> Calendar:
        return _calendar(self.kind, self.expr, self.timezone, self.dst)

    @property
    def status(self) -> str:
        """ACTIVE, PAUSED, DISABLED, FINISHED or BROKEN."""
        if self.error is not None:
            return "BROKEN"
        if not self.enabled:
            return "DISABLED"
        if self.paused:
            return "PAUSED"
        return "FINISHED" if self.next_fire_at is None else "ACTIVE"

    @property
    def slot(self) -> str | None:
        """The overlap key of its runs; None where runs may overlap."""
        return None if self.overlap == "allow" else self.overlap_key or f"schedule {self.id}"

    @property
    def delays(self) -> bool:
        """True when the next occurrence is counted from the end of the run before."""
        return self.kind == "every" and self.anchor == "delay"

    def shared_plan(self) -> str:
        """Equal for schedules of which one plan says what they do, if they are due at one instant.

        A hash of all that a plan and the rows of its runs depend on, but name and arguments."""
        definition = {"job": self.job, "kind": self.kind, "expr": self.expr}
        for name, declared in OPTIONS.items():
            value = getattr(self, name)
            if declared.in_plan:
                definition[name] = to_json_value(value)
            if declared.own_plan and value != declared.default:
                definition["name"] = self.name
        return _hash(definition)[:32]

    def next_after(self, after: datetime) -> datetime | None:
        """The first occurrence after `after`, inside starts_at and ends_at."""
        if self.starts_at is not None and after < self.starts_at:
            after = self.starts_at - timedelta(microseconds=1)
        following = self.calendar.next_after(after, self.next_fire_at)
        return self._before_end(following)

    def first_fire(self, now: datetime) -> datetime | None:
        """The first cursor of a new schedule."""
        if self.kind == "once":
            return self.calendar.instant
        if self.first_run is not None:
            return self._before_end(self.first_run)
        if self.kind == "every":
            assert self.calendar.interval is not None
            begin = now + self.calendar.interval
            return self._before_end(max(begin, self.starts_at or begin))
        return self.next_after(now)

    def _before_end(self, moment: datetime | None) -> datetime | None:
        late = moment is not None and self.ends_at is not None and moment > self.ends_at
        return None if late else moment

    def offset(self, run_id: str) -> timedelta:
        """Spread and jitter of one run: derived from its id, so that a repeated plan is equal."""
        if not self.spread and not self.jitter:
            return _NOTHING
        return self.spread * _fraction(self.name) + self.jitter * _fraction(run_id)

    def definition(self) -> dict[str, Any]:
        """The owner's options as JSON, without the operator's bits and the cursor."""
        return {name: to_json_value(getattr(self, name)) for name in DEFINITION}

    def timing(self) -> dict[str, Any]:
        """The part of the definition that the cursor depends on."""
        return {name: to_json_value(getattr(self, name)) for name in TIMING}

    def registration(self) -> str:
        """The definition as stored in the row: only options that differ from their defaults.

        So an option that a later version adds makes no difference."""
        definition = self.definition()
        options = {
            name: definition[name]
            for name in _OPTIONS
            if definition[name] != _defaults().get(name, _NONE)
        }
        return json.dumps(options, sort_keys=True, separators=(",", ":"))

    def as_registered(self) -> Schedule:
        """A copy with its own definition as the registered one."""
        return self.copy_unchecked(registered=self.registration())

    def operator_changes(self) -> dict[str, Any]:
        """The options that operators changed, with their values in code or file; often empty."""
        if self.registered is None:
            return {}
        registered, current = {**_defaults(), **_read(self.registered)}, self.definition()
        return {
            name: registered.get(name) for name in _OPTIONS if registered.get(name) != current[name]
        }

    @property
    def version(self) -> str:
        """A hash of the definition, so that an edit can name the version it is based on."""
        return _hash(self.definition())[:16]

    def described(self) -> str:
        return f"{self.kind} {self.expr}" + (f" {self.timezone}" if self.kind == "cron" else "")


def _declared() -> dict[str, Option]:
    options = {each.name: each.metadata.get(OPTION) for each in fields(Schedule)}
    return {name: replace(option, name=name) for name, option in options.items() if option}


# Every option of a schedule by name, in the order of its fields.
OPTIONS: dict[str, Option] = _declared()
TIMING = ("kind", "expr", *(name for name, it in OPTIONS.items() if it.moves_cursor))
DEFINITION = ("name", "job", *TIMING, *(name for name in OPTIONS if name not in TIMING))
_OPTIONS = DEFINITION[1:]  # all but the name, which identifies it


@dataclass(frozen=True, kw_only=True, eq=False)
class Calendar:
    """The parsed expression, shared by all schedules with the same text.

    Interned and compared by identity, so that cache lookups do not hash its fields."""

    kind: str
    cron: Cron | None = None
    zone: Any = None
    dst: str = "vixie"
    interval: timedelta | None = None
    instant: datetime | None = None

    def next_after(self, after: datetime, cursor: datetime | None) -> datetime | None:
        """The first occurrence after `after`. An interval keeps the phase of `cursor`."""
        match self.kind:
            case "cron":
                return _cron_next(self, after)
            case "every":
                assert self.interval is not None
                slot = cursor if cursor is not None and cursor < WAITING_FOR_RUN else after
                return slot + max(0, (after - slot) // self.interval + 1) * self.interval
            case _:
                assert self.instant is not None
                return self.instant if self.instant > after else None


@lru_cache(maxsize=20_000)
def _calendar(kind: str, expr: str, timezone: str, dst: str) -> Calendar:
    match kind:
        case "cron":
            from rota.model.cron import Cron  # imported late: most commands need no cron

            cron, zone = Cron.parse(expr), parse_zone(timezone)
            if cron.next_after(_BEGINNING, zone, dst) is None:
                raise Invalid(f"cron {expr!r} never occurs; check day and month")
            return Calendar(kind=kind, cron=cron, zone=zone, dst=dst)
        case "every":
            return Calendar(kind=kind, interval=parse_duration(expr, "every"))
        case _:
            return Calendar(kind=kind, instant=parse_instant(expr, "at"))


@lru_cache(maxsize=50_000)
def _cron_next(calendar: Calendar, after: datetime) -> datetime | None:
    # Most schedules share expression and zone: many that fire at midnight are one computation.
    assert calendar.cron is not None
    return calendar.cron.next_after(after, calendar.zone, calendar.dst)


_NOTHING = timedelta(0)
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


_NONE = object()


@cache
def _defaults() -> dict[str, Any]:
    """The default of each option that has one."""
    plain = Schedule(name="-", job="-", kind="every", expr="1s").definition()
    return {name: plain[name] for name in _OPTIONS if name not in ("job", "kind", "expr")}


def _read(registered: str) -> dict[str, Any]:
    try:
        return dict(json.loads(registered))
    except (TypeError, ValueError):  # the column was edited by hand: then every option differs
        return {}


def _fraction(text: str) -> float:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48


def _hash(definition: Mapping[str, Any]) -> str:
    text = json.dumps(definition, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def to_json_value(value: object) -> Any:
    """The value of an option as JSON has it."""
    match value:
        case None | str() | int():
            return value
        case timedelta():
            return format_duration(value)
        case datetime():
            return value.isoformat()
        case Retry():
            return value.to_dict()
        case Mapping():
            return json.loads(json.dumps(dict(value), sort_keys=True))
        case _:
            return value


def edited(old: Schedule, new: Schedule, now: datetime) -> Schedule:
    """`new`'s definition with `old`'s identity and the operator's bits.

    The cursor is recomputed only if the timing changed, and never into the past.
    """
    merged = replace(
        new,
        id=old.id, created_at=old.created_at, last_fired_at=old.last_fired_at,
        paused=old.paused, paused_by=old.paused_by, paused_at=old.paused_at,
        paused_reason=old.paused_reason, next_fire_at=old.next_fire_at, state=old.state,
        error=old.error,
    )  # fmt: skip
    if old.timing() == new.timing() and old.error is None:
        return merged
    # The new timing replaces one that was broken.
    begin = replace(
        merged, next_fire_at=None, state=old.state if old.error is None else None, error=None
    )
    cursor = begin.first_fire(now)
    if cursor is not None and cursor <= now:
        cursor = replace(begin, next_fire_at=cursor).next_after(now)
    return replace(begin, next_fire_at=cursor)
