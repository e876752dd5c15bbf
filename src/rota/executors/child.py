"""A child process: runs calls for its worker, one after another.

The main thread runs handlers. A second thread reads messages, so that a stop arrives while a
handler runs. It also notices when the worker ends, and then kills this process and all that its
handlers started. SIGTERM raises `Stopped` in the handler; SIGKILL follows if that does not end it.

The import of this file is the start time of every child: keep its imports few.
"""

from __future__ import annotations

import faulthandler
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from types import FrameType
from typing import Any, NoReturn

import msgspec

from rota import errors
from rota.executors.attempt import Stopped, find_and_perform
from rota.executors.context import Context
from rota.executors.folders import Folders
from rota.executors.loading import Loader
from rota.executors.messages import (
    CHANNEL_LOST,
    FROM_WORKER,
    PIECE,
    Answer,
    Ask,
    Begun,
    Call,
    Done,
    End,
    Examine,
    Examined,
    Hello,
    Lines,
    Message,
    Ready,
    Stop,
    encode,
)
from rota.executors.processes import adopt_orphans, die_with, signal_tree
from rota.executors.signatures import Handler
from rota.executors.surroundings import ProcessState
from rota.model.outcome import Outcome
from rota.model.redact import secret_values
from rota.model.secrets import know

PROGRESS_SECONDS = 0.2


