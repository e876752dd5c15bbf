"""The installation guard: a copy of a store must not fire what the original fires.

A PostgreSQL store remembers the server and the database it was made in, every store the `cluster`
it was given. Where one of them differs, all schedules are paused with the reason until an operator
confirms the move with `rota adopt`. A physical clone has the same server identifier and cannot be
recognised; a restore into another server, or pg_upgrade, looks like a move, because it is one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from rota.errors import StorageError
from rota.storage import operations
from rota.storage.operations.audit import Actor
from rota.storage.operations.installation import MOVED
from rota.storage.store import Store

log = logging.getLogger("rota.storage")


def check_home(store: Store, cluster: str | None) -> str | None:
    """None if the store is where it belongs; else the reason, and its schedules are paused."""
    here, known = store.home(cluster), store.read(operations.meta)
    reason = _moved(here, known)
    if reason is not None:
        while store.write(operations.pause_active_schedules, reason):
            pass
        return reason
    unset = {key: value for key, value in here.items() if key not in known}
    if unset:
        store.write(operations.put_home, unset)
    return None


def moved(store: Store, cluster: str | None) -> str | None:
    """The same reason, and nothing is done about it."""
    return _moved(store.home(cluster), store.read(operations.meta))


def adopt(store: Store, cluster: str | None, actor: Actor) -> int:
    """This place is right from now on; resume what the guard paused. How many schedules."""
    store.write(operations.adopt_home, store.home(cluster), actor)
    after, resumed = 0, 0
    while found := store.read(operations.paused_by_guard, after):
        resumed += sum(_resumes(store, row["name"], actor) for row in found)
        after = found[-1]["id"]
    return resumed


def _resumes(store: Store, name: str, actor: Actor) -> bool:
    """False for a schedule that cannot be resumed: it concerns no other."""
    try:
        store.write(operations.resume_schedule, name, "adopted", actor)
    except StorageError:
        raise
    except Exception as fault:
        log.warning("schedule %s stays paused: %s", name, fault)
        return False
    return True


def _moved(here: Mapping[str, str], known: Mapping[str, str]) -> str | None:
    moved = {key: value for key, value in here.items() if known.get(key, value) != value}
    if not moved:
        return None
    changes = ", ".join(f"{key} was {known[key]}, is {here[key]}" for key in sorted(moved))
    return f"{MOVED} ({changes}); confirm with `rota adopt`"
