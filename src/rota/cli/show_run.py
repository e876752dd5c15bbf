"""Show a run: its columns, its attempts, the end of its log."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from rota.cli.options import Where
from rota.cli.output import plain, say, say_fields, say_heading, say_json, say_table
from rota.cli.records import run_record
from rota.cli.results import is_answer, say_result
from rota.cli.times import took, when, zone_name
from rota.flow.control import Control
from rota.model.outcome import error_line
from rota.model.run import Run

LOG_TAIL = 20


def show_run(control: Control, run: Run, now: datetime, where: Where) -> None:
    attempts, lines = control.attempts(run.id), control.log_tail(run.id, limit=LOG_TAIL)
    steps = control.steps(run.id)
    if where.json:
        told = {"run": run_record(run), "attempts": attempts, "steps": steps, "logs": lines}
        return say_json(told)
    record = run_record(run)
    say_fields(
        {
            "run": run.id,
            "job": run.job,
            "state": run.state,
            "reason": run.reason,
            "queue": run.queue,
            "priority": run.priority or None,
            "due": when(run.due_at, now, named=True),
            "started": None if run.started_at is None else when(run.started_at, now, named=True),
            "finished": None if run.finished_at is None else when(run.finished_at, now, named=True),
            "took": None if run.finished_at is None else took(run.started_at, run.finished_at),
            "attempt": f"{run.attempt} ({run.failures} of at most {run.max_attempts} failures)",
            "lost": run.lost or None,
            "redone": run.redo or None,
            "occurrence": None if run.occurrence is None else plain(run.occurrence),
            "stands for": f"{run.missed_count} occurrences" if run.missed_count > 1 else None,
            "retry of": run.retry_of,
            "overlap": run.overlap_key,
            "concurrency": run.concurrency_key,
            "asked by": run.created_by,
            "worker": run.worker_id,
            "arguments": shown(record["args"]),
            "progress": shown(record["progress"]),
            "result": None if is_answer(record["result"]) else shown(record["result"]),
            "cancel": _asked(run.cancel_requested_at, now),
            "pause": _asked(run.pause_requested_at, now),
            "error": run.error,
        }
    )
    if is_answer(record["result"]):
        say_heading("Result")
        say_result(record["result"])
    _say_attempts(attempts, now)
    _say_steps(steps, now)
    if lines:
        say_heading("Log" if len(lines) < LOG_TAIL else f"Log (last {LOG_TAIL} lines)")
        for line in lines:
            say(log_text(line))


def log_text(line: dict[str, Any]) -> str:
    """One log line as people read it."""
    at = line["at"].astimezone().strftime("%H:%M:%S.%f")[:-3]
    # What follows a line end is set in, so that it cannot pass for a line of its own.
    text = line["text"].replace("\n", "\n    ")
    return f"{at} {line['level'].lower():<7} {text}"


def _say_steps(steps: list[dict[str, Any]], now: datetime) -> None:
    if not steps:
        return
    say_heading("Steps")
    say_table(
        ("attempt", "step", "status", f"started ({zone_name(now)})", "took", "rows", "error"),
        (
            (
                one["attempt"],
                one["name"],
                one["status"] + (f" ({one['note']})" if one["note"] else ""),
                when(one["started_at"], now),
                took(one["started_at"], one["finished_at"]) if one["finished_at"] else None,
                one["rows"],
                None if one["error"] is None else error_line(one["error"]),
            )
            for one in steps
        ),
    )


def _say_attempts(attempts: list[dict[str, Any]], now: datetime) -> None:
    if not attempts:
        return
    say_heading("Attempts")
    say_table(
        ("number", "outcome", f"started ({zone_name(now)})", "took", "worker", "error"),
        (
            (
                one["number"],
                one["outcome"],
                when(one["started_at"], now),
                took(one["started_at"], one["finished_at"]),
                one["worker_id"],
                error_line(one["error"]),
            )
            for one in attempts
        ),
    )


def _asked(moment: datetime | None, now: datetime) -> str | None:
    return None if moment is None else f"asked for {when(moment, now, named=True)}"


def shown(value: Any) -> str | None:
    """A JSON value in one line; None where there is nothing to show."""
    if value is None or value == {}:
        return None
    return value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)
