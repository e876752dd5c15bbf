"""docs/benchmarks.md and its plots, from what was measured."""

from __future__ import annotations

import json
from pathlib import Path

from goals import POSTGRES, ROWS, SQLITE, UNITS, Verdict, judge
from plots import bars, lines
from results import Results, Summary

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "benchmarks.md"
IMAGES = DOCS / "images"

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
    "herd": "10,000 schedules due at once, s",
    "herd100k": "100,000 schedules due at once, s",
}
KEYS = {
    "latency": ("p50", "p99"), "own": ("p50", "p99"), "due": ("p50", "p99"),
    "idle": ("percent", "mb"), "herd": ("seconds",), "herd100k": ("seconds",),
}  # fmt: skip
ENGINES = {POSTGRES: "PostgreSQL, synced commits", SQLITE: "SQLite, `synchronous=FULL`"}
REDIS = {"redis": "Redis, not synced: shown and not compared"}
KINDS = ("rota", "peer", "limit")
PERCENTILES = (10, 25, 50, 75, 90, 95, 99)

HOW = """\
How it is measured:

- Every program runs in processes of its own, on a database of its own that is made for each
  measurement, in an order that is shuffled for each round. Shown are the median of the rounds and,
  below, the span between the least and the most.
- A drain starts with the jobs in the database. Workers start, connect and wait; all are let go at
  once. It begins with the first handler and ends when the database shows no unfinished job. Slow
  programs drain fewer jobs.
- Finished runs of Rota are kept, at default retention; graphile-worker and pgqueuer delete theirs.
- Enqueue to start is measured from just before the call that enqueues, one job at a time with
  50 ms between, until the handler has begun in another process.
- Of Rota's two kinds of handlers, sync in threads and async, the better is compared. Both are
  below.
- The limits are statements written by hand, on a row with the least that a queue needs and on
  Rota's own table with all of its indexes.
"""


def write(results: Results, growth: Path | None = None) -> list[Verdict]:
    verdicts = [judge(row, results) for row in ROWS]
    IMAGES.mkdir(parents=True, exist_ok=True)
    images = _plot(results, growth)
    PAGE.write_text("\n".join(_page(results, verdicts, images)) + "\n")
    return verdicts


def _page(results: Results, verdicts: list[Verdict], images: dict[str, str]) -> list[str]:
    page = [
        "# Benchmarks",
        "",
        f"Written by `{results.about['command']}`; do not edit.",
        "",
        "| | |",
        "|---|---|",
        *[f"| {name} | {value} |" for name, value in results.about.items() if name != "command"],
        "",
    ]
    reached = [one for one in verdicts if one.reached]
    missed = [one for one in verdicts if one.reached is False]
    unknown = [one for one in verdicts if one.reached is None]
    page += [f"**{len(reached)} of {len(verdicts)} goals reached.**", ""]
    for title, some in (("Not reached", missed), ("Not measured", unknown)):
        if some:
            page += [f"{title}:", "", *[f"- {named(one)}" for one in some], ""]
    for engine, title in ENGINES.items():
        page += [f"## {title}", "", *_goal_table([v for v in verdicts if v.row.engine == engine])]
    for text, image in images.items():
        page += [f"![{text}](images/{image})", ""]
    page += ["## How", "", HOW]
    if results.failures:
        page += ["Not run:", ""]
        page += [f"- {name}: {reason}" for name, reason in sorted(results.failures.items())]
        page += [""]
    page += ["## All figures", ""]
    for engine, title in (ENGINES | REDIS).items():
        page += _all_figures(results, engine, title)
    page += ["## Versions", "", "| | version |", "|---|---|"]
    page += [f"| {name} | {version} |" for name, version in sorted(results.versions.items())]
    return page


def named(verdict: Verdict) -> str:
    engine = ENGINES[verdict.row.engine].partition(",")[0]
    rota = "-" if verdict.rota is None else _value(verdict.rota.median, verdict.row.key)
    ratio = "" if verdict.ratio is None else f", {verdict.ratio:.2f} x"
    return f"{engine}, {verdict.row.thing}: {rota}{ratio}; goal {verdict.goal}"


