"""Texts of the last valid version of a SQL job whose files are broken now.

The process that read them has them in memory. While the files are broken, it also saves them in the
store: a process that starts later never read them, and must not run the broken files instead.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from rota.app import Rota
from rota.errors import Invalid
from rota.executors.scripts import Script
from rota.executors.sql import read_scripts, step_file
from rota.model.job import Job
from rota.storage import operations

log = logging.getLogger("rota.jobsd")

# The store deletes a text that no run refers to after a day, so save it again every hour.
SAVE_SECONDS = 3600.0


class LastValidTexts:
    """The saved texts of one folder of jobs."""

    def __init__(self, app: Rota) -> None:
        self.app = app
        self._saved: dict[str, float] = {}  # job name → when it was saved

    def find(self, job: Job) -> Sequence[Script]:
        """The stored texts of a job; Invalid if one of them is neither stored nor in its file."""
        return read_scripts(job, self._texts_of) if job.executor == "sql" else ()

    def _texts_of(self, hashes: Collection[str]) -> dict[str, str]:
        return self.app.storage.read(operations.texts_of, hashes)

    def save(self, broken: Collection[str], now: float) -> None:
        """Save in the store the texts this process has of jobs whose files are broken."""
        self._saved = {name: at for name, at in self._saved.items() if name in broken}
        for name in sorted(broken):
            if now - self._saved.get(name, float("-inf")) >= SAVE_SECONDS:
                self._save(name)
                self._saved[name] = now

    def _save(self, name: str) -> None:
        job, scripts = self.app.file_scripts(name)
        if job is None or not scripts:
            return
        try:
            kind = self.app.targets.find(job.spec.get("target")).kind
            files = [step_file(1, script, text, kind) for script, text in scripts]
        except Invalid as fault:  # a run of it fails with the same message
            log.debug("the texts of job %s are not saved: %s", name, fault)
            return
        self.app.storage.write(operations.keep_texts, files)
