"""What every script stands on: the engine, and the database's clock."""

from __future__ import annotations

from datetime import datetime

from rota.storage.engine import Engine, Transaction


class Script:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def _now(self, tx: Transaction) -> datetime:
        row = tx.one("now")
        assert row is not None
        moment: datetime = row["now_at"]
        return moment

    def now(self) -> datetime:
        """The instant by the clock that decides: the database's on server engines."""
        return self.engine.look(self._now)
