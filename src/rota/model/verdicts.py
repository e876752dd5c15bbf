"""Results of a handler that control its run: Snooze, Cancel and Retry.

`return Snooze("30s")` and `return Cancel("why")` are values; `raise Retry(after="5m")` is an
exception, so that it also leaves nested calls. The policy of the same name is `model.retry.Retry`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from rota.model.duration import parse_duration


@dataclass(frozen=True, slots=True)
class Snooze:
    """Run again after this time. Not a failure; the run releases its slots meanwhile."""

    after: timedelta

    def __init__(self, after: object) -> None:
        object.__setattr__(self, "after", parse_duration(after, "Snooze"))


@dataclass(frozen=True, slots=True)
class Cancel:
    """End this run as cancelled: there is no more work to do."""

    reason: str = ""


class Retry(Exception):
    """Fail this attempt; `after` replaces the wait of the job's retry policy."""

    def __init__(self, after: object = None, reason: str = "") -> None:
        super().__init__(reason)
        self.after: timedelta | None = (
            None if after is None else parse_duration(after, "Retry after", zero=True)
        )
        self.reason = reason
