"""The texts of SQL jobs as their folder was taken, kept until it is taken again.

What lies in the folder when a run starts may be half written, or have been refused: it is the last
good version that runs. Versions are told apart, and the one before is kept too: a run that was
claimed a moment ago is still of it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from rota.model.job import Job
from rota.model.limits import KEPT_SCRIPTS_LENGTH

Script = tuple[str, str]  # its name, its text
VERSIONS = 2


class Scripts:
    """By job and version. What would be more than KEPT_SCRIPTS_LENGTH in all is not kept: it is
    read from its folder when it runs."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, tuple[Script, ...]]] = {}
        self._length = 0
        self._guard = threading.Lock()

    def keep(self, job: Job, scripts: Sequence[Script]) -> None:
        with self._guard:
            versions = self._kept.setdefault(job.name, {})
            self._drop(versions, job.version)
            while len(versions) >= VERSIONS:
                self._drop(versions, next(iter(versions)))
            size = _length(scripts)
            if scripts and self._length + size <= KEPT_SCRIPTS_LENGTH:
                versions[job.version] = tuple(scripts)
                self._length += size

    def of(self, job: Job) -> tuple[Script, ...]:
        """In order; empty if they are not kept."""
        with self._guard:
            return self._kept.get(job.name, {}).get(job.version, ())

    def forget(self, name: str) -> None:
        with self._guard:
            versions = self._kept.pop(name, {})
            for version in list(versions):
                self._drop(versions, version)

    def _drop(self, versions: dict[str, tuple[Script, ...]], version: str) -> None:
        self._length -= _length(versions.pop(version, ()))


def _length(scripts: Sequence[Script]) -> int:
    return sum(len(text) for _, text in scripts)
