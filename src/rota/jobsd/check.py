"""Look at a folder of jobs as a worker would, without a store: what is wrong, and what comes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rota.app import Rota
from rota.errors import Invalid, RotaError
from rota.executors.inspection import Inspector
from rota.executors.targets import missing_extras
from rota.flow.explain import Coming, coming, in_words
from rota.jobsd.folder import check_job
from rota.jobsd.load import Loader
from rota.jobsd.manifest import Surroundings
from rota.jobsd.read import decode, read_bytes
from rota.jobsd.scan import MANIFEST, survey
from rota.jobsd.scripts import INIT, START, scripts_in
from rota.model.bodies import KEYS
from rota.model.definition import Definition
from rota.model.environment import INJECTED, TOLD
from rota.model.fill import missing_message as body_message
from rota.model.fill import readable as may_be_read
from rota.model.fill import texts_in, variables
from rota.model.interpolate import missing_message, readable, uses, variable_of
from rota.model.limits import MANIFEST_BYTES, SQL_FILE_BYTES
from rota.model.redact import is_secret_name
from rota.model.sql_script import is_autonomous, own_transaction

COMING = 5
_AT_LINE = re.compile(r"line (\d+): (.*)", re.S)
LONG_SQL = (
    "runs on the SQLite store, where nobody else can write while a statement runs; long SQL "
    "belongs on another target"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to look at. `kind` is error, missing (a variable that is not set) or warning."""

    kind: str
    place: str
    message: str
    line: int | None = None
    job: str | None = None


