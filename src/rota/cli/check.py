"""`rota check`: what is wrong in a folder of jobs, and when its jobs would run. Needs no store."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from rota.cli.main import FAILED, OK
from rota.cli.options import HERE, Option, Where
from rota.cli.output import clean, note, paint, say, say_json, say_painted, say_table
from rota.cli.progress import Progress
from rota.cli.store import settings_of
from rota.cli.times import wall_clock
from rota.flow.explain import Coming
from rota.jobsd.check import Finding, Report, check_folder
from rota.model.definition import Definition

COLOURS = {"error": "red", "missing": "red", "warning": "yellow"}


def check(
    folder: Annotated[
        Path | None,
        Option("The folder of jobs; the setting jobs_dir, else jobs.d, if not given.", "DIR"),
    ] = None,
    /,
    *,
    ignore_missing: Annotated[
        bool,
        Option(
            "Do not fail for variables that are not set here, as on a machine that only checks."
        ),
    ] = False,
    where: Where = HERE,
) -> int:
    """Check the jobs in a folder: what is wrong, with file and line, and when they run next."""
    from rota.app import Rota

    app = Rota()
    app.settings = settings_of(where)
    if folder is not None:
        app.settings = replace(app.settings, jobs_dir=str(folder))
    try:
        with Progress(silent=where.json) as progress:
            show = partial(progress.show, "checks")
            report = check_folder(app, os.environ, wall_clock(), show)
    finally:
        app.close()
    bad = {"error"} if ignore_missing else {"error", "missing"}
    failed = any(one.kind in bad for one in report.findings)
    if where.json:
        say_json(_record(report, ok=not failed))
    else:
        _say(report)
    return FAILED if failed else OK


def _record(report: Report, *, ok: bool) -> dict[str, Any]:
    return {
        "ok": ok,
        "jobs": [
            {
                "name": one.name,
                "file": one.display_path,
                "executor": one.job.executor,
                "when": words,
                "next": [{"at": each.at.isoformat(), "note": each.note} for each in times],
            }
            for one, words, times in report.jobs
        ],
        "findings": [
            {
                "kind": one.kind,
                "file": one.display_path,
                "line": one.line,
                "job": one.job,
                "message": one.message,
            }
            for one in report.findings
        ],
    }


def _say(report: Report) -> None:
    say_table(
        ("job", "when", "next"),
        [row for one, words, times in report.jobs for row in _rows(one, words, times)],
    )
    if report.findings and report.jobs:
        say()
    for one in report.findings:
        _say_finding(one)
    note(_summary(report))


def _rows(one: Definition, words: str, times: list[Coming]) -> list[tuple[str, str, str]]:
    """The job beside its first time, the others below."""
    off = "" if one.job.enabled else " (enabled = false)"
    shown = [f"{each.at:%a %Y-%m-%d %H:%M:%S %Z}" + _note(each) for each in times] or ["-"]
    return [
        (one.name, words + off, moment) if place == 0 else ("", "", moment)
        for place, moment in enumerate(shown)
    ]


def _note(each: Coming) -> str:
    return f"  {each.note}" if each.note else ""


def _say_finding(one: Finding) -> None:
    place = one.display_path if one.line is None else f"{one.display_path}:{one.line}"
    say_painted(f"{clean(place)}: {paint(one.kind, COLOURS[one.kind])}: {clean(one.message)}")


def _summary(report: Report) -> str:
    counts = {kind: sum(one.kind == kind for one in report.findings) for kind in COLOURS}
    wrong = {one.job for one in report.findings if one.kind == "error"}
    good = sum(one.name not in wrong for one, _, _ in report.jobs)
    told = {
        "good job": good,
        "error": counts["error"],
        "variable not set": counts["missing"],
        "warning": counts["warning"],
    }
    return ", ".join(_counted(count, what) for what, count in told.items())


def _counted(count: int, what: str) -> str:
    noun, _, rest = what.partition(" not ")
    plural = "" if count == 1 else "s"
    return f"{count} {noun}{plural}" + (f" not {rest}" if rest else "")
