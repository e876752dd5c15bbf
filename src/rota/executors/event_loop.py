"""An event loop in a single thread, for all `async def` handlers of a worker.

A handler on the loop costs a task, not a thread. A handler that blocks the loop delays only the
other async handlers: another thread renews the leases.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import thread as pools
from typing import Any

from rota.executors.attempt import conclude, perform_async
from rota.executors.context import Context
from rota.model.outcome import Outcome

CLOSE_SECONDS = 5.0
LOGGER = logging.getLogger(__name__)


class EventLoop:
    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pool = ThreadPoolExecutor()  # of `asyncio.to_thread`
        self._running: dict[asyncio.Task[None], Context] = {}
        self._closed = False

    def submit(
        self,
        call: Callable[[], Awaitable[Any]],
        context: Context,
        done: Callable[[Outcome], None],
    ) -> None:
        """Start a handler; `done` is called on the loop's thread, and must not block it."""
        with self._guard:
            if not self._closed:
                loop = self._start()
                if threading.current_thread() is self._thread:
                    self._begin(call, context, done)
                else:
                    loop.call_soon_threadsafe(self._begin, call, context, done)
                return
        context.stop("stopping")
        done(conclude(None, context))

    def run(self, call: Callable[[], Awaitable[Any]], context: Context) -> Outcome:
        """Run a handler and wait for its outcome."""
        ended = threading.Event()
        outcomes: list[Outcome] = []

        def done(outcome: Outcome) -> None:
            outcomes.append(outcome)
            ended.set()

        self.submit(call, context, done)
        ended.wait()
        return outcomes[0]

    def close(self, within: float = CLOSE_SECONDS) -> None:
        """Cancel running handlers, wait briefly for their clean-up, and end the thread."""
        with self._guard:
            self._closed = True
            loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(self._end(within), loop)
            if thread is not threading.current_thread():
                thread.join(within + 1)
                abandon_pool(self._pool)

    def _start(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()  # by the policy of the program
            self._loop.set_default_executor(self._pool)
            self._thread = threading.Thread(
                target=self._work, args=(self._loop,), name="rota-loop", daemon=True
            )
            self._thread.start()
        return self._loop

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        stopped = False
        while not stopped:
            try:
                loop.run_forever()
                stopped = True
            except BaseException:
                # SystemExit or KeyboardInterrupt in a task ends run_forever(): start it again.
                LOGGER.exception("a task that an async handler started tried to end the process")
        loop.close()
        abandon_pool(self._pool)

    # On the loop's thread

    def _begin(
        self,
        call: Callable[[], Awaitable[Any]],
        context: Context,
        done: Callable[[Outcome], None],
    ) -> None:
        async def attempt() -> None:
            outcome = await perform_async(call, context)
            try:
                done(conclude(outcome, context))
            except Exception:
                LOGGER.exception("run %s: its outcome could not be passed on", context.run_id)

        task = asyncio.get_running_loop().create_task(attempt())
        self._running[task] = context
        task.add_done_callback(lambda ended: self._running.pop(ended, None))

    async def _end(self, within: float) -> None:
        for context in list(self._running.values()):
            context.stop("stopping")
        if self._running:
            await asyncio.wait(self._running, timeout=within)
        # Tasks that handlers started and did not await.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=1)
        loop = asyncio.get_running_loop()
        await loop.shutdown_asyncgens()
        loop.stop()


def abandon_pool(pool: ThreadPoolExecutor) -> None:
    """Shut down a pool without waiting for its threads, now or at interpreter exit.

    Python joins the threads of every pool at exit: a call that never returns would block it."""
    pool.shutdown(wait=False, cancel_futures=True)
    joined_at_exit = getattr(pools, "_threads_queues", {})
    for thread in getattr(pool, "_threads", ()):
        joined_at_exit.pop(thread, None)