def _goal_table(verdicts: list[Verdict]) -> list[str]:
    table = [
        "| | Rota | peer | limit: minimal row / Rota's table | ratio | goal | reached |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in verdicts:
        limits = {limit.program: limit.median for limit in one.limits}
        told = [
            _value(limits[name], one.row.key) if name in limits else "-"
            for name in ("minimal row", "Rota's table")
        ]
        table.append(
            f"| {one.row.thing} | {_best(one.rota, one.row.key, brief=True)} "
            f"| {_best(one.peer, one.row.key)} | {' / '.join(told)} "
            f"| {'-' if one.ratio is None else f'{one.ratio:.2f} x'} | {one.goal} "
            f"| {'-' if one.reached is None else 'yes' if one.reached else '**no**'} |"
        )
    return [*table, ""]


def _best(summary: Summary | None, key: str, *, brief: bool = False) -> str:
    if summary is None:
        return "-"
    value = _value(summary.median, key)
    name = summary.program.removeprefix("Rota (").removesuffix(")") if brief else summary.program
    return f"{value} ({name})" if brief else f"{name} {value}"


def _all_figures(results: Results, engine: str, title: str) -> list[str]:
    table = [
        f"{title}:",
        "",
        "| | program | median | least - most |",
        "|---|---|---|---|",
    ]
    for measure, thing in TITLES.items():
        for key in KEYS.get(measure, ("rate",)):
            for kind in KINDS:
                for one in results.summaries(engine, measure, key, kind):
                    name = f"limit: {one.program}" if kind == "limit" else one.program
                    shown = thing if key in ("rate", "seconds") else f"{thing}, {key}"
                    span = f"{_value(one.least, key)} - {_value(one.most, key)}"
                    table.append(f"| {shown} | {name} | {_value(one.median, key)} | {span} |")
    return [*table, ""]


def _value(value: float, key: str) -> str:
    text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{text}{UNITS[key]}" if key in ("rate", "percent") else f"{text} {UNITS[key]}"


def _plot(results: Results, growth: Path | None) -> dict[str, str]:
    """Writes the plots; what each shows, and its file."""
    images = {}
    for engine in ENGINES:
        groups = {}
        for measure in ("bulk", "single", "single10", "drain", "drain2", "drain4", "loop", "loop2"):
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
    curves = _latency_curves(results)
    if curves:
        (IMAGES / "bench-latency.svg").write_text(
            lines(curves, "percentile", "enqueue to start, ms")
        )
        images["Enqueue to start"] = "bench-latency.svg"
    series = _growth(growth)
    if series:
        plot = lines(series, "rows", "milliseconds", log_x=True)
        (IMAGES / "bench-growth.svg").write_text(plot)
        images["Cost against the number of rows"] = "bench-growth.svg"
    return images


def _latency_curves(results: Results) -> dict[str, list[tuple[float, float]]]:
    curves = {}
    for engine in ENGINES:
        for kind in KINDS:
            for one in results.summaries(engine, "latency", "p50", kind):
                name = f"limit: {one.program}" if kind == "limit" else one.program
                points = []
                for mark in PERCENTILES:
                    found = results.summaries(engine, "latency", f"p{mark}", kind)
                    points += [(mark, s.median) for s in found if s.program == one.program]
                curves[f"{name}, {'SQLite' if engine == SQLITE else 'PostgreSQL'}"] = points
    return curves


def _growth(path: Path | None) -> dict[str, list[tuple[float, float]]]:
    """What benchmarks/growth.py measured: {"series": {name: [[rows, milliseconds], …]}}."""
    if path is None or not path.exists():
        return {}
    told = json.loads(path.read_text()).get("series", {})
    return {name: [(float(x), float(y)) for x, y in points] for name, points in told.items()}
