"""What is to be done about the difference between a folder and the store. Pure.

A job that is gone is retired only when no live worker of its origin has it: two machines may have
two checkouts of one folder. One that never was here may belong to a process that is just starting
again, so it has to be nobody's for a while; at the beginning of a process it has been that long
enough already.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rota.flow.workers import LIVE
from rota.model.definition import Registered

# Six heartbeats of a worker: who has not been heard of for longer is not there.
LIVE_SECONDS = LIVE.total_seconds()
ORPHAN_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`anew` are those of `put` whose files changed just now, and which are therefore the latest
    version there is."""

    put: frozenset[str] = frozenset()
    anew: frozenset[str] = frozenset()
    retire: frozenset[str] = frozenset()


@dataclass(slots=True)
class Orphans:
    """Jobs of our origin that nobody alive has, and since when that is so."""

    since: dict[str, float] = field(default_factory=dict)

    def see(self, names: Collection[str], now: float) -> set[str]:
        """Those that have been nobody's for long enough."""
        self.since = {name: self.since.get(name, now) for name in names}
        return {name for name, since in self.since.items() if now - since >= ORPHAN_SECONDS}


def reconcile(
    wanted: Collection[str],
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
    """`again` are put too, with the age they have; `gone` were here and are not any more; `first`
    is the first look of this process, where everything counts as changed; `unread` are in the
    folder and not known yet, and `late` were so at the first look; without `complete` (there is no
    folder yet) nobody is retired for being unknown here."""
    lost = {name for name in wanted if name not in registered or registered[name].retired}
    put = {*changed, *again} & set(wanted) | lost
    anew = set(changed) - (set(elsewhere) if first else set(elsewhere) & set(late))
    unknown = {
        name
        for name, one in registered.items()
        if not one.retired and name not in {*wanted, *elsewhere, *unread}
    }
    here = unknown & set(gone)
    old = orphans.see(unknown - here, now)
    retire = here
    if complete:
        retire |= (unknown - here) if first else old
    return Plan(put=frozenset(put), anew=frozenset(anew & put), retire=frozenset(retire))
