"""What was measured: figures by program, their medians over the rounds, and who was best."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path

# Less is better for these; of the rest more is better.
SMALL_IS_GOOD = frozenset({"p50", "p99", "seconds", "percent", "mb", "import", "help", "cli", "up"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measurement of one program in one round."""

    program: str
    engine: str
    kind: str
    measure: str
    round: int
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class Summary:
    """One program's median over the rounds, and the span between its least and its most."""

    program: str
    median: float
    least: float
    most: float


@dataclass(slots=True)
class Results:
    about: dict[str, str]
    versions: dict[str, str] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    def summaries(self, engine: str, measure: str, key: str, kind: str) -> list[Summary]:
        """Of all programs of a kind, the best first."""
        values: dict[str, list[float]] = {}
        for one in self.figures:
            about = (one.engine, one.measure, one.kind)
            if about == (engine, measure, kind) and key in one.values:
                values.setdefault(one.program, []).append(one.values[key])
        found = [
            Summary(program, statistics.median(all_), min(all_), max(all_))
            for program, all_ in values.items()
        ]
        return sorted(found, key=lambda one: one.median, reverse=key not in SMALL_IS_GOOD)

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1))


def load(path: Path) -> Results:
    told = json.loads(path.read_text())
    return Results(**{**told, "figures": [Figure(**one) for one in told["figures"]]})
