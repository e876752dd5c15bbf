"""The shell executor: run a command to its end, and end all its processes.

A stop sends SIGTERM to the command and all processes it started, and SIGKILL after KILL_AFTER
seconds; after a tenth of that when the lease was lost, because another worker may have begun.
"""

from __future__ import annotations

import errno
import logging
import os
import threading

import msgspec

from rota.errors import Invalid
from rota.executors.attempt import conclude
from rota.executors.context import Context
from rota.executors.later import Timer
from rota.executors.processes import ending
from rota.executors.shell.command import Command, Ending
from rota.executors.shell.output import Budget, Stream
from rota.executors.shell.plan import Plan, plan
from rota.executors.shell.spec import check_spec
from rota.model.job import Job
from rota.model.outcome import Outcome

KILL_AFTER = 5.0
# A supervisor that has not carried out a stop after so many seconds is killed.
LATE_SECONDS = 2.0

_EXEC = {
    errno.ENOENT: "is not there; install it, name it by its path, or add its folder to PATH",
    errno.EACCES: "cannot be executed; `chmod +x` it",
    errno.ENOEXEC: "is no program; begin it with a line such as #!/bin/sh",
    errno.E2BIG: "has too long arguments or environment; pass large data by stdin",
}
_CWD = {
    errno.ENOENT: "is not there; make it, or correct cwd",
    errno.ENOTDIR: "is not a folder; correct cwd",
    errno.EACCES: "cannot be entered; change its mode, or cwd",
}


class ShellExecutor:
    name = "shell"

    def __init__(self, *, kill_after: float = KILL_AFTER) -> None:
        self.kill_after = kill_after
        self._guard = threading.Lock()
        self._running: set[Command] = set()
        self._timer = Timer("rota-shell")
        self._closed = False

    def check(self, job: Job) -> None:
        """Refuse a job that no worker could run.

        The program is looked up when it runs: it may be installed on another machine."""
        check_spec(job)

    def run(self, context: Context) -> Outcome:
        if context.stop_reason is not None:
            return conclude(None, context)
        try:
            planned = plan(context)
        except Invalid as fault:  # a retry would find the same spec
            return Outcome(kind="failed", error=str(fault), final=True)
        context.add_secrets(planned.secrets)
        for note in planned.notes:
            context.logger.warning("%s", note)
        return self._run(context, planned)

    def close(self) -> None:
        """End running commands."""
        with self._guard:
            self._closed = True
            running = list(self._running)
        for command in running:
            command.stop(0.0)
        self._timer.close()

    def _run(self, context: Context, planned: Plan) -> Outcome:
        try:
            command = Command(planned, kill_after=self.kill_after)
        except OSError as fault:
            return Outcome(kind="failed", error=f"no process could be started: {fault.strerror}")
        with self._guard:
            self._running.add(command)
            closed = self._closed
        if closed:
            context.stop("stopping")
        budget = Budget()
        out = Stream(context.logger, logging.INFO, context.secrets, budget)
        err = Stream(context.logger, logging.WARNING, context.secrets, budget)
        try:
            context.on_stop(lambda reason: self._stop(command, reason))
            ended = command.wait(out.feed, err.feed)
        finally:
            command.reap()
            with self._guard:
                self._running.discard(command)
        for stream in (out, err):
            stream.end()
        budget.end(context.logger)
        if ended.left:
            processes = (
                "a process that it left behind was"
                if ended.left == 1
                else (f"{ended.left} processes that it left behind were")
            )
            context.logger.warning("[%s ended]", processes)
        return self._outcome(context, planned, ended, out, err)

    def _stop(self, command: Command, reason: str) -> None:
        after = self.kill_after / 10 if reason == "lost" else self.kill_after
        command.stop(after)
        self._timer.call(after + LATE_SECONDS, command.kill)

    def _outcome(
        self, context: Context, planned: Plan, ended: Ending, out: Stream, err: Stream
    ) -> Outcome:
        if self._closed:
            context.stop("stopping")
        if ended.stopped or (ended.code is None and ended.fault is None and context.stop_reason):
            return conclude(None, context)
        program = os.path.basename(os.fsdecode(planned.argv[0]))
        if ended.fault is not None:
            return conclude(Outcome(kind="failed", error=_fault(planned, ended.fault)), context)
        if ended.code in planned.ok_codes:
            result = msgspec.json.encode({"exit_code": ended.code, "stdout": out.tail()}).decode()
            return conclude(Outcome(kind="succeeded", result=result), context)
        if ended.code is None:
            how = "the process that watches over it was killed; was the machine out of memory?"
        else:
            how = ending(ended.code)
        return conclude(Outcome(kind="failed", error=_error(program, how, err.tail())), context)


def _error(program: str, how: str, tail: str) -> str:
    """How the program ended, with the last line of its output; then the last lines."""
    lines = tail.splitlines()
    first = f"{program} {how}" + (f": {lines[-1].strip()}" if lines else "")
    return "\n".join([first, *(["", *lines] if len(lines) > 1 else [])])


def _fault(planned: Plan, fault: tuple[str, int]) -> str:
    step, number = fault
    if step == "cwd":
        return f"the folder {planned.folder} {_CWD.get(number, os.strerror(number))}"
    return f"the program {os.fsdecode(planned.argv[0])} {_EXEC.get(number, os.strerror(number))}"
