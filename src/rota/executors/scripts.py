"""The texts of SQL jobs, as they were when their folder was last accepted.

A file in the folder may be half written or refused when a run starts; the run uses the last valid
version. The previous version is stored too: a run claimed a moment ago still belongs to it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from rota.model.job import Job
from rota.model.limits import KEPT_SCRIPTS_LENGTH

Script = tuple[str, str]  # (name, text)
VERSIONS = 2


class Scripts:
    """Scripts by job and version, up to KEPT_SCRIPTS_LENGTH characters in all.

    Scripts beyond that are read from their folder when they run."""

    def __init__(self) -> None:
        self._stored: dict[str, dict[str, tuple[Script, ...]]] = {}
        self._length = 0
        self._guard = threading.Lock()

    def keep(self, job: Job, scripts: Sequence[Script]) -> None:
        with self._guard:
            versions = self._stored.setdefault(job.name, {})
            self._drop(versions, job.version)
            while len(versions) >= VERSIONS:
                self._drop(versions, next(iter(versions)))
            size = _length(scripts)
            if scripts and self._length + size <= KEPT_SCRIPTS_LENGTH:
                versions[job.version] = tuple(scripts)
                self._length += size

    def of(self, job: Job) -> tuple[Script, ...]:
        """The scripts of this version, in order; empty if they are not stored."""
        with self._guard:
            return self._stored.get(job.name, {}).get(job.version, ())

    def forget(self, name: str) -> None:
        with self._guard:
            versions = self._stored.pop(name, {})
            for version in list(versions):
                self._drop(versions, version)

    def _drop(self, versions: dict[str, tuple[Script, ...]], version: str) -> None:
        self._length -= _length(versions.pop(version, ()))


def _length(scripts: Sequence[Script]) -> int:
    return sum(len(text) for _, text in scripts)
