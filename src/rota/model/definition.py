"""A definition: what a file of jobs.d says, as a job and its schedule, or why it cannot be one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rota.model.job import RETIRED, Job
from rota.model.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """`schedule` None is a job on demand. `job.error` says that the file cannot be understood:
    then nothing else of the job means anything, and an earlier good version stays. It does not
    where the job is `removed`: there is nothing left that says when, or nothing to run."""

    job: Job
    schedule: Schedule | None = None
    warnings: tuple[str, ...] = ()
    source: bytes = b""  # the text of a Python file, as it was looked at
    scripts: tuple[tuple[str, str], ...] = ()  # names and texts of SQL files, as they were read
    # Where to look: the file as people name it, and the line where the error is, if there is one.
    place: str = ""
    line: int | None = None
    removed: bool = False

    @property
    def name(self) -> str:
        return self.job.name

    @property
    def error(self) -> str | None:
        return self.job.error


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """What the store knows of a file job."""

    name: str
    version: str
    version_at: datetime
    error: str | None = None

    @property
    def retired(self) -> bool:
        return self.error is not None and self.error.startswith(RETIRED)
