"""Write what the model holds where people and type checkers read it: states of a run, options.

    python scripts/model_tables.py

Each part stands between two marks; tests/docs/test_model_tables.py fails where a file differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path

from rota.model.duration import format_duration
from rota.model.option import (
    Arguments,
    Choice,
    Duration,
    Flag,
    Instant,
    Kind,
    Option,
    RetryPolicy,
    Whole,
    Zone,
)
from rota.model.policies import API, DEFAULT_OVERLAP, DEFAULT_RETRY, PYTHON, SQL_FILE
from rota.model.retry import BACKOFFS, MAX_ATTEMPTS
from rota.model.schedule import OPTIONS
from rota.model.transitions import EVENTS, OPERATORS, STATES, TRANSITIONS, may_delete

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGE, PYTHON_COMMENT = "<!-- {} -->", "# {}"
WIDTH = 100
SOURCES = (SQL_FILE, PYTHON, API)
RETRIES = {
    "max_attempts": "failures until a run is dead",
    "backoff": "how the wait between attempts grows",
    "delay": "the first wait between attempts",
    "max_delay": "the longest wait between attempts",
    "jitter": "added to the wait by chance, up to this",
}


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
    """A row per option of a schedule: its values, other spellings, default and meaning."""
    rows = []
    for option in OPTIONS.values():
        if isinstance(option.kind, RetryPolicy):
            rows += retries()
            continue
        text = option.explained(lambda name, value: f"`{name} = {value}`" if value else f"`{name}`")
        value = default(option.default)
        if option.name == "overlap":
            value = " / ".join(default(DEFAULT_OVERLAP[source]) for source in SOURCES)
        rows.append([f"`{option.name}`", spelled(option.kind), value, text])
    return table(["option", "values", "default", "what it does"], rows)


def retries() -> list[list[str]]:
    rows = []
    for name, text in RETRIES.items():
        option = "retry_jitter" if name == "jitter" else name
        by_source = [getattr(DEFAULT_RETRY[source], name) for source in (SQL_FILE, PYTHON)]
        kind: Kind = Duration() if isinstance(by_source[0], timedelta) else Whole(1, MAX_ATTEMPTS)
        if name == "backoff":
            kind = Choice({value: value for value in BACKOFFS})
        # A schedule that is made by itself has the retries of its job.
        defaults = " / ".join([*(default(value) for value in by_source), "as the job"])
        rows.append([f"`{option}`", spelled(kind), defaults, f"{text[0].upper()}{text[1:]}."])
    return rows


def choices() -> str:
    """A type of each choice, with every spelling."""
    lines = []
    for option in OPTIONS.values():
        if isinstance(option.kind, Choice):
            spellings = ", ".join(f'"{spelling}"' for spelling in option.kind.spellings)
            line = f"{type_name(option)}: TypeAlias = Literal[{spellings}]\n"
            if len(line) > WIDTH:
                line = line.replace("[", "[\n    ").replace("]\n", "\n]\n")
            lines.append(line)
    return "".join(lines)


def options() -> str:
    """A field of a TypedDict for each option that jobs and schedules have in common."""
    return "".join(
        f"    {option.name}: {annotation(option)}\n"
        for option in OPTIONS.values()
        if option.name != "priority"  # a job has one of its own, which is never None
    )


def annotation(option: Option) -> str:
    match option.kind:
        case Choice():
            name = type_name(option)
        case Whole():
            name = "int"
        case Flag():
            name = "bool"
        case Duration():
            name = "Duration"
        case Instant():
            name = "Instant"
        case Arguments():
            name = "Mapping[str, Any]"
        case RetryPolicy():
            name = "Retry | Mapping[str, Any]"
        case _:
            name = "str"
    return f"{name} | None" if option.nullable else name


def type_name(option: Option) -> str:
    return "".join(part.capitalize() for part in option.name.split("_"))


TYPES = ROOT / "src" / "rota" / "option_types.py"
# Each part with its file, what makes it, and what a mark in that file looks like.
PARTS: dict[str, tuple[Path, Callable[[], str], str]] = {
    "states": (DOCS / "concepts.md", states, PAGE),
    "values": (DOCS / "policies.md", values, PAGE),
    "choices": (TYPES, choices, PYTHON_COMMENT),
    "options": (TYPES, options, PYTHON_COMMENT),
}


def written(name: str, text: str) -> str:
    """The text of the file with this part as the model has it now."""
    _, part, mark = PARTS[name]
    begin = mark.format(f"{name}: written by scripts/model_tables.py")
    end = mark.format(f"end of {name}")
    before, rest = text.split(begin + "\n")
    middle, after = rest.split(end)
    indent = middle[len(middle.rstrip(" ")) :]
    blank = "\n" if mark == PAGE else ""
    return f"{before}{begin}\n{blank}{part()}{blank}{indent}{end}{after}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = list(head)
    rule = "|" + "---|" * len(titles) + "\n"
    told, *lines = ["| " + " | ".join(line) + " |\n" for line in (titles, *rows)]
    return told + rule + "".join(line.replace("|  ", "| ") for line in lines)


def spelled(kind: Kind) -> str:
    """Its values; of a choice `allow` (`start`, `no_wait`): the value, then other spellings."""
    match kind:
        case Choice():
            others = {
                value: [f"`{name}`" for name, of in kind.spellings.items() if of == value != name]
                for value in kind.values
            }
            return ", ".join(
                f"`{value}`" + (f" ({', '.join(names)})" if names else "")
                for value, names in others.items()
            )
        case Whole(low, high):
            return f"{low:,} to {high:,}"
        case Duration():
            return "a duration"
        case Instant():
            return "an instant"
        case Flag():
            return "`true`, `false`"
        case Zone():
            return "a zone"
        case Arguments():
            return "an object"
        case _:
            return "text"


def default(value: object) -> str:
    match value:
        case None:
            return "none"
        case dict() if not value:
            return "none"
        case bool():
            return f"`{str(value).lower()}`"
        case timedelta():
            return f"`{format_duration(value)}`" if value else "none"
        case _:
            return f"`{value}`"


if __name__ == "__main__":
    for name, (path, *_) in PARTS.items():
        path.write_text(written(name, path.read_text("utf-8")), "utf-8")
