"""Schedules that count from the end of their run (`anchor = "delay"`).

Such a schedule waits while the run of its last occurrence is under way. Whatever ends that run
(its worker, a rescue, an operator), or keeps it from being made at all, lets the schedule count
from that moment on, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from rota.errors import Invalid
from rota.model.duration import parse_duration
from rota.model.schedule import WAITING_FOR_RUN
from rota.storage.engine import Transaction
from rota.storage.operations.audit import Finished, record_finished

# Whose run it is, and of which occurrence; (…, None) is of none.
Occurrence = tuple[int | None, datetime | None]


def restart_delays(tx: Transaction, over: Collection[Occurrence]) -> set[Occurrence]:
    """Let the schedules go on that waited for one of these; those that did."""
    # A schedule waits for the run of its last occurrence. Others do not move its cursor: one
    # that an operator asked for (it stands for no occurrence), or an earlier one done again.
    known = {(id, at) for id, at in over if id is not None and at is not None}
    if not known:
        return set()
    ids = sorted({id for id, _ in known})
    found = tx.all("delay_schedules", ids=ids, waiting_at=WAITING_FOR_RUN)
    waiting = [row for row in found if (row["id"], row["last_fired_at"]) in known]
    for row in waiting:
        restart_delay(tx, row["id"], row["expr"])
    return {(row["id"], row["last_fired_at"]) for row in waiting}


def restart_delay(tx: Transaction, schedule_id: int, expr: str) -> None:
    """A schedule that waited for its run counts from now on, or is finished."""
    try:
        interval = parse_duration(expr, "every")
    except Invalid:  # a corrupt row must not keep its runs, or others, from going on
        return
    restarted = tx.all(
        "restart_delay_schedule",
        id=schedule_id,
        interval_seconds=interval.total_seconds(),
        waiting_at=WAITING_FOR_RUN,
    )
    over = [Finished(row["id"], row["name"]) for row in restarted if row["next_fire_at"] is None]
    if over:  # it would fire past its `ends_at`
        record_finished(tx, over)
