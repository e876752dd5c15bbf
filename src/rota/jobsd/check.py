"""Check a folder of jobs as a worker would, without a store: problems, and coming occurrences."""

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
from rota.jobsd.manifest import ManifestDefaults
from rota.jobsd.read import decode, read_bytes
from rota.jobsd.scan import MANIFEST, survey_folder
from rota.jobsd.scripts import INIT, START, scripts_in
from rota.model.bodies import KEYS
from rota.model.definition import Definition
from rota.model.environment import INJECTED, RUN_VARIABLES
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
    "runs on the SQLite store, which no other process can write while a statement runs; long SQL "
    "belongs on another target"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem. `kind` is error, missing (a variable that is not set) or warning."""

    kind: str
    display_path: str
    message: str
    line: int | None = None
    job: str | None = None


@dataclass(slots=True)
class Report:
    """`jobs` are the valid definitions, each with its timing in words and its next occurrences."""

    jobs: list[tuple[Definition, str, list[Coming]]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def check_folder(
    app: Rota,
    environment: Mapping[str, str],
    now: datetime,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> Report:
    """A report on the folder of jobs that the app's settings name. `progress` is called with how
    many jobs are checked, and how many there are."""
    root, report = app.settings.jobs_folder, Report()
    survey = survey_folder(root)
    if not survey.exists:
        raise Invalid(f"no folder {root}; `rota init` makes one, or name another: rota check DIR")
    defaults = ManifestDefaults(origin=app.settings.file_origin, timezone=app.settings.timezone)
    for display_path, message in survey.problems.items():
        report.findings.append(Finding(kind="error", display_path=display_path, message=message))
    with closing(Inspector()) as inspector:
        loader = Loader(
            defaults,
            lambda job: check_job(app, job),
            lambda paths: {path: inspector.inspect(path) for path in paths},
        )
        for done, unit in enumerate(survey.units.values()):
            progress(done, len(survey.units))
            for definition in loader.load(survey, [unit]).values():
                if definition.error is not None:
                    report.findings.append(_error(definition))
                    continue
                report.findings += _warnings(definition)
                report.findings += _check_files(app, definition, root, environment)
                report.jobs.append((definition, *_when(definition, now)))
    report.findings += _of_extras(app, report)
    dialect = app.targets.find().kind
    for folder in (INIT, START):
        try:
            scripts = scripts_in(root.absolute().parent / folder)
        except Invalid as fault:
            report.findings.append(Finding(kind="error", display_path=folder, message=str(fault)))
            continue
        for path in scripts:
            report.findings += _check_script(path, f"{folder}/{path.name}", dialect, environment)
    return report


def _error(definition: Definition) -> Finding:
    where = (
        definition.display_path
        if definition.line is None
        else f"{definition.display_path}:{definition.line}"
    )
    message = (definition.error or "").removeprefix(f"{where}: ")
    return Finding(
        kind="error",
        display_path=definition.display_path,
        line=definition.line,
        message=message,
        job=definition.name,
    )


def _warnings(definition: Definition) -> Iterator[Finding]:
    for message in definition.warnings:
        yield Finding(
            kind="warning",
            display_path=definition.display_path,
            message=message,
            job=definition.name,
        )


def _of_extras(app: Rota, report: Report) -> Iterator[Finding]:
    """Warnings only: jobs may be checked on a machine that does not run them."""
    paths = {definition.name: definition.display_path for definition, _, _ in report.jobs}
    jobs = [definition.job for definition, _, _ in report.jobs]
    for message, names in missing_extras(app.targets, jobs).items():
        job = names[0] if len(names) == 1 else None
        yield Finding(kind="warning", display_path=paths[names[0]], message=message, job=job)


def _when(definition: Definition, now: datetime) -> tuple[str, list[Coming]]:
    if definition.schedule is None:
        return "on demand", []
    try:
        planned = replace(definition.schedule, next_fire_at=definition.schedule.first_fire(now))
    except RotaError:
        return definition.schedule.described(), []
    return in_words(planned), list(coming(planned, now, COMING))


def _check_files(
    app: Rota, definition: Definition, root: Path, environment: Mapping[str, str]
) -> Iterator[Finding]:
    spec: Mapping[str, Any] = definition.job.spec
    if definition.job.executor in KEYS:
        yield from _check_body(definition, environment)
    if definition.job.executor != "sql":
        return
    target = app.targets.find(spec.get("target"))
    if target.is_store and target.kind == "sqlite":
        yield Finding(
            kind="warning",
            display_path=definition.display_path,
            message=LONG_SQL,
            job=definition.name,
        )
    known = {**environment, **{variable_of(name): "" for name in spec.get("params", {})}}
    for name in spec["files"]:
        path = f"{root.name}/{definition.name}/{name}"
        for finding in _check_script(Path(spec["folder"]) / name, path, target.kind, known):
            yield replace(finding, job=definition.name)


def _check_body(definition: Definition, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Findings on a command or a request: variables that are not set, secrets in plain text."""
    spec, manifest = definition.job.spec, Path(definition.job.spec["folder"]) / MANIFEST
    text = decode(read_bytes(manifest, within=manifest.parent, limit=MANIFEST_BYTES))

    def finding(kind: str, pattern: str, message: str) -> Finding:
        at = re.search(pattern, text)
        line = None if at is None else text.count("\n", 0, at.start()) + 1
        return Finding(
            kind=kind,
            display_path=definition.display_path,
            line=line,
            message=message,
            job=definition.name,
        )

    known = {*environment, *RUN_VARIABLES, *(variable_of(name) for name in spec.get("params", {}))}
    body = {key: spec[key] for key in KEYS[definition.job.executor] if key in spec}
    uses = [use for template in texts_in(body) for use in variables(template)]
    for name in dict.fromkeys(use.name for use in uses if not may_be_read(use.name)):
        yield finding("error", rf"\${{{name}[:}}]", body_message([name]))
    unset = [use.name for use in uses if use.default is None and use.name not in known]
    for name in dict.fromkeys(filter(may_be_read, unset)):
        yield finding("missing", rf"\${{{name}[:}}]", body_message([name]))
    for name, value in spec.get("env", {}).items():
        if is_secret_name(name) and isinstance(value, str) and value and not variables(value):
            message = (
                f"env: {name} looks like a secret in plain text, which is stored with the job; "
                f'put it into the environment and write {name} = "${{{name}}}"'
            )
            yield finding("warning", rf"(?m)^\s*{name}\s*=", message)


