"""The plots of docs/benchmarks.md: throughput, latency, and cost against the number of runs."""

from __future__ import annotations

import json
from pathlib import Path

from goals import POSTGRES, SQLITE
from plots import bars, lines
from results import Results

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"

TITLES = {
    "bulk": "bulk enqueue (limits: COPY), runs/s",
    "unnest": "bulk enqueue by unnest, runs/s",
    "single": "single enqueue, one producer, runs/s",
    "single10": "single enqueue, 10 producers, runs/s",
    "drain": "drain, 1 process, runs/s",
    "drain2": "drain, 2 processes, runs/s",
    "drain4": "drain, 4 processes, runs/s",
    "loop": "storage alone (claim and settle), 1 process, runs/s",
    "loop2": "storage alone (claim and settle), 2 processes, runs/s",
    "latency": "enqueue to start in another process, ms",
    "own": "enqueue to start in the same process, ms",
    "due": "start against due time, ms",
    "idle": "idle worker",
    "start": "start-up, s",
    "herd": "10,000 schedules due at once, s",
    "herd100k": "100,000 schedules due at once, s",
}
ENGINES = {POSTGRES: "PostgreSQL, synced commits", SQLITE: "SQLite, `synchronous=FULL`"}
KINDS = ("rota", "peer", "limit")
THROUGHPUT = ("bulk", "single", "single10", "drain", "drain2", "drain4", "loop", "loop2")
GROWTH_VERBS = (
    "claim 1", "settle 1", "claim 100", "settle 100", "enqueue 1", "tick", "promote", "prune",
)  # fmt: skip
PERCENTILES = (10, 25, 50, 75, 90, 95, 99)


def draw(results: Results, growth: Path | None) -> dict[str, str]:
    """Writes the plots; what each shows, and its file."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    images = {}
    for engine in ENGINES:
        groups = {}
        for measure in THROUGHPUT:
            found = [
                (f"limit: {one.program}" if kind == "limit" else one.program, one.median, kind)
                for kind in KINDS
                for one in results.summaries(engine, measure, "rate", kind)
            ]
            if found:
                groups[TITLES[measure]] = sorted(found, key=lambda bar: -bar[1])
        if groups:
            name = f"bench-throughput-{engine}.svg"
            (IMAGES / name).write_text(bars(groups, "/s"))
            images[f"Throughput, {ENGINES[engine]}"] = name
    for engine, title in ENGINES.items():
        if curves := _latency(results, engine):
            name = f"bench-latency-{engine}.svg"
            (IMAGES / name).write_text(lines(curves, "percentile", "milliseconds"))
            images[f"Enqueue to start, {title}"] = name
    for engine, title in ENGINES.items():
        if curves := _growth(growth, engine):
            name = f"bench-growth-{engine}.svg"
            (IMAGES / name).write_text(lines(curves, "runs", "milliseconds"))
            images[f"Cost against the number of runs, {title}"] = name
    return images


def _latency(results: Results, engine: str) -> dict[str, list[tuple[float, float]]]:
    curves: dict[str, list[tuple[float, float]]] = {}
    for kind in KINDS:
        for mark in PERCENTILES:
            for one in results.summaries(engine, "latency", f"p{mark}", kind):
                name = f"limit: {one.program}" if kind == "limit" else one.program
                curves.setdefault(name, []).append((mark, one.median))
    return curves


def _growth(path: Path | None, engine: str) -> dict[str, list[tuple[float, float]]]:
    """What benchmarks/growth.py measured: milliseconds of each verb by the number of runs."""
    if path is None or not path.exists():
        return {}
    curves: dict[str, list[tuple[float, float]]] = {}
    for told in json.loads(path.read_text()):
        if (told["part"], told["engine"]) == ("runs", engine):
            rows = sum(int(count.replace(",", "")) for count in told["at"].split("/"))
            for verb in GROWTH_VERBS:
                if verb in told:
                    curves.setdefault(verb, []).append((rows, told[verb]["median"]))
    return curves
