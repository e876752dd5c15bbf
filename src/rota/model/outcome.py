"""The outcome of an attempt, and the settlement of its run.

Only `settle` decides it. It is pure, so that worker, rescuer and simulator decide alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from rota.errors import Invalid
from rota.model.limits import ERROR_LENGTH, REASON_LENGTH
from rota.model.redact import redact_json, redact_text, shorten
from rota.model.retry import Retry
from rota.model.run import ClaimedRun
from rota.model.secrets import NO_SECRETS, Secrets
from rota.model.transitions import SUCCEEDED, TERMINAL, TRANSITIONS

RUNNING = TRANSITIONS["running"]
AT_ONCE = timedelta(0)  # a constant: creating it takes as long as the rest of a settlement

# How an attempt can end. `snoozed` and `paused` are stored as `released`: neither is a failure.
KINDS = (
    "succeeded", "failed", "timed_out", "lost", "cancelled", "released", "snoozed", "paused",
)  # fmt: skip


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one attempt, as its executor reports it."""

    kind: str
    error: str | None = None
    reason: str | None = None
    result: str | None = None
    after: timedelta | None = None
    final: bool = False  # a retry would end the same way

    def __post_init__(self) -> None:
        assert self.kind in KINDS, self.kind
        if self.result is not None and not isinstance(self.result, str):
            raise Invalid(f"result {type(self.result).__name__} must be JSON text")

    @property
    def has_text(self) -> bool:
        """False on the hot path: then there is nothing to redact."""
        return not (self.error is None and self.reason is None and self.result is None)

    def redacted(self, secrets: Secrets = NO_SECRETS) -> Outcome:
        """The outcome to store: redacted, then cut. The views show the rows as they are."""
        return msgspec.structs.replace(
            self,
            error=None if self.error is None else shorten(self.error, ERROR_LENGTH, secrets),
            reason=None if self.reason is None else shorten(self.reason, REASON_LENGTH, secrets),
            result=None if self.result is None else redact_json(self.result, secrets),
        )


SUCCESS = Outcome(kind="succeeded")  # of a handler that returned nothing


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
    """The changes when an attempt ends. Fenced by (seq, attempt): a late one changes nothing."""

    run: ClaimedRun
    outcome: Outcome
    state: str
    failures: int
    lost: int
    delay: timedelta = AT_ONCE
    gives_back_slots: bool = False
    expired_only: bool = False
    ran_seconds: float | None = None
    is_simple_success: bool = False  # only the run's row is written: the hot path

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def attempt_outcome(self) -> str:
        return "released" if self.outcome.kind in ("snoozed", "paused") else self.outcome.kind

    @property
    def never_began(self) -> bool:
        """True if it ended, or was released, while it waited for a thread of its worker.

        False for a lost attempt, where it is unknown."""
        return self.ran_seconds is None and self.outcome.kind in ("released", "cancelled")


def settle(
    run: ClaimedRun,
    outcome: Outcome,
    *,
    retry: Retry,
    max_lost: int,
    random_value: float = 0.0,
    ran_seconds: float | None = None,
) -> Settlement:
    """Decide the next state of a run.

    Storage applies cancel requests, because only it sees the latest one: it changes a state that is
    not terminal to cancelled."""
    if outcome.kind == "succeeded":
        return succeed(run, outcome, ran_seconds)
    failures, lost, delay = run.failures, run.lost, AT_ONCE
    if outcome.has_text:
        outcome = outcome.redacted()  # also for outcomes without a handler, such as our own errors
    match outcome.kind:
        case "cancelled":
            state = RUNNING["cancel"]
        case "failed" | "timed_out":
            failures += 1
            if outcome.final or failures >= retry.max_attempts:
                state = RUNNING["give up"]
            else:
                state = RUNNING["retry"]
                delay = (
                    outcome.after
                    if outcome.after is not None
                    else retry.delay_after(failures, random_value)
                )
        case "lost":
            lost += 1
            state = RUNNING["give up"] if lost >= max_lost else RUNNING["let go"]
        case "snoozed":
            state = RUNNING["retry"]
            delay = outcome.after or AT_ONCE
        case "paused":
            state = RUNNING["pause"]
        case _:
            state = RUNNING["let go"]
    return Settlement(
        run=run,
        outcome=outcome,
        state=state,
        failures=failures,
        lost=lost,
        delay=delay,
        gives_back_slots=state in TERMINAL or outcome.kind == "snoozed",
        expired_only=outcome.kind == "lost",
        ran_seconds=ran_seconds,
    )


def succeed(run: ClaimedRun, outcome: Outcome, ran_seconds: float | None) -> Settlement:
    """The settlement of a success, which needs no retry policy: the hot path."""
    return Settlement(
        run=run,
        outcome=outcome,
        state=SUCCEEDED,
        failures=run.failures,
        lost=run.lost,
        gives_back_slots=True,
        ran_seconds=ran_seconds,
        is_simple_success=(
            run.attempt == 1
            and run.schedule_id is None
            and run.overlap_key is None
            and run.concurrency_key is None
        ),
    )


def error_line(text: str | None, limit: int = 100) -> str:
    """The line that names an error, redacted and then cut."""
    return _cut(naming_line(redact_text(text or "")), limit)


def error_text(text: str | None, limit: int = 2_000) -> str:
    """An error redacted and then cut; of a traceback only the line that names it."""
    whole = redact_text(text or "").strip()
    return _cut(naming_line(whole) if _is_traced(whole.splitlines()) else whole, limit)


def naming_line(text: str) -> str:
    """The line that names an error: the last line of a traceback, else the first."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1 if _is_traced(lines) else 0].strip() if lines else ""


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _is_traced(lines: Sequence[str]) -> bool:
    return any(line.startswith("Traceback (") for line in lines)
