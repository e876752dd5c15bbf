"""What `rota up` writes while it runs: one line as a run starts, one as it ends, to stderr.

For people, or as JSON, one object a line (docs/metrics.md). Whoever logs, secrets are taken out
here: a library that is used by a job knows nothing of them.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from rota.app import Rota
from rota.cli.output import clean, paint
from rota.cli.times import spent
from rota.errors import Invalid
from rota.flow.events import Listener, RunEvent
from rota.life import say_more
from rota.model.duration import format_duration
from rota.model.outcome import error_line
from rota.model.redact import redact_text

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
JOB_WIDTH = 24

_JOB = "rota.job."
_PLAIN = logging.Formatter()
log = logging.getLogger("rota.up")


def set_up_logging(level: str, *, as_json: bool, sibling: bool = False) -> None:
    """Before the app is imported, so that its own logging comes out the same way. A sibling sees
    the same edits in the folder as the process that started it, which tells them."""
    if level not in LEVELS:
        raise Invalid(f"log level {level!r} is unknown; use {', '.join(LEVELS)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else HumanLines())
    # On the handler: the loggers of runs hand on every level.
    handler.setLevel(level.upper())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("rota").setLevel(level.upper())
    if sibling and level == "info":
        logging.getLogger("rota.jobsd").setLevel(logging.WARNING)


def choose_format(name: str) -> str:
    if name not in FORMATS:
        raise Invalid(f"log format {name!r} is unknown; use {' or '.join(FORMATS)}")
    return name


class HumanLines(logging.Formatter):
    """`14:03:22  rollup  succeeded in 12 ms`; in a file with the whole instant."""

    width = 8

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).astimezone()
        on_terminal = sys.stderr.isatty()
        told = at.strftime("%H:%M:%S") if on_terminal else at.isoformat(timespec="milliseconds")
        who = f"{_source(record):<{self.width}}"
        text, colour = redact_text(record.getMessage()), getattr(record, "colour", None)
        if record.levelno >= logging.WARNING and colour is None:
            text, colour = f"{record.levelname.lower()}: {text}", _colour_of(record.levelno)
        # What follows a line end is set in, so that it cannot pass for a line of its own.
        text = paint(clean(text).replace("\n", "\n    "), colour, stream=sys.stderr)
        if (event := getattr(record, "run_event", None)) is not None:
            text += "  " + paint(event.run_id, "dim", stream=sys.stderr)
        if (error := _error_of(record)) is not None:
            text += "\n" + clean(error)
        return f"{paint(told, 'dim', stream=sys.stderr)}  {who}  {text}"


class JsonLines(logging.Formatter):
    """One object per line, every one with the same names."""

    def format(self, record: logging.LogRecord) -> str:
        event = getattr(record, "run_event", None)
        duration = None if event is None or event.duration_ms is None else event.duration_ms / 1000
        error = _error_of(record) if event is None else event.error
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", "log"),
            "source": _source(record),
            "job": _job(record),
            "run_id": getattr(record, "run_id", None),
            "attempt": getattr(record, "attempt", None),
            "duration": duration,
            "message": redact_text(record.getMessage()),
            "error": None if error is None else redact_text(error),
        }
        # ASCII: no control character, and no end of a line that only some readers take for one.
        return json.dumps(told)


class RunLines:
    """Listens to the app, writes its lines, and knows what is under way."""

    def __init__(self, app: Rota, *, sibling: bool = False) -> None:
        self.app, self.sibling = app, sibling
        HumanLines.width = max([8, *(min(JOB_WIDTH, len(job.name)) for job in app.jobs())])
        badly = {f"attempt.{how}": self._ended_badly(how, words) for how, words in _ENDS.items()}
        lines = {"attempt.started": self._started, "attempt.succeeded": self._ended, **badly}
        app.events.write_lines({**lines, "job.failed": self._dead}, say_more)
        # `app.run` says this once, as it begins to stop.
        logging.getLogger("rota").addFilter(self._explain_stopping)

    def _started(self, event: RunEvent) -> None:
        again = f", attempt {event.attempt}" if event.attempt > 1 else ""
        _say("attempt.started", event, f"started{again}")

    def _ended(self, event: RunEvent) -> None:
        _say("attempt.succeeded", event, f"succeeded{_duration(event)}", colour="green")

    def _ended_badly(self, how: str, words: str) -> Listener:
        def ended(event: RunEvent) -> None:
            error = error_line(event.error, limit=300)
            which = f"attempt {event.attempt}"
            told = f"{which} {words}{_duration(event)}"
            text = f"{told}: {error}" if error else told
            if how == "lost" and error:  # which says so itself
                text = f"{which}: {error.removeprefix(f'{which}: ')}"
            _say(f"attempt.{how}", event, text, colour="yellow")

        return ended

    def _dead(self, event: RunEvent) -> None:
        told = f"is dead; `rota show {event.run_id}` has the error"
        _say("job.failed", event, told, colour="red")

    def _explain_stopping(self, record: logging.LogRecord) -> bool:
        if record.msg != "stopping":
            return True
        under_way = self.app.under_way()
        record.msg = f"stopping; {self.waits_for(under_way)}"
        return bool(under_way) or not self.sibling  # the first one says that all stop

    def waits_for(self, under_way: Sequence[str]) -> str:
        """What a stop has to wait for, and for how long."""
        names, count = sorted(set(under_way)), len(under_way)
        if not count:
            return "nothing is under way"
        grace = self.app.settings.grace
        limit = "as long as it takes" if grace is None else f"up to {format_duration(grace)}"
        runs = "1 run" if count == 1 else f"{count} runs"
        return f"waits {limit} for {runs}: {_named(names)} (a second signal leaves at once)"


_ENDS = {
    "failed": "failed",
    "timed_out": "timed out",
    "lost": "was lost",
    "cancelled": "was cancelled",
    "released": "was let go",
}


def _say(name: str, event: RunEvent, text: str, colour: str | None = None) -> None:
    told = {
        "event": name, "run_event": event, "job": event.name, "run_id": event.run_id,
        "attempt": event.attempt, "colour": colour,
    }  # fmt: skip
    log.info("%s", text, extra=told)


def _error_of(record: logging.LogRecord) -> str | None:
    """The traceback that a record brings along, if it does."""
    if record.exc_info:
        return redact_text(_PLAIN.formatException(record.exc_info))
    return None if record.exc_text is None else redact_text(record.exc_text)


def _duration(event: RunEvent) -> str:
    if event.duration_ms is None:
        return ""
    return f" in {spent(timedelta(milliseconds=event.duration_ms))}"


def _job(record: logging.LogRecord) -> str | None:
    job = getattr(record, "job", None)
    if isinstance(job, str):
        return job
    return record.name.removeprefix(_JOB) if record.name.startswith(_JOB) else None


def _source(record: logging.LogRecord) -> str:
    if (job := _job(record)) is not None:
        return job
    return "rota" if record.name.partition(".")[0] == "rota" else record.name


def _colour_of(level: int) -> str:
    return "red" if level >= logging.ERROR else "yellow"


def _named(names: Iterable[str], most: int = 5) -> str:
    told = list(names)
    return ", ".join(told[:most]) + (f" and {len(told) - most} more" if len(told) > most else "")
