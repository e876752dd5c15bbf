"""Notify on changes in the folder of jobs. Notifications are hints: a survey reads the folder.

The notifier does not see that its folder is replaced by another one of the same name. So the parent
folder is watched too, for this entry, and the watch moves to the new folder. Where watching is
impossible, the folder is polled.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger("rota.jobsd")

# Changes are reported in groups. The caller waits until the files are stable.
GROUP_MS, STEP_MS = 200, 100
ATTACHED_MS = 1_000  # the notifier reports after this time without a change: then it is attached
RESCAN_SECONDS = 10.0
BLIND_RESCAN_SECONDS = 1.0

Identity = tuple[str, int, int]


class Watch:
    def __init__(self, root: Path, changed: Callable[[], None]) -> None:
        self.root, self.changed = root.absolute(), changed
        self._folder = _Watcher(self.root, changed, recursive=True)
        self._above = _Watcher(self.root.parent, self._replaced, recursive=False, only=self.root)

    def _replaced(self) -> None:
        # The inode number does not prove it is the same folder: numbers are reused.
        self._folder.forget()
        self.changed()

    def follow(self) -> None:
        """Watch the folder that has this path now; cheap if it is watched already."""
        self._above.follow()
        self._folder.follow()

    @property
    def rescan_seconds(self) -> float:
        """Seconds between surveys without a notification: changes may have been missed."""
        return BLIND_RESCAN_SECONDS if self._folder.blind else RESCAN_SECONDS

    def stop(self) -> None:
        self._above.stop()
        self._folder.stop()


class _Watcher:
    """A thread that waits for changes of one folder until the folder is replaced."""

    def __init__(
        self, path: Path, changed: Callable[[], None], *, recursive: bool, only: Path | None = None
    ) -> None:
        self.path, self.changed, self.recursive, self.only = path, changed, recursive, only
        self.blind = False
        self._identity: Identity | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def forget(self) -> None:
        """Forget the folder's identity: the next `follow` starts a new watch."""
        self._identity = None

    def follow(self) -> None:
        identity = _identity(self.path)
        alive = self._thread is not None and self._thread.is_alive()
        if identity == self._identity and (alive or identity is None or self.blind):
            return
        self.stop()  # also if the folder is gone
        self._identity, self.blind = identity, False
        if identity is not None:
            self._stop = threading.Event()
            self._thread = threading.Thread(
                target=self._serve, args=(self._stop,), name="rota-jobs.d-watch", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        # Not joined: the thread sees the event within STEP_MS, and no other thread waits for it.
        self._stop.set()
        self._thread = None

    def _serve(self, stop: threading.Event) -> None:
        from watchfiles import watch

        try:
            blind = True  # changes before the notifier was attached are not reported
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
        except Exception as fault:  # out of watches, or the folder is gone
            if not stop.is_set() and self.path.exists():
                self.blind = True
                log.warning(
                    "%s cannot be watched (%s); it is read every second instead", self.path, fault
                )
        finally:
            if not stop.is_set():
                self.changed()  # the callback surveys the folder and calls `follow`

    def _concerns(self, change: object, path: str) -> bool:
        return self.only is None or path == str(self.only)


def _identity(path: Path) -> Identity | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return os.path.realpath(path), status.st_dev, status.st_ino
