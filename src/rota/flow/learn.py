"""Learn of SQL jobs that a statement made: no program and no folder has them, so every worker that
has their target serves them.

To look for news is to read one row. It is done with every beat and, when something changed
anywhere, at most once a second: a burst of wake-ups is one look.
"""

from __future__ import annotations

import time
from collections.abc import Callable, MutableMapping
from typing import Protocol

from rota.errors import RotaError
from rota.model.job import Job
from rota.storage import operations
from rota.storage.store import Store

LOOK_SECONDS = 1.0
BEAT_SECONDS = 5.0


class FindTarget(Protocol):
    """Databases by name; raises what is known of the reason if there is none."""

    def find(self, name: str | None = None) -> object: ...


class Learn:
    """`jobs` is what the worker knows, and `foreign` the names in it that are not the program's
    own. A job of the program stays what it is, whatever a statement calls by its name."""

    def __init__(
        self,
        store: Store,
        *,
        jobs: MutableMapping[str, Job],
        foreign: set[str],
        targets: FindTarget | None,
        learned: Callable[[], None] = lambda: None,
        wake: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store, self.jobs, self.foreign, self.targets = store, jobs, foreign, targets
        self.learned, self.wake, self.monotonic = learned, wake, monotonic
        self._mark: str | None = None
        self._hidden: set[str] = set()  # what the program, or a file, has a job of that name for
        self._asked = False
        self._looked_at = float("-inf")

    def ask(self) -> None:
        """Something has changed somewhere: look soon."""
        if not self._asked:
            self._asked = True
            self.wake()

    def step(self) -> float:
        left = self._looked_at + LOOK_SECONDS - self.monotonic()
        if left > 0:
            return left if self._asked else LOOK_SECONDS
        self._asked = False  # before the look: what changes during it is asked for again
        self._looked_at = self.monotonic()
        # A file that stood in the way was refused, or is gone.
        if any(name not in self.jobs for name in self._hidden):
            self._mark = None
        news = self.store.read(operations.shared_jobs, self._mark)
        if news is not None:
            if self._take(news[1]):
                self.learned()
            self._mark = news[0]
        return BEAT_SECONDS

    def _take(self, found: list[Job]) -> bool:
        """True if anything is different now."""
        served = {job.name: job for job in found if self._serves(job)}
        foreign = [(name, self.jobs.get(name)) for name in list(self.foreign)]
        known = {name for name, job in foreign if job is not None and job.shared}
        self._hidden = {name for name in served if name in self.jobs and name not in known}
        changed = False
        for name in known - set(served):
            self.jobs.pop(name, None)
            self.foreign.discard(name)
            changed = True
        for name, job in served.items():
            own = self.jobs.get(name)
            if own is not None and name not in known:
                continue
            if own != job:
                self.foreign.add(name)  # first: the program must not take it for its own
                self.jobs[name] = job
                changed = True
        return changed

    def _serves(self, job: Job) -> bool:
        if self.targets is None:
            return True
        try:
            self.targets.find(job.spec.get("target"))
        except RotaError:
            return False
        return True
