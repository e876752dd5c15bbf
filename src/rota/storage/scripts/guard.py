"""The installation guard: a copy of a store must not fire what the original fires.

A PostgreSQL store remembers the server and the database it was made in, every store the `cluster`
it was told. Where one of them differs, all schedules are paused with the reason until somebody
confirms the move with `rota adopt`. A physical clone has the same server identifier and cannot be
told apart; a restore into another server, or pg_upgrade, looks like a move, because it is one.
"""

from __future__ import annotations

import logging

from rota.errors import StorageError
from rota.storage import rows
from rota.storage.engine import Row, Transaction
from rota.storage.scripts.changes import SYSTEM, Actor, audit, record_change
from rota.storage.scripts.schedules import ScheduleScript

log = logging.getLogger("rota.storage")

BATCH = 500
MARK = "this store was moved or copied"


class GuardScript(ScheduleScript):
    def check_home(self, cluster: str | None) -> str | None:
        """None if the store is where it belongs; else the reason, and its schedules are paused."""
        here, known = self._here(cluster), self.meta()
        unset = {key: value for key, value in here.items() if key not in known}
        reason = _moved(here, known)
        if reason is not None:
            while self.engine.write("check_home", lambda tx: self._pause_some(tx, reason)):
                pass
            return reason
        if unset:
            self.engine.write("check_home", lambda tx: _remember(tx, unset))
        return None

    def moved(self, cluster: str | None) -> str | None:
        """The same reason, and nothing is done about it."""
        return _moved(self._here(cluster), self.meta())

    def adopt(self, cluster: str | None, actor: Actor) -> int:
        """This place is right from now on; resume what the guard paused. How many schedules."""
        here = self._here(cluster)

        def work(tx: Transaction) -> None:
            _remember(tx, here)
            audit(tx, actor, "adopt", "installation", after=rows.to_json(here))

        self.engine.write("adopt", work)
        after, resumed = 0, 0
        while found := self._paused_by_guard(after):
            resumed += sum(self._resumes(row["name"], actor) for row in found)
            after = found[-1]["id"]
        return resumed

    def _paused_by_guard(self, after: int) -> list[Row]:
        return self.engine.read(
            lambda tx: tx.all("paused_because", mark=f"{MARK}%", after=after, limit=BATCH)
        )

    def _resumes(self, name: str, actor: Actor) -> bool:
        """False for a schedule that cannot be resumed: it concerns no other."""
        try:
            self.resume_schedule(name, "adopted", actor)
        except StorageError:
            raise
        except Exception as fault:
            log.warning("schedule %s stays paused: %s", name, fault)
            return False
        return True

    def _here(self, cluster: str | None) -> dict[str, str]:
        here = dict(self.engine.home())
        if cluster is not None:
            here["cluster"] = cluster
        return here

    def _pause_some(self, tx: Transaction, reason: str) -> int:
        found = tx.all("active_schedules", limit=BATCH)
        for row in found:
            schedule = rows.schedule(row)
            changed = tx.one(
                "pause_schedule", id=schedule.id, by=SYSTEM.by, reason=reason, state=reason
            )
            if changed is not None:
                paused = rows.schedule(changed)
                record_change(tx, paused, SYSTEM, "pause", reason, schedule, paused)
        return len(found)

    def meta(self) -> dict[str, str]:
        """Schema version, installation id, home, dispatch switch."""
        return self.engine.read(self._meta)


def _moved(here: dict[str, str], known: dict[str, str]) -> str | None:
    moved = {key: value for key, value in here.items() if known.get(key, value) != value}
    if not moved:
        return None
    told = ", ".join(f"{key} was {known[key]}, is {here[key]}" for key in sorted(moved))
    return f"{MARK} ({told}); confirm with `rota adopt`"


def _remember(tx: Transaction, home: dict[str, str]) -> None:
    for key, value in sorted(home.items()):
        tx.all("set_meta", key=key, value=value)
