"""What every script stands on: the engine, the database's clock, and what the store knows of
itself."""

from __future__ import annotations

from datetime import datetime

from rota.storage.engine import Engine, Transaction


class Script:
    # True where calls are what a control row asks for: those that wait still are later words.
    in_turn = False

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def _now(self, tx: Transaction) -> datetime:
        row = tx.one("now")
        assert row is not None
        moment: datetime = row["now_at"]
        return moment

    def _meta(self, tx: Transaction) -> dict[str, str]:
        return {row["key"]: row["value"] for row in tx.all("all_meta")}

    def _dispatch(self, tx: Transaction) -> str:
        """What the switch for all claims says."""
        return self._meta(tx).get("dispatch", "on")

    def now(self) -> datetime:
        """The instant by the clock that decides: the database's on server engines."""
        return self.engine.look(self._now, urgent=True)