def _check_script(
    path: Path, display_path: str, dialect: str, environment: Mapping[str, str]
) -> Iterator[Finding]:
    """Findings on a SQL file: variables that are not set, statements that cannot run."""
    try:
        content = read_bytes(path, within=path.parent, limit=SQL_FILE_BYTES)
        text = decode(content)
        seen: set[str] = set()
        for use in uses(text, dialect):
            if use.name in seen:
                continue
            if not readable(use.name):
                message = missing_message([use.name])
                yield Finding(
                    kind="error", display_path=display_path, line=use.line, message=message
                )
            elif use.default is None and use.name not in {*environment, *INJECTED}:
                message = (
                    f"variable {use.name} is not set; set it, or write ${{{use.name}:-default}}"
                )
                yield Finding(
                    kind="missing", display_path=display_path, line=use.line, message=message
                )
            seen.add(use.name)
        line = None if is_autonomous(text) else own_transaction(text, dialect)
    except Invalid as fault:
        match = _AT_LINE.match(str(fault))
        line, message = (int(match[1]), match[2]) if match else (None, str(fault))
        yield Finding(kind="error", display_path=display_path, line=line, message=message)
        return
    if line is not None:
        message = (
            "begins or ends a transaction, but each file runs in one of its own; remove that, or "
            "begin the file with `-- rota: autonomous`"
        )
        yield Finding(kind="error", display_path=display_path, line=line, message=message)
