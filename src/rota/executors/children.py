"""Child processes for handlers: warm, reused, and ended with everything they started.

A call takes an idle child or starts one, so there are never more than calls at a time. A child is
used again unless it loaded another version of the job, its handler left something behind that
cannot be put back, it has served CALLS, or it was idle for IDLE_SECONDS.

How a call is stopped:

    cancelled, stopping   `ctx.cancelled` becomes true; SIGTERM after `kill_after`, SIGKILL after
                          another `kill_after`
    timed_out             the same, with SIGTERM at once
    lost                  the same, with SIGKILL a tenth of `kill_after` after SIGTERM: another
                          worker may have begun

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
from rota.executors.later import Later
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
        self._later = Later("rota-children")
        self._sweeping = self._closed = False

    def run(self, context: Context, version: str, source: bytes | None = None) -> Outcome:
        """Run the context's job in a child, until it ends or is ended. `source` is the text of
        its file, if it is known here."""
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
            # It was killed while it was idle, and has not begun. A fresh one is not tried again.
            self._drop(child)

    def retire(self) -> None:
        """Use no child again that has started before now: the code has changed."""
        with self._guard:
            self._outdated |= self._busy
            idle, self._idle = self._idle, []
        for child, _ in idle:
            self._dismiss(child)

    def close(self) -> None:
        """End all children; calls that still run are ended too."""
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
        self._later.close()

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
        """One that knows the job already, or else the one that was used last."""
        if not self._idle:
            return None
        knowing = [place for place, (child, _) in enumerate(self._idle) if job in child.loaded]
        return self._idle.pop(knowing[-1] if knowing else -1)[0]

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
        except BaseException:  # of the worker's port: nobody would collect this child
            self._drop(child)
            raise

    def _ended(self, child: ChildProcess, context: Context, output: Output) -> Outcome | None:
        error = child.finish(output)
        if self._closed:
            context.stop("stopping")
        return None if context.stop_reason else Outcome(kind="failed", error=error)

    def _stop(self, child: ChildProcess, number: int, reason: str) -> None:
        child.tell(Stop(call=number, reason=reason))
        asked = self.kill_after if reason in ("cancelled", "stopping") else 0.0
        told = self.kill_after / 10 if reason == "lost" else self.kill_after
        if asked:
            self._later.call(asked, lambda: child.send_signal(signal.SIGTERM, number))
        else:
            child.send_signal(signal.SIGTERM, number)
        self._later.call(asked + told, lambda: child.send_signal(signal.SIGKILL, number))

    def _give_back(self, child: ChildProcess, done: Done | None, job: str, version: str) -> None:
        child.rest()
        if done is None or done.strange or child.signalled:
            if done is not None and done.strange:
                LOGGER.info("job %s: its child process is not used again: %s", job, done.strange)
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
            self._later.call(self.idle_seconds, self._sweep)

    def _sweep(self) -> None:
        """Dismiss those that were idle for long, and look again when the next one may be."""
        now = time.monotonic()
        with self._guard:
            tired = [child for child, since in self._idle if since + self.idle_seconds <= now]
            self._idle = self._idle[len(tired) :]
            self._sweeping = bool(self._idle)
            wait = self._idle[0][1] + self.idle_seconds - now if self._idle else 0.0
        for child in tired:
            self._dismiss(child)
        if self._sweeping:
            self._later.call(wait, self._sweep)

    def _dismiss(self, child: ChildProcess) -> None:
        """Let it exit by itself, in bounded time."""
        with self._guard:
            self._leaving.add(child)
        child.tell(End())
        # Once this pool is closed nobody comes later, and nothing is left to wait for.
        if not self._later.call(self.kill_after, lambda: self._drop(child)):
            self._drop(child)

    def _drop(self, child: ChildProcess) -> None:
        child.bury()
        with self._guard:
            self._busy.discard(child)
            self._leaving.discard(child)
            self._outdated.discard(child)
