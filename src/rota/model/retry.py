"""How long to wait before the next attempt of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from difflib import get_close_matches

from rota.errors import Invalid
from rota.model.duration import format_duration, parse_duration
from rota.model.limits import check_whole

BACKOFFS = ("none", "fixed", "exponential", "quadratic")
MAX_ATTEMPTS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """`max_attempts` limits failures; lost, released and snoozed attempts are not failures."""

    max_attempts: int = 3
    backoff: str = "fixed"
    delay: timedelta = timedelta(seconds=5)
    max_delay: timedelta = timedelta(hours=1)
    jitter: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        check_whole(self.max_attempts, "max_attempts", 1, MAX_ATTEMPTS)
        if self.backoff not in BACKOFFS:
            raise Invalid(f"backoff {self.backoff!r} is unknown; use {', '.join(BACKOFFS)}")
        for field in ("delay", "max_delay", "jitter"):
            object.__setattr__(self, field, parse_duration(getattr(self, field), field, zero=True))
        if self.delay > self.max_delay:
            longest, delay = format_duration(self.max_delay), format_duration(self.delay)
            raise Invalid(f"delay {delay} is longer than max_delay {longest}; raise max_delay")

    def delay_after(self, failures: int, random_value: float) -> timedelta:
        """The wait after the nth failure. `random_value` in [0, 1) is the added part of jitter."""
        match self.backoff:
            case "none":
                wait = timedelta(0)
            case "fixed":
                wait = self.delay
            case "exponential":
                wait = self._times(2 ** (failures - 1))
            case _:
                wait = self._times(failures**2)
        return wait + self.jitter * random_value

    def _times(self, factor: int) -> timedelta:
        # Not min(product, max_delay): the product may be past what a timedelta can hold.
        if self.delay and factor > self.max_delay // self.delay:
            return self.max_delay
        return self.delay * factor

    def to_dict(self) -> dict[str, object]:
        """The stored form; `from_dict` reads it back."""
        return {
            "max_attempts": self.max_attempts,
            "backoff": self.backoff,
            "delay": format_duration(self.delay),
            "max_delay": format_duration(self.max_delay),
            "jitter": format_duration(self.jitter),
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, object]) -> Retry:
        known = [field.name for field in fields(cls)]
        for name in stored:
            if name not in known:
                close = get_close_matches(str(name), known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"use {', '.join(known)}"
                raise Invalid(f"retry {name!r} is unknown; {hint}")
        return cls(**stored)  # type: ignore[arg-type]


ONCE = Retry(max_attempts=1)
