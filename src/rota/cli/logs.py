"""Print the log lines of a run, and follow them while it runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Annotated, Any

from rota.cli.find import find_run
from rota.cli.options import HERE, Option, RunId, Where
from rota.cli.output import note, say, say_json
from rota.cli.show_run import log_text
from rota.cli.store import nobody_else_can_run, reading
from rota.flow.control import Control
from rota.model.limits import PAGE
from rota.model.transitions import TERMINAL

LOOK_SECONDS = 0.2
# Lines are written a few times a second, so the last ones come shortly after the end.
LINGER_SECONDS = 0.6


def logs(
    run: RunId,
    /,
    *,
    follow: Annotated[
        bool, Option("Go on until the run has ended.", names=("--follow", "-f"))
    ] = False,
    where: Where = HERE,
) -> None:
    """Print the log lines of a run.

    With --json a list, and with --follow too one object per line.
    """
    with reading(where) as control:
        run_id = find_run(control, run).id
        if where.json and not follow:
            return say_json(list(_lines(control, run_id)))
        if follow and nobody_else_can_run(where, control):
            follow = False
            note("no process runs on this DuckDB store: these are the lines so far")
        printed = 0
        for line in _followed(control, run_id) if follow else _lines(control, run_id):
            printed += 1
            if where.json:
                say_json(line, lines=True)
            else:
                say(log_text(line))
                if follow:
                    sys.stdout.flush()
        if not printed and not where.json:
            note(_why_none(control, run_id))


def _why_none(control: Control, run_id: str) -> str:
    job = control.jobs_named([control.run(run_id).job])
    if any(one.executor == "sql" for one in job.values()):
        return f"no log lines; SQL runs have steps: rota show {run_id}"
    return "no log lines; handlers write them with ctx.logger"


def _lines(control: Control, run_id: str, after: int = 0) -> Iterator[dict[str, Any]]:
    while page := control.logs(run_id, after=after, limit=PAGE):
        yield from page
        after = page[-1]["id"]


def _followed(control: Control, run_id: str) -> Iterator[dict[str, Any]]:
    last, ended = 0, False
    while True:
        for line in _lines(control, run_id, last):
            last = line["id"]
            yield line
        if ended:
            return
        ended = control.run(run_id).state in TERMINAL
        time.sleep(LINGER_SECONDS if ended else LOOK_SECONDS)
