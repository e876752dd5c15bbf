"""Plan which jobs to register and which to retire, from a folder and the store. Pure.

A job that is gone is retired only when no live worker of its origin lists it: two machines may have
two checkouts of one folder. A job that was never in this folder may belong to a process that is
restarting, so it is retired only after no worker has listed it for ORPHAN_SECONDS. The first
reconciliation of a process does not wait for that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rota.flow.workers import LIVE
from rota.model.definition import Registered

# Six heartbeats of a worker; a worker that was silent for longer is not alive.
LIVE_SECONDS = LIVE.total_seconds()
ORPHAN_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`anew` are the names of `put` whose files changed just now: theirs is the latest version."""

    put: frozenset[str] = frozenset()
    anew: frozenset[str] = frozenset()
    retire: frozenset[str] = frozenset()


@dataclass(slots=True)
class Orphans:
    """Jobs of our origin that no live worker lists, and since when."""

    since: dict[str, float] = field(default_factory=dict)

    def update(self, names: Collection[str], now: float) -> set[str]:
        """The names that have been orphans for ORPHAN_SECONDS. `names` are all orphans now."""
        self.since = {name: self.since.get(name, now) for name in names}
        return {name for name, since in self.since.items() if now - since >= ORPHAN_SECONDS}


def reconcile(
    defined: Collection[str],
    registered: Mapping[str, Registered],
    *,
    changed: Collection[str],
    again: Collection[str] = (),
    gone: Collection[str],
    elsewhere: Collection[str],
    unread: Collection[str] = (),
    late: Collection[str] = (),
    orphans: Orphans,
    now: float,
    first: bool,
    complete: bool,
) -> Plan:
    """The plan for one reconciliation.

    `changed` were read anew; `again` are put too, with the age they have; `gone` were here and are
    not any more; `elsewhere` are listed by other workers; `unread` are in the folder and not known
    yet, and `late` were unread at the first survey. In the `first` reconciliation of a process
    every definition counts as changed. Without `complete` (there is no folder yet) no job is
    retired for being unknown here."""
    lost = {name for name in defined if name not in registered or registered[name].retired}
    put = {*changed, *again} & set(defined) | lost
    anew = set(changed) - (set(elsewhere) if first else set(elsewhere) & set(late))
    unknown = {
        name
        for name, row in registered.items()
        if not row.retired and name not in {*defined, *elsewhere, *unread}
    }
    here = unknown & set(gone)
    old = orphans.update(unknown - here, now)
    retire = here
    if complete:
        retire |= (unknown - here) if first else old
    return Plan(put=frozenset(put), anew=frozenset(anew & put), retire=frozenset(retire))
