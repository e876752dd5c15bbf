"""A pool of child processes for handlers.

A call takes an idle child or starts one, so there are never more children than concurrent calls.
Children are ended together with all processes that their handlers started. A child is reused unless
it has loaded another version of the job, its handler left state behind that cannot be restored, it
has served CALLS, or it was idle for IDLE_SECONDS.

How a call is stopped:

    cancelled, stopping   `ctx.cancelled` becomes true; SIGTERM after `kill_after`, SIGKILL after
                          another `kill_after`
    timed_out             the same, with SIGTERM at once
    lost                  SIGTERM at once, SIGKILL after a tenth of `kill_after`: another worker
                          may have begun

Signals go to the child's process group and to descendants outside of it. SIGTERM raises an
exception in the handler, so that `finally` blocks run. A child that was signalled is not reused.
"""

from __future__ import annotations

import logging
import signal
import threading
import time

from rota.executors.attempt import conclude
from rota.executors.child_process import ChildProcess
from rota.executors.context import Context
from rota.executors.later import Timer
from rota.executors.messages import Call, Done, End, Stop
from rota.executors.output import Output
from rota.executors.processes import has_exited
from rota.model.outcome import Outcome

CALLS = 1_000
IDLE_SECONDS = 60.0
KILL_AFTER = 2.0
LOGGER = logging.getLogger(__name__)


