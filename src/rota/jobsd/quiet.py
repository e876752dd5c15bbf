"""Which units are ready to be taken: those that have been the same for a while.

A folder changes file by file. What is read between two of them would be a state that nobody
wrote, so a unit is looked at when it has kept still, each by itself: a storm in one corner does
not keep the rest waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping

QUIET_SECONDS = 1.0
_FORGOTTEN = object()  # like no fingerprint


class Quiet:
    """Fingerprints as they were seen, since when, and which of them were taken."""

    def __init__(self, seconds: float = QUIET_SECONDS) -> None:
        self.seconds = seconds
        self._seen: dict[str, tuple[Hashable, float]] = {}
        self._taken: dict[str, Hashable] = {}

    def see(self, prints: Mapping[str, Hashable], now: float) -> tuple[list[str], float | None]:
        """(names that are ready, seconds until the next may be). A name that is not in `prints`
        is gone, which is a state like any other."""
        ready, waits = [], []
        for name in sorted({*prints, *self._taken, *self._seen}):
            mark = prints.get(name)
            if name not in self._seen or self._seen[name][0] != mark:
                self._seen[name] = (mark, now)
            if self._taken.get(name) == mark:
                continue
            left = self._seen[name][1] + self.seconds - now
            if left <= 0:
                ready.append(name)
            else:
                waits.append(left)
        return ready, min(waits, default=None)

    def untaken(self, prints: Mapping[str, Hashable]) -> list[str]:
        """Names that are not as they were taken, however short a time ago they changed."""
        names = sorted({*prints, *self._taken})
        return [name for name in names if self._taken.get(name) != prints.get(name)]

    def take(self, names: Iterable[str], prints: Mapping[str, Hashable]) -> None:
        """These were read as they are in `prints`."""
        for name in names:
            mark = prints.get(name)
            if mark is None:
                self._taken.pop(name, None)
                self._seen.pop(name, None)
            else:
                self._taken[name] = mark

    def taken(self, which: Callable[[str], bool]) -> dict[str, Hashable]:
        """Some of what was taken, as it was then."""
        return {name: mark for name, mark in self._taken.items() if which(name)}

    def forget(self) -> None:
        """Everything is to be taken anew, also that it is gone."""
        self._taken = dict.fromkeys(self._taken, _FORGOTTEN)
