"""`rota explain`: a schedule in words, its next times, and why it is not running."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from rota.cli.options import HERE, SCHEDULES, Option, Where
from rota.cli.output import one_line, say, say_heading, say_json, say_table
from rota.cli.store import reading
from rota.cli.times import relative
from rota.flow.explain import Explanation


def explain(
    schedule: Annotated[str, Option("The schedule's name.", "SCHEDULE", values=SCHEDULES)],
    /,
    *,
    at: Annotated[
        str | None, Option("Say instead what became of the occurrence at this instant.", "INSTANT")
    ] = None,
    count: Annotated[int, Option("How many times to list, up to 500.")] = 5,
    where: Where = HERE,
) -> None:
    """Explain a schedule: its next times, and why it is not running."""
    with reading(where) as control:
        if at is not None:
            told = control.why(schedule, at)
            return say_json({"answer": told}) if where.json else say(told)
        explanation = control.explain(schedule, count=count)
        now = control.now()
    if where.json:
        return say_json(record(explanation))
    say(explanation.words)
    say_heading("Next times")
    rows = [(_local(one.at), relative(one.at, now), one.note) for one in explanation.coming]
    if rows:
        say_table(("local time", "from now", "note"), rows)
    else:
        say("  none")
    say_heading("Why it is not running now")
    for reason in explanation.reasons or ["nothing is in its way: it runs at its next time"]:
        say(f"  {one_line(reason)}")


def _local(moment: datetime) -> str:
    return f"{moment:%a %Y-%m-%d %H:%M:%S} {moment.isoformat()[-6:]}"


def record(explanation: Explanation) -> dict[str, object]:
    return {
        "name": explanation.schedule.name,
        "status": explanation.schedule.status,
        "words": explanation.words,
        "next": [{"at": one.at.isoformat(), "note": one.note} for one in explanation.coming],
        "reasons": explanation.reasons,
    }
