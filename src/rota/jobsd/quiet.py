"""Select the units whose files have been stable for a while.

A folder changes file by file. A unit that is read between two changes would be a version that
never existed, so a unit is read when its fingerprint is stable. Each unit has its own timer: a
unit that changes all the time does not delay the others.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping

SETTLE_SECONDS = 1.0
_UNREAD = object()  # equal to no fingerprint


class StableFiles:
    """The last fingerprint of each unit, since when it is the same, and the one last read."""

    def __init__(self, seconds: float = SETTLE_SECONDS) -> None:
        self.seconds = seconds
        self._current: dict[str, tuple[Hashable, float]] = {}
        self._read: dict[str, Hashable] = {}

    def update(
        self, fingerprints: Mapping[str, Hashable], now: float
    ) -> tuple[list[str], float | None]:
        """(names that are ready, seconds until the next may be).

        A name that is missing from `fingerprints` is gone, which is a state like any other."""
        ready, waits = [], []
        for name in sorted({*fingerprints, *self._read, *self._current}):
            fingerprint = fingerprints.get(name)
            if name not in self._current or self._current[name][0] != fingerprint:
                self._current[name] = (fingerprint, now)
            if self._read.get(name) == fingerprint:
                continue
            remaining = self._current[name][1] + self.seconds - now
            if remaining <= 0:
                ready.append(name)
            else:
                waits.append(remaining)
        return ready, min(waits, default=None)

    def unread_names(self, fingerprints: Mapping[str, Hashable]) -> list[str]:
        """Names whose fingerprint differs from the one last read, stable or not."""
        names = sorted({*fingerprints, *self._read})
        return [name for name in names if self._read.get(name) != fingerprints.get(name)]

    def mark_read(self, names: Iterable[str], fingerprints: Mapping[str, Hashable]) -> None:
        """Record that these names were read with these fingerprints."""
        for name in names:
            fingerprint = fingerprints.get(name)
            if fingerprint is None:
                self._read.pop(name, None)
                self._current.pop(name, None)
            else:
                self._read[name] = fingerprint

    def read_fingerprints(self, which: Callable[[str], bool]) -> dict[str, Hashable]:
        """The fingerprints last read of the names that `which` selects."""
        return {name: fingerprint for name, fingerprint in self._read.items() if which(name)}

    def forget(self) -> None:
        """Mark all names as unread, so that removed ones are reported again too."""
        self._read = dict.fromkeys(self._read, _UNREAD)