class Descriptor:
    """A file descriptor of ours.

    A handler may close it and open another file as that number."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._identity = self._stat()

    def _stat(self) -> tuple[int, int]:
        status = os.fstat(self.number)
        return status.st_dev, status.st_ino

    @property
    def intact(self) -> bool:
        try:
            return self._stat() == self._identity
        except OSError:
            return False

    def write(self, data: bytes) -> None:
        if not self.intact:
            raise BrokenPipeError("the descriptor was closed")
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self.number, rest) :]

    def close(self) -> None:
        if self.intact:
            os.close(self.number)


class Child:
    def __init__(self, channel: int, parent_pipe: int) -> None:
        self.pid = os.getpid()
        self.channel, self.parent_pipe = Descriptor(channel), Descriptor(parent_pipe)
        self.standard = [Descriptor(number) for number in range(3)]
        self.log = Descriptor(os.dup(1))
        self.mark = b""
        self.calls: SimpleQueue[Call | Examine | None] = SimpleQueue()
        self.answers: dict[int, SimpleQueue[Answer]] = {}
        self.numbers = itertools.count(1)
        self.sending = threading.Lock()
        self.masks = threading.local()
        self.loader = Loader()
        self.folders = Folders()
        self.progress = Progress(self.send_progress)
        self.call = 0
        self.context: Context | None = None
        self.stop: Stop | None = None
        self.idle = self.stoppable = False

    # The main thread

    def serve(self) -> None:
        signal.signal(signal.SIGTERM, self.terminate)
        os.register_at_fork(
            before=self.before_fork, after_in_parent=self.after_fork, after_in_child=self.forked
        )
        threading.Thread(target=self.listen, name="rota-listen", daemon=True).start()
        self.send(Ready())
        while (call := self.next_call()) is not None:
            self.send(self.run(call) if isinstance(call, Call) else self.examine(call))

    def next_call(self) -> Call | Examine | None:
        self.idle = True
        try:
            return self.calls.get()
        finally:
            self.idle = False

    def run(self, call: Call) -> Done:
        self.send(Begun())
        context = Context(
            definition=call.definition,
            run_id=call.run_id,
            attempt=call.attempt,
            args=call.args,
            scheduled_at=call.scheduled_at,
            queue=call.queue,
            port=partial(self.port, call.number),
            target=call.target,
            timeout=call.timeout,
            missed_count=call.missed_count,
            correlation_id=call.correlation_id,
            trace=call.trace,
        )
        context.in_child = True
        # The worker passes records to its own logging; here they would be logged twice.
        context.logger.propagate = False
        state = ProcessState.capture()

        def find() -> Handler:
            nonlocal state
            handler = self.loader.known(call.definition, call.version)
            if handler is None:
                handler = self.loader.load(call.definition, call.version, call.source)
                state = ProcessState.capture()  # changes made by an import remain
                know(secret_values(os.environ))
            return handler

        self.progress = Progress(self.send_progress)
        self.call, self.context, self.stoppable = call.number, context, True
        try:
            self.apply_stop()  # the stop may have arrived before the call began
            with self.loader.around(call.definition):
                outcome = find_and_perform(find, context)
        except Stopped:  # SIGTERM arrived after the handler, while its outcome was made
            outcome = None
        finally:
            self.stoppable = False
        if os.getpid() != self.pid:
            end_fork(outcome)
        if outcome is not None and outcome.has_text:
            outcome = outcome.redacted(context.secrets)  # here: a message has its limit too
        self.progress.flush()
        self.call, self.context = 0, None
        unfit_reason = self.restore(state)
        return Done(number=call.number, outcome=outcome, unfit_reason=unfit_reason)

    def examine(self, file: Examine) -> Examined:
        """Import a file and undo all changes, except the packages that it imported."""
        from rota.executors.examine import examine

        self.send(Begun())
        state, path, modules = ProcessState.capture(), list(sys.path), dict(sys.modules)
        folder = self.folders.of(file.path)
        folder.changed()
        self.stoppable = True
        try:
            with self.folders.inside(folder):
                facts = examine(file.path, file.source, folder)
        finally:
            self.stoppable = False
        if os.getpid() != self.pid:
            end_fork(None)
        sys.path[:] = path
        sys.modules.update(modules)
        return Examined(number=file.number, facts=facts, unfit_reason=self.restore(state))

    def restore(self, state: ProcessState) -> str | None:
        unfit_reason = state.restore()
        descriptors = (*self.standard, self.log, self.parent_pipe)
        if not all(descriptor.intact for descriptor in descriptors):
            unfit_reason = "its standard input or output was closed or replaced"
        return unfit_reason

    def terminate(self, number: int, frame: FrameType | None) -> None:
        if self.stoppable:
            self.stoppable = False  # once: a second signal must not interrupt the clean-up
            raise Stopped
        if self.idle:
            raise SystemExit

    # Requests of a context, from any thread

    def port(self, call: int, request: str, params: dict[str, Any]) -> Any:
        if os.getpid() != self.pid:
            raise errors.RotaError("ctx works in the process it was given to, not in a fork of it")
        if call != self.call:
            raise errors.RotaError("ctx is not usable any more: its attempt has ended")
        match request:
            case "log":
                self.write_log(params)
            case "progress":
                self.progress.update(params)
            case _:
                return self.ask(request, params)

    def write_log(self, record: dict[str, Any]) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the handler may have put anything there
                stream.flush()
        self.log.write(self.mark + msgspec.json.encode(record) + b"\n")

    def send_progress(self, params: dict[str, Any]) -> None:
        self.send(Ask(number=0, request="progress", params=params))

    def ask(self, request: str, params: dict[str, Any]) -> Any:
        number = next(self.numbers)
        line = encode(Ask(number=number, request=request, params=params))
        self.answers[number] = SimpleQueue()
        self.send_line(line)
        answer = self.answers[number].get()
        del self.answers[number]
        if answer.error is not None:
            kind, text = answer.error
            raise getattr(errors, kind, errors.RotaError)(text)
        return answer.value

    def send(self, message: Message) -> None:
        self.send_line(encode(message))

    def send_line(self, line: bytes) -> None:
        with self.sending:
            try:
                self.channel.write(line)
            except OSError:
                os._exit(CHANNEL_LOST)

    # The listening thread

    def listen(self) -> None:
        lines = Lines()
        try:
            while self.channel.intact and (piece := os.read(self.channel.number, PIECE)):
                for line in lines.feed(piece):
                    self.receive(FROM_WORKER.decode(line))
        except OSError:
            pass
        except msgspec.DecodeError:
            os._exit(CHANNEL_LOST)  # incomplete: the handler has read from the channel
        if not self.channel.intact:
            os._exit(CHANNEL_LOST)
        signal_tree(self.pid, signal.SIGKILL)  # the worker has ended

    def receive(self, message: Message) -> None:
        match message:
            case Hello():
                sys.path[:], sys.argv[:] = message.path, message.argv
                self.mark = message.mark.encode()
            case Call() | Examine():
                self.calls.put(message)
            case Answer():
                self.answers[message.number].put(message)
            case Stop():
                self.stop = message
                self.apply_stop()
            case End():
                self.calls.put(None)

    def apply_stop(self) -> None:
        stop, context = self.stop, self.context
        if stop is not None and context is not None and stop.call == self.call:
            with suppress(Exception):  # a callback that the handler gave to `ctx.on_stop` failed
                context.stop(stop.reason)

    # When a handler forks, as multiprocessing does

    def before_fork(self) -> None:
        """Block SIGTERM: Python loses a signal that arrives right after the fork."""
        self.masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def after_fork(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self.masks.before)

    def forked(self) -> None:
        """In the fork: close the channel, and let SIGTERM end the process."""
        self.channel.close()
        self.parent_pipe.close()
        if signal.getsignal(signal.SIGTERM) == self.terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.after_fork()


class Progress:
    """Sends the latest progress, at most five times a second; the final value always."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self._guard = threading.Lock()
        self._pending: dict[str, Any] | None = None
        self._timer: threading.Timer | None = None
        self._sent_at = float("-inf")

    def update(self, params: dict[str, Any]) -> None:
        wait = self._sent_at + PROGRESS_SECONDS - time.monotonic()
        with self._guard:
            self._pending = params
            if wait > 0:
                if self._timer is None:
                    self._timer = threading.Timer(wait, self.flush)
                    self._timer.daemon = True
                    self._timer.start()
                return
        self.flush()

    def flush(self) -> None:
        with self._guard:
            params, self._pending = self._pending, None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if params is not None:
                self._sent_at = time.monotonic()
                self._send(params)


def end_fork(outcome: Outcome | None) -> NoReturn:
    """End a fork of a handler: only the original process answers the call."""
    if outcome is not None and outcome.error is not None:
        print(outcome.error, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(1 if outcome is not None and outcome.error else 0)


def main(channel: int, parent_pipe: int) -> None:
    if os.getpgrp() != os.getpid():
        sys.exit("rota.executors.child is started by a worker, as the leader of its own session")
    faulthandler.enable()  # prints the Python traceback of a crash in C
    die_with(parent_pipe)
    adopt_orphans()
    for descriptor in (channel, parent_pipe):
        os.set_inheritable(descriptor, False)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(  # type: ignore[union-attr]
            encoding="utf-8", errors="backslashreplace", line_buffering=True
        )
    know(secret_values(os.environ))
    Child(channel, parent_pipe).serve()
