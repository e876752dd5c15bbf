"""`rota doctor`: is everything as it should be here, and if not, what is the fix?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rota import config
from rota.cli.main import FAILED, OK, WRONG_USE
from rota.cli.options import HERE, Where
from rota.cli.output import note, one_line, paint, say_json, say_painted
from rota.cli.store import reading, settings_of
from rota.config import Settings
from rota.errors import RotaError
from rota.flow.doctor_files import check_folder, check_secret_file, check_targets, check_tls
from rota.flow.findings import OK as WELL
from rota.flow.findings import PROBLEM, WARNING, Finding, ok, problem, warning
from rota.flow.words import counted
from rota.model.redact import redact_text

TOKEN = Path(".rota/token")
COLOURS = {WELL: "green", WARNING: "yellow", PROBLEM: "red"}


def doctor(*, where: Where = HERE) -> int:
    """Examine the settings, the store and the processes on it: what is wrong, and the fix.

    Exits with 1 if there is a problem, and with 2 if the store cannot be asked.
    """
    settings = settings_of(where)
    findings = list(_around(settings, where))
    asked = True
    try:
        with reading(where) as control:
            findings += control.doctor(host=settings.host, cluster=settings.cluster)
    except RotaError as fault:
        asked = False
        what, _, fix = redact_text(str(fault)).partition("; ")
        findings.append(problem("database", what, fix or "look whether the server runs"))
    if where.json:
        say_json(_record(findings, asked=asked))
    else:
        _say(findings)
    if not asked:
        return WRONG_USE
    return FAILED if any(one.status == PROBLEM for one in findings) else OK


def _around(settings: Settings, where: Where) -> Iterator[Finding]:
    file = where.config or Path(config.FILE)
    read = str(file) if file.exists() else f"no {file}"
    stray = config.stray_variables(os.environ)
    told = {name for name in os.environ if name.startswith("ROTA_")} - {one.name for one in stray}
    yield ok("settings", ", ".join([f"{read}, defaults elsewhere", *sorted(told)]))
    for one in stray:
        yield warning("settings", f"variable {one.name} sets nothing", one.fix)
    yield ok("store", redact_text(settings.database))
    if redact_text(settings.database) != settings.database and file.exists():
        yield from check_secret_file("settings", file, "the password of the database")
    yield from check_secret_file("token", TOKEN, "the token of an admin")
    yield from check_targets(settings.targets)
    yield from check_tls(settings.host, settings.tls_certificate)
    yield from check_folder(settings.jobs_folder, named=settings.jobs_dir is not None)


def _record(findings: list[Finding], *, asked: bool) -> dict[str, object]:
    return {
        "ok": asked and all(one.status != PROBLEM for one in findings),
        "asked": asked,
        "findings": [
            {"check": one.check, "status": one.status, "says": one.says, "fix": one.fix}
            for one in findings
        ],
    }


def _say(findings: list[Finding]) -> None:
    width = max(len(one.check) for one in findings)
    for one in findings:
        status = paint(f"{one.status:<7}", COLOURS[one.status])
        say_painted(f"{status}  {one.check:<{width}}  {one_line(one.says)}")
        if one.fix is not None:
            say_painted(f"{'':<7}  {'':<{width}}  {paint('fix:', 'bold')} {one_line(one.fix)}")
    problems = sum(one.status == PROBLEM for one in findings)
    warnings = sum(one.status == WARNING for one in findings)
    if problems or warnings:
        note(f"\n{counted(problems, 'problem')}, {counted(warnings, 'warning')}")
    else:
        note("\nall is well")
