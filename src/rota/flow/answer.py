"""Answer control rows: statements that clients insert into a table of the store.

What a row asks for and its answer are one transaction, so it is done once, whichever process dies.
A row that cannot be done is answered too: one bad statement keeps no other waiting, and neither
does one about something that another open transaction holds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from rota.errors import Conflict, RotaError, Unavailable
from rota.model.control_row import ControlReply, ControlRequest, failed
from rota.model.redact import redact_text, shorten
from rota.storage import operations
from rota.storage.inside import StoreInside
from rota.storage.store import Store

log = logging.getLogger("rota.answer")

BATCH = 20
# Below the second that is promised, also where no wake is heard.
LONGEST_INTERVAL = 0.5
NAMED_LENGTH = 200  # of a statement, in an error that names it


class Plan(Protocol):
    """A statement that was understood, and may be done."""

    redacted_text: str

    def do(self, store: StoreInside) -> ControlReply:
        """All of it on this store. May be called again, when what it did was undone."""

    def done(self) -> None:
        """It was committed: tell those who should hear of it."""


# Reads a statement and checks who asks; it raises what is wrong with it.
MakePlan = Callable[[ControlRequest], Plan]


class Answer:
    """`planner` is called where there are rows: most processes never see one, and need no parser.
    What it raises is no row's fault, so that the rows wait."""

    def __init__(self, store: Store, *, planner: Callable[[], MakePlan], interval: float) -> None:
        self.store, self.planner = store, planner
        self.interval = min(interval, LONGEST_INTERVAL)

    def step(self) -> float:
        """0.0 while there may be more. Rows are answered in their order: while another process is
        at one, those behind it are left to him, or to the next look."""
        asked = self.store.peek(operations.asked, limit=BATCH)
        if not asked:
            return self.interval
        make_plan = self.planner()
        answered = [self._answer(one, make_plan) for one in asked]
        more = len(asked) == BATCH or not all(answered)
        return 0.0 if more and any(answered) else self.interval

    def _answer(self, asked: ControlRequest, make_plan: MakePlan) -> bool:
        kept = redact_text(asked.statement)
        try:
            plan = make_plan(asked)
        except RotaError as fault:
            return self._refuse(asked, kept, fault)
        except Exception as fault:  # isolated: whatever it is, the next row is another one
            log.exception("control row %d cannot be read", asked.id)
            return self._refuse(asked, kept, fault)
        try:
            reply = self.store.write(
                operations.answer,
                asked.id,
                lambda tx: plan.do(self.store.inside(tx)),
                lambda fault: failed(plan.redacted_text, fault),
            )
        except Unavailable as fault:
            if fault.locked:
                return self._refuse(
                    asked, plan.redacted_text, _locked(plan.redacted_text, asked.id)
                )
            raise  # nothing is done, or all of it with its answer: the next look tells
        except Exception as fault:
            log.exception("control row %d cannot be done", asked.id)
            return self._refuse(asked, plan.redacted_text, fault)
        if reply is not None:
            plan.done()
        return reply is not None

    def _refuse(self, asked: ControlRequest, kept: str, fault: Exception) -> bool:
        """Nothing was done. If the database is away this fails as well, and the row waits."""
        reply = failed(kept, fault)
        return (
            self.store.write(operations.answer, asked.id, lambda _: reply, lambda _: reply)
            is not None
        )


def _locked(kept: str, asked_id: int) -> Conflict:
    """Logged as well: a row that a function of PostgreSQL inserted is rarely looked at."""
    fault = Conflict(
        f"{shorten(kept, NAMED_LENGTH)}: another transaction holds what this would change, and is "
        "still open; commit that one or roll it back, and ask again (`rota doctor` names those "
        "that are open for long)"
    )
    log.warning("control row %d: %s", asked_id, fault)
    return fault
