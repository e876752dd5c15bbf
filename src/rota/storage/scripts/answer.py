"""Answer control rows: what a row asks for and its answer are one transaction.

A process that dies anywhere leaves the row as it was, with nothing done, or answered. The row's
lock says who does it; who does not get it leaves the row alone.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, Self, cast

from rota.errors import RotaError, Unavailable
from rota.model.control_row import ControlReply, ControlRequest
from rota.model.limits import CONTROL_CHANGES, CONTROL_SECONDS
from rota.storage.engine import Engine, Row, Transaction
from rota.storage.joined import JoinedEngine
from rota.storage.scripts.base import Script


class AnswerScript(Script):
    def asked(self, *, limit: int) -> list[ControlRequest]:
        """Rows that wait for an answer, the oldest first."""
        found = self.engine.look(lambda tx: tx.all("asked_rows", limit=limit))
        return [ControlRequest(**row) for row in found]

    def answer(
        self,
        asked_id: int,
        do: Callable[[Any], ControlReply],
        refuse: Callable[[RotaError], ControlReply],
    ) -> ControlReply | None:
        """Do it on the store it is given, and say so; None if it is answered, or somebody else's.
        What it raises undoes what it did and is the answer, unless the database is away or
        somebody holds a lock: then the row waits. `do` may be called again after a rollback."""

        def work(tx: Transaction) -> ControlReply | None:
            if tx.one("lock_asked_row", id=asked_id) is None:
                return None
            try:
                with tx.savepoint():
                    reply = do(self._joined(tx))
            except Unavailable:
                raise
            except RotaError as fault:
                reply = refuse(fault)
            tx.one(
                "answer_row", id=asked_id, status=reply.status, kept=reply.redacted_text,
                rows=reply.rows, more=reply.more, error=reply.error,
            )  # fmt: skip
            return reply

        return self.engine.write("answer", work)

    def _joined(self, tx: Transaction) -> Self:
        """This store, with every call a part of `tx`."""
        store = copy(self)
        joined = JoinedEngine(self.engine, tx, changes=CONTROL_CHANGES, seconds=CONTROL_SECONDS)
        store.engine, store.in_turn = cast(Engine, joined), True
        return store

    def prune_answered(self, *, age_seconds: float, keep: int, limit: int) -> int:
        """Delete old answers, and those past the latest `keep` rows."""

        def find(tx: Transaction) -> list[Row]:
            return tx.all("old_answered_rows", age_seconds=age_seconds, keep=keep, limit=limit)

        old = self.engine.read(find)
        if old:  # mostly there is nothing, and then nobody has to wait for a lock
            self.engine.write("prune_answered", lambda tx: tx.many("delete_answered_rows", old))
        return len(old)
