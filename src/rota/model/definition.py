"""A definition: the job and schedule that a file of jobs.d declares, or the error of the file."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rota.model.job import RETIRED, Job
from rota.model.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """`schedule` None is a job on demand. With `job.error` the file is broken: no other field of
    the job is meaningful, and an earlier valid version stays in use. It does not where the job is
    `removed`: its job.toml, or every file to run, is gone."""

    job: Job
    schedule: Schedule | None = None
    warnings: tuple[str, ...] = ()
    source: bytes = b""  # the text of a Python file when it was inspected
    scripts: tuple[tuple[str, str], ...] = ()  # names and texts of SQL files when they were read
    # The file to show for it, and the line of the error if there is one.
    display_path: str = ""
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
    """A file job as it is in the store."""

    name: str
    version: str
    version_at: datetime
    error: str | None = None

    @property
    def retired(self) -> bool:
        return self.error is not None and self.error.startswith(RETIRED)
