"""What came of an attempt, and what that makes of its run.

`settle` is the one place that decides it: pure, so that the worker, the rescuer and the
simulator all ask the same question and get the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from rota.errors import Invalid
from rota.model.limits import ERROR_LENGTH, REASON_LENGTH
from rota.model.redact import redact_json, redact_text, shorten
from rota.model.retry import Retry
from rota.model.run import Claimed
from rota.model.secrets import NO_SECRETS, Secrets
from rota.model.transitions import SUCCEEDED, TERMINAL, TRANSITIONS

RUNNING = TRANSITIONS["running"]
AT_ONCE = timedelta(0)  # made once: it takes as long as the rest of a settlement

# How an attempt can end. `snoozed` and `paused` are stored as `released`: neither is a failure.
KINDS = (
    "succeeded", "failed", "timed_out", "lost", "cancelled", "released", "snoozed", "paused",
)  # fmt: skip


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one attempt, as its executor tells it."""

    kind: str
    error: str | None = None
    reason: str | None = None
    result: str | None = None
    after: timedelta | None = None
    final: bool = False  # to try again would end the same way

    def __post_init__(self) -> None:
        assert self.kind in KINDS, self.kind
        if self.result is not None and not isinstance(self.result, str):
            raise Invalid(f"result {type(self.result).__name__} must be JSON text")

    @property
    def tells(self) -> bool:
        """False on the hot path: then there is nothing to look through."""
        return not (self.error is None and self.reason is None and self.result is None)

    def shown(self, secrets: Secrets = NO_SECRETS) -> Outcome:
        """As it may be stored, because the views show what the rows hold: redacted, then cut."""
        return msgspec.structs.replace(
            self,
            error=None if self.error is None else shorten(self.error, ERROR_LENGTH, secrets),
            reason=None if self.reason is None else shorten(self.reason, REASON_LENGTH, secrets),
            result=None if self.result is None else redact_json(self.result, secrets),
        )


SUCCESS = Outcome(kind="succeeded")  # of a handler that returned nothing


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
    """What to write when an attempt ends. Fenced by (seq, attempt): a late one changes nothing."""

    run: Claimed
    outcome: Outcome
    state: str
    failures: int
    lost: int
    delay: timedelta = AT_ONCE
    gives_back_slots: bool = False
    expired_only: bool = False
    ran_seconds: float | None = None
    is_plain: bool = False  # the run row is all there is to write: the hot path

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def attempt_outcome(self) -> str:
        return "released" if self.outcome.kind in ("snoozed", "paused") else self.outcome.kind

    @property
    def never_began(self) -> bool:
        """True if it was given back, or ended, while it waited for a slot of its worker. Of a
        lost one nobody knows."""
        return self.ran_seconds is None and self.outcome.kind in ("released", "cancelled")


def settle(
    run: Claimed,
    outcome: Outcome,
    *,
    retry: Retry,
    max_lost: int,
    luck: float = 0.0,
    ran_seconds: float | None = None,
) -> Settlement:
    """Decide what an outcome makes of its run. Cancel requests are honoured by storage, which
    alone sees the latest one: it turns a state that is not terminal into cancelled."""
    if outcome.kind == "succeeded":
        return succeed(run, outcome, ran_seconds)
    failures, lost, delay = run.failures, run.lost, AT_ONCE
    if outcome.tells:
        outcome = outcome.shown()  # also what did not come from a handler, such as a fault of ours
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
                    else retry.delay_after(failures, luck)
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


def succeed(run: Claimed, outcome: Outcome, ran_seconds: float | None) -> Settlement:
    """What a success makes of its run, whatever its retries: the hot path."""
    return Settlement(
        run=run,
        outcome=outcome,
        state=SUCCEEDED,
        failures=run.failures,
        lost=run.lost,
        gives_back_slots=True,
        ran_seconds=ran_seconds,
        is_plain=(
            run.attempt == 1
            and run.schedule_id is None
            and run.overlap_key is None
            and run.concurrency_key is None
        ),
    )


def error_line(text: str | None, limit: int = 100) -> str:
    """The line of an error that names it, as it may be shown: redacted, and then cut."""
    return _cut(naming_line(redact_text(text or "")), limit)


def error_text(text: str | None, limit: int = 2_000) -> str:
    """All of an error, as it may be shown and as far as it fits; of a traceback only the line that
    names it."""
    whole = redact_text(text or "").strip()
    return _cut(naming_line(whole) if _is_traced(whole.splitlines()) else whole, limit)


def naming_line(text: str) -> str:
    """The line of an error that names it: the last one of a traceback, else the first."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1 if _is_traced(lines) else 0].strip() if lines else ""


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _is_traced(lines: Sequence[str]) -> bool:
    return any(line.startswith("Traceback (") for line in lines)
