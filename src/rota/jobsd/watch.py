"""Be told when something in the folder of jobs changes. A hint: the folder itself is the truth.

The notifier is blind when the folder it watches is replaced by another one of that name, so the
folder above is watched too, for that one entry, and the watch follows. Where nothing can be
watched, looking often takes its place.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger("rota.jobsd")

# Changes are handed on in groups; the quiet period is kept by who is told.
GROUP_MS, STEP_MS = 200, 100
ATTACHED_MS = 1_000  # after this time without a change the notifier says so, and surely watches
RESCAN_SECONDS = 10.0
BLIND_RESCAN_SECONDS = 1.0

Identity = tuple[str, int, int]


class Watch:
    def __init__(self, root: Path, changed: Callable[[], None]) -> None:
        self.root, self.changed = root.absolute(), changed
        self._folder = _Watcher(self.root, changed, recursive=True)
        self._above = _Watcher(self.root.parent, self._replaced, recursive=False, only=self.root)

    def _replaced(self) -> None:
        # Its number does not tell: the one that took its place may have got that of one before.
        self._folder.forget()
        self.changed()

    def follow(self) -> None:
        """Watch what is at that place now; cheap if it is what was watched already."""
        self._above.follow()
        self._folder.follow()

    @property
    def rescan_seconds(self) -> float:
        """How often to look whatever was told: changes may have been missed."""
        return BLIND_RESCAN_SECONDS if self._folder.blind else RESCAN_SECONDS

    def stop(self) -> None:
        self._above.stop()
        self._folder.stop()


class _Watcher:
    """A thread that waits for changes of one folder, as long as it is that folder."""

    def __init__(
        self, path: Path, changed: Callable[[], None], *, recursive: bool, only: Path | None = None
    ) -> None:
        self.path, self.changed, self.recursive, self.only = path, changed, recursive, only
        self.blind = False
        self._identity: Identity | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def forget(self) -> None:
        """It may be another folder by now; the next `follow` begins anew."""
        self._identity = None

    def follow(self) -> None:
        identity = _identity(self.path)
        alive = self._thread is not None and self._thread.is_alive()
        if identity == self._identity and (alive or identity is None or self.blind):
            return
        self.stop()  # also where it is not there any more
        self._identity, self.blind = identity, False
        if identity is not None:
            self._stop = threading.Event()
            self._thread = threading.Thread(
                target=self._serve, args=(self._stop,), name="rota-jobs.d-watch", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        # Not joined: it sees the event within a step, and holds nothing that anybody waits for.
        self._stop.set()
        self._thread = None

    def _serve(self, stop: threading.Event) -> None:
        from watchfiles import watch

        try:
            blind = True  # what changed before the notifier was there, nobody told
            for changes in watch(
                self.path,
                watch_filter=self._concerns,
                debounce=GROUP_MS,
                step=STEP_MS,
                stop_event=stop,
                rust_timeout=ATTACHED_MS,
                yield_on_timeout=True,
                raise_interrupt=False,
                recursive=self.recursive,
                ignore_permission_denied=True,
            ):
                if changes or blind:
                    self.changed()
                blind = False
        except Exception as fault:  # no more watches to be had, or the folder went away just now
            if not stop.is_set() and self.path.exists():
                self.blind = True
                log.warning(
                    "%s cannot be watched (%s); it is looked at every second", self.path, fault
                )
        finally:
            if not stop.is_set():
                self.changed()  # whoever is told looks again, and follows

    def _concerns(self, change: object, path: str) -> bool:
        return self.only is None or path == str(self.only)


def _identity(path: Path) -> Identity | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return os.path.realpath(path), status.st_dev, status.st_ino
