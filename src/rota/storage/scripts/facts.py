"""What the store tells about itself, for `rota doctor`. Nothing is changed by asking."""

from __future__ import annotations

import time

from rota.storage.engine import Row, Transaction
from rota.storage.scripts.guard import GuardScript


class FactsScript(GuardScript):
    def facts(self, cluster: str | None = None) -> Row:
        """The engine's own, the schema's version, how far its clock is from ours, leases that
        ran out, and whether it is where it was made."""

        def read(tx: Transaction) -> Row:
            before = time.time()
            now = self._now(tx)
            middle = (before + time.time()) / 2
            expired = tx.one("expired_leases")
            return {
                "clock_offset_seconds": now.timestamp() - middle,
                "expired_leases": expired,
            }

        return {
            **self.engine.facts(),
            **self.engine.read(read),
            "engine": self.engine.name,
            "schema_version": self.meta().get("schema_version"),
            "moved": self.moved(cluster),
        }
