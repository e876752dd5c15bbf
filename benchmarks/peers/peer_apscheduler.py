"""APScheduler 3: how punctual it is in memory, and a herd of schedules in a database."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from importlib.metadata import version

from apscheduler.executors.base import BaseExecutor
from apscheduler.job import Job
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from common import Timed, main, say


def tick() -> None:
    """Due at whole seconds."""
    late = time.time() % 1
    say("late", late * 1000)


def noop() -> None: ...


class Counting(BaseExecutor):
    """Takes every run and does nothing with it: only the scheduler is measured."""

    def __init__(self, awaited: int) -> None:
        super().__init__()
        self.awaited, self.all_there = awaited, threading.Event()

    def _do_submit_job(self, job: Job, run_times: list[datetime]) -> None:
        self._run_job_success(job.id, [])
        self.awaited -= 1
        if not self.awaited:
            self.all_there.set()


def setup(url: str) -> None:
    """The job store makes its table itself."""


def due(url: str) -> None:
    scheduler = BackgroundScheduler(timezone=UTC)
    scheduler.add_job(tick, "cron", second="*")
    scheduler.start()
    threading.Event().wait()


def herd(url: str, count: int) -> None:
    counting = Counting(count)
    store = SQLAlchemyJobStore(url=url.replace("postgresql:", "postgresql+psycopg:"))
    scheduler = BackgroundScheduler(
        timezone=UTC, jobstores={"default": store}, executors={"default": counting}
    )
    scheduler.start(paused=True)
    now = datetime.now(UTC)
    for _ in range(count):
        scheduler.add_job(
            noop, "cron", minute="*", next_run_time=now, misfire_grace_time=None, coalesce=True
        )
    with Timed():
        scheduler.resume()
        counting.all_there.wait()


if __name__ == "__main__":
    main(
        {
            "version": lambda: say("version", version("apscheduler")),
            **{verb.__name__: verb for verb in (setup, due, herd)},
        }
    )