class Children:
    def __init__(
        self,
        *,
        kill_after: float = KILL_AFTER,
        idle_seconds: float = IDLE_SECONDS,
        calls: int = CALLS,
    ) -> None:
        self.kill_after, self.idle_seconds, self.calls = kill_after, idle_seconds, calls
        self._guard = threading.Lock()
        self._idle: list[tuple[ChildProcess, float]] = []  # longest idle first
        self._busy: set[ChildProcess] = set()
        self._leaving: set[ChildProcess] = set()
        self._outdated: set[ChildProcess] = set()
        self._timer = Timer("rota-children")
        self._sweeping = self._closed = False

    def run(self, context: Context, version: str, source: bytes | None = None) -> Outcome:
        """Run the context's job in a child, until it ends or is stopped.

        `source` is the text of its file; None to read the file in the child."""
        while True:
            try:
                child = self._take(context.job, version)
            except OSError as error:
                return Outcome(kind="failed", error=f"child process could not start: {error}")
            if child is None:
                context.stop("stopping")
                return conclude(None, context)
            output = Output(context.logger, child.mark, context.secrets)
            done = self._call(child, context, version, source, output)
            if done is not None or child.begun or child.calls == 1:
                outcome = self._ended(child, context, output) if done is None else done.outcome
                output.end()
                self._give_back(child, done, context.job, version)
                return conclude(outcome, context)
            # It was killed while idle, before it began the call: try another child. A new
            # child is not replaced, so this ends.
            self._drop(child)

    def retire(self) -> None:
        """Do not reuse any child started so far: the code has changed."""
        with self._guard:
            self._outdated |= self._busy
            idle, self._idle = self._idle, []
        for child, _ in idle:
            self._dismiss(child)

    def close(self) -> None:
        """End all children and the calls that they run."""
        with self._guard:
            self._closed = True
            idle, self._idle = self._idle, []
            busy = list(self._busy)
        for child in busy:
            child.send_signal(signal.SIGKILL, child.calls)
        for child, _ in idle:
            self._dismiss(child)
        until = time.monotonic() + self.kill_after
        for child in list(self._leaving):
            has_exited(child.pid, within=until - time.monotonic())
            self._drop(child)
        self._timer.close()

    def _take(self, job: str, version: str) -> ChildProcess | None:
        with self._guard:
            if self._closed:
                return None
            others = [child for child, _ in self._idle if child.loaded.get(job, version) != version]
            self._idle = [(child, since) for child, since in self._idle if child not in others]
            child = self._pick(job)
            if child is not None:
                self._busy.add(child)
        for other in others:
            self._dismiss(other)
        return child or self._start()

    def _start(self) -> ChildProcess | None:
        child = ChildProcess()
        with self._guard:
            self._busy.add(child)
            if not self._closed:
                return child
        self._drop(child)
        return None

    def _pick(self, job: str) -> ChildProcess | None:
        """The idle child used last, preferably one that has loaded the job."""
        if not self._idle:
            return None
        loaded = [index for index, (child, _) in enumerate(self._idle) if job in child.loaded]
        return self._idle.pop(loaded[-1] if loaded else -1)[0]

    def _call(
        self,
        child: ChildProcess,
        context: Context,
        version: str,
        source: bytes | None,
        output: Output,
    ) -> Done | None:
        child.calls += 1
        child.working, number = True, child.calls
        context.on_stop(lambda reason: self._stop(child, number, reason))
        call = Call(
            number=number,
            definition=context.definition,
            version=version,
            run_id=context.run_id,
            attempt=context.attempt,
            args=context.args,
            scheduled_at=context.scheduled_at,
            queue=context.queue,
            target=context.target.url,
            timeout=context.timeout,
            missed_count=context.missed_count,
            correlation_id=context.correlation_id,
            trace=context.trace,
            source=source if child.loaded.get(context.job) != version else None,
        )
        try:
            return child.call(call, context, output)
        except BaseException:  # raised by the worker's port; reap the child
            self._drop(child)
            raise

    def _ended(self, child: ChildProcess, context: Context, output: Output) -> Outcome | None:
        error = child.finish(output)
        if self._closed:
            context.stop("stopping")
        return None if context.stop_reason else Outcome(kind="failed", error=error)

    def _stop(self, child: ChildProcess, number: int, reason: str) -> None:
        child.send_nowait(Stop(call=number, reason=reason))
        term_after = self.kill_after if reason in ("cancelled", "stopping") else 0.0
        kill_after = self.kill_after / 10 if reason == "lost" else self.kill_after
        if term_after:
            self._timer.call(term_after, lambda: child.send_signal(signal.SIGTERM, number))
        else:
            child.send_signal(signal.SIGTERM, number)
        self._timer.call(term_after + kill_after, lambda: child.send_signal(signal.SIGKILL, number))

    def _give_back(self, child: ChildProcess, done: Done | None, job: str, version: str) -> None:
        child.end_call()
        unfit_reason = None if done is None else done.unfit_reason
        if done is None or unfit_reason or child.signalled:
            if unfit_reason:
                LOGGER.info("job %s: its child process is not used again: %s", job, unfit_reason)
            self._drop(child)
            return
        child.loaded[job] = version
        with self._guard:
            self._busy.discard(child)
            keep = not self._closed and child not in self._outdated and child.calls < self.calls
            self._outdated.discard(child)
            if keep:
                self._idle.append((child, time.monotonic()))
                sweep, self._sweeping = not self._sweeping, True
        if not keep:
            self._dismiss(child)
        elif sweep:
            self._timer.call(self.idle_seconds, self._sweep)

    def _sweep(self) -> None:
        """Dismiss children that were idle for long, and schedule the next sweep."""
        now = time.monotonic()
        with self._guard:
            expired = [child for child, since in self._idle if since + self.idle_seconds <= now]
            self._idle = self._idle[len(expired) :]
            self._sweeping = bool(self._idle)
            wait = self._idle[0][1] + self.idle_seconds - now if self._idle else 0.0
        for child in expired:
            self._dismiss(child)
        if self._sweeping:
            self._timer.call(wait, self._sweep)

    def _dismiss(self, child: ChildProcess) -> None:
        """Let a child exit by itself, and kill it after `kill_after`."""
        with self._guard:
            self._leaving.add(child)
        child.send_nowait(End())
        # A closed timer makes no more calls: kill the child now.
        if not self._timer.call(self.kill_after, lambda: self._drop(child)):
            self._drop(child)

    def _drop(self, child: ChildProcess) -> None:
        child.reap()
        with self._guard:
            self._busy.discard(child)
            self._leaving.discard(child)
            self._outdated.discard(child)
