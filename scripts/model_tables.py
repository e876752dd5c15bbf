"""Write the tables that the model holds into the pages: states of a run, values of policies.

    python scripts/model_tables.py

Each stands between two marks; tests/docs/test_model_tables.py fails where a page says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

from rota.model import policies
from rota.model.duration import format_duration
from rota.model.policies import API, DEFAULT_OVERLAP, DEFAULT_RETRY, PYTHON, SQL_FILE
from rota.model.retry import BACKOFFS
from rota.model.schedule import Schedule
from rota.model.transitions import EVENTS, OPERATORS, STATES, TRANSITIONS, may_delete

DOCS = Path(__file__).resolve().parent.parent / "docs"
SOURCES = (SQL_FILE, PYTHON, API)
CHOICES: dict[str, Mapping[str, str]] = {
    "overlap": policies.OVERLAP,
    "on_error": policies.ON_ERROR,
    "catch_up": policies.CATCH_UP,
    "dst": policies.DST,
    "anchor": policies.ANCHOR,
}
AMOUNTS = ("queue_max", "pause_after", "catch_up_limit", "misfire_grace", "jitter", "spread")
RETRIES = ("max_attempts", "backoff", "delay", "max_delay", "jitter")


def states() -> str:
    """A row per state: where it goes by itself, and where people may send it."""
    rows = []
    for state in STATES:
        ways = {event: TRANSITIONS[state][event] for event in EVENTS if event in TRANSITIONS[state]}
        asked = {event: ways.pop(event) for event in OPERATORS if event in ways}
        rows.append([f"`{state}`", arrows(ways), arrows(asked)])
    kept = [f"`{state}`" for state in STATES if not may_delete(state)]
    head = ["from", "what happens by itself", "what people may ask for"]
    return f"{table(head, rows)}\nDelete is possible in every state but {', '.join(kept)}.\n"


def arrows(ways: Mapping[str, str]) -> str:
    return ", ".join(f"{event} → `{state}`" for event, state in ways.items())


def values() -> str:
    """A row per policy: what it may be, with other spellings, and what it is by default."""
    own = {one.name: one.default for one in fields(Schedule)}
    rows = [[f"`{name}`", spelled(known), default(own[name])] for name, known in CHOICES.items()]
    rows[0][2] = " / ".join(default(DEFAULT_OVERLAP[source]) for source in SOURCES)
    rows += [[f"`{name}`", kind(own[name]), default(own[name])] for name in AMOUNTS]
    for name in RETRIES:
        shown = "retry_jitter" if name == "jitter" else name
        told = [getattr(DEFAULT_RETRY[source], name) for source in (SQL_FILE, PYTHON)]
        by = [default(one) for one in told]
        may_be = ", ".join(f"`{one}`" for one in BACKOFFS) if name == "backoff" else kind(told[0])
        # What makes a schedule alone says nothing of retries: its runs have those of the job.
        rows.append([f"`{shown}`", may_be, " / ".join([*by, "as the job"])])
    return table(["option", "values", "default"], rows)


PARTS: dict[str, tuple[Path, Callable[[], str]]] = {
    "states": (DOCS / "concepts.md", states),
    "values": (DOCS / "policies.md", values),
}


def written(name: str, page: str) -> str:
    """The page with this table as the model has it now."""
    begin = f"<!-- {name}: written by scripts/model_tables.py -->\n"
    end = f"<!-- end of {name} -->\n"
    before, rest = page.split(begin)
    return f"{before}{begin}\n{PARTS[name][1]()}\n{end}{rest.split(end)[1]}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = list(head)
    rule = "|" + "---|" * len(titles) + "\n"
    told, *lines = ["| " + " | ".join(line) + " |\n" for line in (titles, *rows)]
    return told + rule + "".join(line.replace("|  ", "| ") for line in lines)


def spelled(known: Mapping[str, str]) -> str:
    """`allow` (`start`, `no_wait`): the name, then other spellings of it."""
    names: dict[str, list[str]] = {}
    for word, name in known.items():
        names.setdefault(name, []).extend([] if word == name else [f"`{word}`"])
    return ", ".join(
        f"`{name}`" + (f" ({', '.join(others)})" if others else "")
        for name, others in names.items()
    )


def default(value: object) -> str:
    match value:
        case None:
            return "none"
        case timedelta():
            return f"`{format_duration(value)}`" if value else "none"
        case _:
            return f"`{value}`"


def kind(value: object) -> str:
    return "a duration" if isinstance(value, timedelta) else "a whole number"


if __name__ == "__main__":
    for name, (path, _) in PARTS.items():
        path.write_text(written(name, path.read_text("utf-8")), "utf-8")
