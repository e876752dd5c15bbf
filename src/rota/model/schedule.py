"""A schedule: when to make runs of a job. A row with a cursor."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property, lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from rota.errors import Invalid
from rota.model.duration import format_duration, parse_duration, parse_instant
from rota.model.limits import PRIORITY, check_name, check_payload, check_whole
from rota.model.policies import (
    ANCHOR,
    API,
    CATCH_UP,
    DEFAULT_OVERLAP,
    DST,
    ON_ERROR,
    OVERLAP,
    choose,
)
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

    `expr` is a cron expression, a duration or an instant, by `kind`. `next_fire_at` None means
    finished; `enabled` belongs to the definition, `paused` to the operator.
    """

    name: str
    job: str
    kind: str
    expr: str
    id: int = 0
    timezone: str = "UTC"
    dst: str = "vixie"
    anchor: str = "rate"
    overlap: str = DEFAULT_OVERLAP[API]
    overlap_key: str | None = None
    queue_max: int | None = None
    on_error: str = "next"
    pause_after: int | None = None
    catch_up: str = "one"
    catch_up_limit: int = 100
    misfire_grace: timedelta = timedelta(seconds=60)
    jitter: timedelta = timedelta(0)
    spread: timedelta = timedelta(0)
    first_run: datetime | None = None
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    priority: int | None = None
    retry: Retry | None = None
    owner: str | None = None
    enabled: bool = True
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
        for name in ("expr", "timezone"):
            if not isinstance(getattr(self, name), str):
                raise Invalid(f"{name} {getattr(self, name)!r} must be text")
        if not isinstance(self.args, Mapping):
            raise Invalid(f"args {self.args!r} must be a mapping of names to values")
        check_payload(dict(self.args))
        if self.retry is not None and not isinstance(self.retry, Retry):
            raise Invalid(f"retry {self.retry!r} must be a retry policy")
        for name, allowed in _CHOICES.items():
            self._set(name, choose(getattr(self, name), allowed, name))
        for name in ("misfire_grace", "jitter", "spread"):
            self._set(name, parse_duration(getattr(self, name), name, zero=True))
        for name in ("first_run", "starts_at", "ends_at"):
            if getattr(self, name) is not None:
                self._set(name, parse_instant(getattr(self, name), name))
        if self.queue_max is not None:
            check_whole(self.queue_max, "queue_max", 0, QUEUE_MAX)
        if self.pause_after is not None:
            check_whole(self.pause_after, "pause_after", 1, 1_000)
        if self.priority is not None:
            check_whole(self.priority, "priority", -PRIORITY, PRIORITY)
        check_whole(self.catch_up_limit, "catch_up_limit", 1, CATCH_UP_LIMIT)
        if self.starts_at and self.ends_at and self.ends_at < self.starts_at:
            raise Invalid("ends_at is before starts_at")
        parse_zone(self.timezone)
        _ = self.calendar  # parses expr, so that a bad one is refused here

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

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

    @property
    def plan_key(self) -> tuple[Any, ...] | None:
        """Equal for schedules that can share one plan; None if the plan depends on the schedule."""
        is_individual = self.overlap_key is not None or self.spread or self.jitter or self.delays
        return None if is_individual else _plan_key(self)

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
        return {name: _to_json(getattr(self, name)) for name in DEFINITION}

    def timing(self) -> dict[str, Any]:
        """The part of the definition that the cursor depends on."""
        return {name: _to_json(getattr(self, name)) for name in TIMING}

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
        definition = json.dumps(self.definition(), sort_keys=True, default=str)
        return hashlib.sha256(definition.encode()).hexdigest()[:16]

    def described(self) -> str:
        return f"{self.kind} {self.expr}" + (f" {self.timezone}" if self.kind == "cron" else "")


TIMING = ("kind", "expr", "timezone", "dst", "anchor", "first_run", "starts_at", "ends_at")
DEFINITION = (
    "name", "job", *TIMING, "overlap", "overlap_key", "queue_max", "on_error", "pause_after",
    "catch_up", "catch_up_limit", "misfire_grace", "jitter", "spread", "args", "priority",
    "retry", "owner", "enabled",
)  # fmt: skip
# The fields that a plan and the row of its run depend on, except id, name and args; and the other
# fields that are checked, so that a row equal to a valid one is valid.
PLAN_KEY_FIELDS = (
    "job", *TIMING, "overlap", "queue_max", "on_error", "pause_after", "catch_up",
    "catch_up_limit", "misfire_grace", "priority", "retry", "next_fire_at", "revision",
)  # fmt: skip
_plan_key = attrgetter(*PLAN_KEY_FIELDS)
_OPTIONS = DEFINITION[1:]  # all but the name, which identifies it
_CHOICES = {
    "dst": DST, "anchor": ANCHOR, "overlap": OVERLAP, "on_error": ON_ERROR, "catch_up": CATCH_UP,
}  # fmt: skip


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


def _to_json(value: object) -> Any:
    match value:
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