@dataclass(slots=True)
class Report:
    """`jobs` are the definitions that are good, each with what comes."""

    jobs: list[tuple[Definition, str, list[Coming]]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def check_folder(
    app: Rota,
    environment: Mapping[str, str],
    now: datetime,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> Report:
    """Everything there is to say about the folder of an app's settings. `progress` is called with
    how many of its jobs are done, and how many there are."""
    root, report = app.settings.jobs_folder, Report()
    found = survey(root)
    if not found.exists:
        raise Invalid(f"no folder {root}; `rota init` makes one, or name another: rota check DIR")
    around = Surroundings(origin=app.settings.file_origin, timezone=app.settings.timezone)
    for place, told in found.problems.items():
        report.findings.append(Finding(kind="error", place=place, message=told))
    with closing(Inspector()) as inspector:
        loader = Loader(
            around,
            lambda job: check_job(app, job),
            lambda paths: {path: inspector.inspect(path) for path in paths},
        )
        for done, unit in enumerate(found.units.values()):
            progress(done, len(found.units))
            for one in loader.load(found, [unit]).values():
                if one.error is not None:
                    report.findings.append(_error(one))
                    continue
                report.findings += _warnings(one)
                report.findings += _of_scripts(app, one, root, environment)
                report.jobs.append((one, *_when(one, now)))
    report.findings += _of_extras(app, report)
    dialect = app.targets.find().kind
    for folder in (INIT, START):
        try:
            scripts = scripts_in(root.absolute().parent / folder)
        except Invalid as fault:
            report.findings.append(Finding(kind="error", place=folder, message=str(fault)))
            continue
        for path in scripts:
            report.findings += _of_script(path, f"{folder}/{path.name}", dialect, environment)
    return report


def _error(one: Definition) -> Finding:
    where = one.place if one.line is None else f"{one.place}:{one.line}"
    told = (one.error or "").removeprefix(f"{where}: ")
    return Finding(kind="error", place=one.place, line=one.line, message=told, job=one.name)


def _warnings(one: Definition) -> Iterator[Finding]:
    for told in one.warnings:
        yield Finding(kind="warning", place=one.place, message=told, job=one.name)


def _of_extras(app: Rota, report: Report) -> Iterator[Finding]:
    """Warnings only: jobs may be checked on a machine that does not run them."""
    places = {one.name: one.place for one, _, _ in report.jobs}
    jobs = [one.job for one, _, _ in report.jobs]
    for message, names in missing_extras(app.targets, jobs).items():
        job = names[0] if len(names) == 1 else None
        yield Finding(kind="warning", place=places[names[0]], message=message, job=job)


def _when(one: Definition, now: datetime) -> tuple[str, list[Coming]]:
    if one.schedule is None:
        return "on demand", []
    try:
        planned = replace(one.schedule, next_fire_at=one.schedule.first_fire(now))
    except RotaError:
        return one.schedule.described(), []
    return in_words(planned), list(coming(planned, now, COMING))


def _of_scripts(
    app: Rota, one: Definition, root: Path, environment: Mapping[str, str]
) -> Iterator[Finding]:
    spec: Mapping[str, Any] = one.job.spec
    if one.job.executor in KEYS:
        yield from _of_body(one, environment)
    if one.job.executor != "sql":
        return
    target = app.targets.find(spec.get("target"))
    if target.is_store and target.kind == "sqlite":
        yield Finding(kind="warning", place=one.place, message=LONG_SQL, job=one.name)
    known = {**environment, **{variable_of(name): "" for name in spec.get("params", {})}}
    for name in spec["files"]:
        place = f"{root.name}/{one.name}/{name}"
        for found in _of_script(Path(spec["folder"]) / name, place, target.kind, known):
            yield replace(found, job=one.name)


def _of_body(one: Definition, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Variables of a command or a request that are not set; secrets that would be stored."""
    spec, manifest = one.job.spec, Path(one.job.spec["folder"]) / MANIFEST
    text = decode(read_bytes(manifest, within=manifest.parent, limit=MANIFEST_BYTES))

    def found(kind: str, pattern: str, told: str) -> Finding:
        at = re.search(pattern, text)
        line = None if at is None else text.count("\n", 0, at.start()) + 1
        return Finding(kind=kind, place=one.place, line=line, message=told, job=one.name)

    known = {*environment, *TOLD, *(variable_of(name) for name in spec.get("params", {}))}
    body = {key: spec[key] for key in KEYS[one.job.executor] if key in spec}
    uses = [use for told in texts_in(body) for use in variables(told)]
    for name in dict.fromkeys(use.name for use in uses if not may_be_read(use.name)):
        yield found("error", rf"\${{{name}[:}}]", body_message([name]))
    unset = [use.name for use in uses if use.default is None and use.name not in known]
    for name in dict.fromkeys(filter(may_be_read, unset)):
        yield found("missing", rf"\${{{name}[:}}]", body_message([name]))
    for name, value in spec.get("env", {}).items():
        if is_secret_name(name) and isinstance(value, str) and value and not variables(value):
            told = (
                f"env: {name} looks like a secret in plain text, which is stored with the job; "
                f'put it into the environment and write {name} = "${{{name}}}"'
            )
            yield found("warning", rf"(?m)^\s*{name}\s*=", told)


def _of_script(
    path: Path, place: str, dialect: str, environment: Mapping[str, str]
) -> Iterator[Finding]:
    """Variables that are not set, each at the line where it is first used; what cannot run."""
    try:
        content = read_bytes(path, within=path.parent, limit=SQL_FILE_BYTES)
        text = decode(content)
        seen: set[str] = set()
        for use in uses(text, dialect):
            if use.name in seen:
                continue
            if not readable(use.name):
                told = missing_message([use.name])
                yield Finding(kind="error", place=place, line=use.line, message=told)
            elif use.default is None and use.name not in {*environment, *INJECTED}:
                told = f"variable {use.name} is not set; set it, or write ${{{use.name}:-default}}"
                yield Finding(kind="missing", place=place, line=use.line, message=told)
            seen.add(use.name)
        line = None if is_autonomous(text) else own_transaction(text, dialect)
    except Invalid as fault:
        at = _AT_LINE.match(str(fault))
        line, told = (int(at[1]), at[2]) if at else (None, str(fault))
        yield Finding(kind="error", place=place, line=line, message=told)
        return
    if line is not None:
        told = (
            "begins or ends a transaction, but each file runs in one of its own; remove that, or "
            "begin the file with `-- rota: autonomous`"
        )
        yield Finding(kind="error", place=place, line=line, message=told)
