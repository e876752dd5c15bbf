"""The Python executor: functions, in a thread, on the event loop, or in a child process.

| the job | runs |
|---|---|
| `isolation = "process"` | in a child process, which can be ended at any time |
| `async def` | on the one event loop; `start` takes it without a thread of its own |
| any other | in the calling thread; it ends when it ends, however late |
"""

from __future__ import annotations

from collections.abc import Callable

from rota.executors.attempt import conclude, judge_error, perform
from rota.executors.children import KILL_AFTER, Children
from rota.executors.context import Context
from rota.executors.event_loop import EventLoop
from rota.executors.loading import Loader, address_of, check_spec
from rota.executors.signatures import Function, Handler, handler_of
from rota.model.job import Job
from rota.model.outcome import Outcome

Texts = dict[str, dict[str, bytes]]  # of file jobs, by name and version


class PythonExecutor:
    name = "python"

    def __init__(self, *, kill_after: float = KILL_AFTER, texts: Texts | None = None) -> None:
        """`texts` are kept by whoever makes another executor after this one is closed."""
        self._registered: dict[str, Handler] = {}
        self._texts: Texts = {} if texts is None else texts
        self._loader = Loader()
        self._loop = EventLoop()
        self._children = Children(kill_after=kill_after)

    def spec_of(self, function: Function) -> dict[str, str]:
        """Where a child process or another worker finds this function."""
        return address_of(function)

    def register(self, name: str, function: Function) -> None:
        """Give a job its function, for runs in this process. A later one replaces it."""
        self._registered[name] = handler_of(function)

    def keep(self, job: Job, source: bytes) -> None:
        """Run this text for a file job of this version, whatever is in its file by now: a text
        that is being written, or that was refused, is never run."""
        kept = self._texts.get(job.name, {})
        # Runs that were taken a moment ago are still of the version before.
        latest = [*((version, text) for version, text in kept.items() if version != job.version)]
        self._texts[job.name] = {**dict(latest[-1:]), job.version: source}

    def forget(self, name: str) -> None:
        """The job is gone; its runs may still end."""
        self._texts.pop(name, None)

    def check(self, job: Job) -> None:
        """Refuse a job that no worker could run."""
        if job.isolation == "process" or job.name not in self._registered:
            check_spec(job)

    def start(self, context: Context, done: Callable[[Outcome], None]) -> bool:
        """Take a run that needs no thread: `done` is called at its end, on the loop's thread.
        False if `run` has to be called, in a thread."""
        handler = self._known(context.definition)
        if context.definition.isolation == "process" or handler is None or not handler.is_async:
            return False
        self._loop.submit(lambda: handler.call(context), context, done)
        return True

    def run(self, context: Context) -> Outcome:
        """Run to the end, wherever the job wants to run."""
        if context.stop_reason is not None:
            return conclude(None, context)
        job = context.definition
        if job.isolation == "process":
            return self._children.run(context, job.version, self._text(job))
        handler = self._known(job)
        if handler is None:
            try:
                handler = self._loader.load(job, job.version, self._text(job))
            except BaseException as error:  # importing a file runs it
                return conclude(judge_error(error, context.heard_stop), context)
        if handler.is_async:
            return self._loop.run(lambda: handler.call(context), context)
        return conclude(perform(handler, context), context)

    def retire(self) -> None:
        """Code has changed: start afresh with new children."""
        self._loader = Loader()
        self._children.retire()

    def close(self) -> None:
        """End what still runs, and every child."""
        self._loop.close()
        self._children.close()

    def _text(self, job: Job) -> bytes | None:
        kept = self._texts.get(job.name)
        return kept.get(job.version) if kept else None

    def _known(self, job: Job) -> Handler | None:
        return self._registered.get(job.name) or self._loader.known(job, job.version)
