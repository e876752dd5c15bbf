"""The Python executor: functions in a thread, an event loop or a child process.

| the job | runs |
|---|---|
| `isolation = "process"` | in a child process, which can be ended at any time |
| `async def` | on the shared event loop; `start` runs it without a thread |
| any other | in the calling thread; nothing can end it early |
"""

from __future__ import annotations

from collections.abc import Callable

from rota.executors.attempt import conclude, outcome_of_error, perform
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
        """Pass the same `texts` to the next executor to keep them when this one is closed."""
        self._registered: dict[str, Handler] = {}
        self._texts: Texts = {} if texts is None else texts
        self._loader = Loader()
        self._loop = EventLoop()
        self._children = Children(kill_after=kill_after)

    def spec_of(self, function: Function) -> dict[str, str]:
        """The address at which a child process or another worker finds this function."""
        return address_of(function)

    def register(self, name: str, function: Function) -> None:
        """Set or replace the function of a job for runs in this process."""
        self._registered[name] = handler_of(function)

    def keep(self, job: Job, source: bytes) -> None:
        """Use this text for runs of this job version, instead of reading the file again.

        So a file that is half written or was refused never runs."""
        texts = self._texts.get(job.name, {})
        # Runs claimed a moment ago still belong to the previous version.
        others = [(version, text) for version, text in texts.items() if version != job.version]
        self._texts[job.name] = {**dict(others[-1:]), job.version: source}

    def forget(self, name: str) -> None:
        """Drop the texts of a removed job; its runs may still end."""
        self._texts.pop(name, None)

    def check(self, job: Job) -> None:
        """Refuse a job that no worker could run."""
        if job.isolation == "process" or job.name not in self._registered:
            check_spec(job)

    def start(self, context: Context, done: Callable[[Outcome], None]) -> bool:
        """Start a run on the event loop; False if the caller must use `run`, in a thread.

        `done` is called at the end of the run, on the loop's thread."""
        handler = self._known(context.definition)
        if context.definition.isolation == "process" or handler is None or not handler.is_async:
            return False
        self._loop.submit(lambda: handler.call(context), context, done)
        return True

    def run(self, context: Context) -> Outcome:
        """Run to the end, in the way the job asks for."""
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
                return conclude(outcome_of_error(error, context.heard_stop), context)
        if handler.is_async:
            return self._loop.run(lambda: handler.call(context), context)
        return conclude(perform(handler, context), context)

    def retire(self) -> None:
        """Load all code again and use new children: the code has changed."""
        self._loader = Loader()
        self._children.retire()

    def close(self) -> None:
        """End what still runs, and every child."""
        self._loop.close()
        self._children.close()

    def _text(self, job: Job) -> bytes | None:
        texts = self._texts.get(job.name)
        return texts.get(job.version) if texts else None

    def _known(self, job: Job) -> Handler | None:
        return self._registered.get(job.name) or self._loader.known(job, job.version)
