"""docs/benchmarks.md and its plots, from what was measured."""

from __future__ import annotations

from pathlib import Path

from goals import ROWS, UNITS, Verdict, judge
from pictures import ENGINES, KINDS, TITLES, draw
from results import Results

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "benchmarks.md"

KEYS = {
    "latency": ("p50", "p99"), "own": ("p50", "p99"), "due": ("p50", "p99"),
    "idle": ("percent", "mb"), "start": ("import", "help", "cli", "up"),
    "herd": ("seconds",), "herd100k": ("seconds",),
}  # fmt: skip
REDIS = {"redis": "Redis, not synced: shown and not compared"}
HOW = """\
How it is measured:

- Every program runs in processes of its own, on a database of its own that is made for each
  measurement, in an order that is shuffled for each round. Single enqueues and drains by one
  process and by two, which are over in seconds, are measured three times in a round, and idle
  programs side by side. Shown are the median of all and, below, the span between the least and
  the most.
- Python programs run on one interpreter, except for oban, which may need a newer one: its version
  is below, and it may have been built without the compiler's profile, which costs up to a third.
- A drain starts with the jobs in the database. Workers start, connect and wait; all are let go at
  once. It begins with the first handler and ends when the database shows no unfinished job, as of
  the moment it is asked; a loop of the storage alone begins with its first claim. Slow programs
  drain fewer jobs.
- Finished runs of Rota are kept, at default retention; graphile-worker and pgqueuer delete theirs.
- Enqueue to start is measured from just before the call that enqueues, one job at a time with
  50 ms between, until the handler has begun in another process.
- Of Rota's two kinds of handlers, sync in threads and async, the better is compared. Both are
  below.
- The limits are statements written by hand, on a row with the least that a queue needs and on
  Rota's own table with all of its indexes.
- Where a time has a limit beside it, its goal is a multiple of the limit that was measured in the
  same benchmark, the lesser of the two. In brackets are both as they were when the goal was set.
"""


def write(results: Results, growth: Path | None = None) -> list[Verdict]:
    verdicts = [judge(row, results) for row in ROWS]
    images = draw(results, growth)
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
    missed = [one for one in verdicts if one.reached is False]
    unknown = [one for one in verdicts if one.reached is None]
    wanted = [one for one in verdicts if not one.row.stretch]
    page += [f"**{len([v for v in wanted if v.reached])} of {len(wanted)} goals reached.**", ""]
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
            f"| {one.row.thing} | {_ours(one)} "
            f"| {_theirs(one)} | {' / '.join(told)} "
            f"| {'-' if one.ratio is None else f'{one.ratio:.2f} x'} | {one.goal} "
            f"| {'-' if one.reached is None else 'yes' if one.reached else '**no**'} |"
        )
    return [*table, ""]


def _ours(verdict: Verdict) -> str:
    """With the kind of handler that was better, where both were measured."""
    if verdict.rota is None:
        return "-"
    value = _value(verdict.rota.median, verdict.row.key)
    how = verdict.rota.program.removeprefix("Rota ") if verdict.rotas > 1 else ""
    return f"{value} {how}".strip()


def _theirs(verdict: Verdict) -> str:
    if verdict.peer is None:
        return "-"
    return f"{verdict.peer.program} {_value(verdict.peer.median, verdict.row.key)}"


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
