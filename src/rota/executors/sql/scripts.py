"""Prepares SQL scripts, and runs scripts outside of jobs: startdb.d and initdb.d."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rota.duckdb_instances import Instance, open_instance
from rota.errors import Invalid, RotaError, StorageError
from rota.executors.sql.files import read_text, step_file
from rota.executors.sql.places import RunTarget
from rota.executors.sql.session import SqlFailed, transaction_of
from rota.executors.targets import Target
from rota.model.interpolate import Script, interpolate, missing, missing_message
from rota.model.redact import redact_text, secrets_of
from rota.model.sql_script import is_autonomous, own_transaction
from rota.model.steps import StepFile

_open_instances: dict[str, Instance] = {}
_guard = threading.Lock()


def prepare(files: Sequence[StepFile], values: Mapping[str, str], dialect: str) -> list[Script]:
    """The SQL of all files, with variables; raises Invalid with all missing variables."""
    unset = _missing(files, values, dialect)
    if unset:
        raise Invalid(missing_message(unset))
    return [_script(file, values, dialect) for file in files]


def _missing(files: Iterable[StepFile], values: Mapping[str, str], dialect: str) -> tuple[str, ...]:
    names = (name for file in files for name in missing(file.text, values, dialect))
    return tuple(dict.fromkeys(names))


def _script(file: StepFile, values: Mapping[str, str], dialect: str) -> Script:
    try:
        script = interpolate(file.text, values, dialect)
    except Invalid as fault:
        raise Invalid(f"{file.name}: {fault}") from None
    if not is_autonomous(file.text) and (line := own_transaction(script, dialect)):
        raise Invalid(
            f"{file.name}:{script.line(line)}: begins or ends a transaction, but each file runs in "
            "one of its own; remove that, or begin the file with `-- rota: autonomous`"
        )
    return script


def run_script(target_url: str, path: Path, variables: Mapping[str, str] | None = None) -> None:
    """Run a file on a target.

    Its attachments to a DuckDB file stay until `close_instances`. Raises Invalid if the file is
    refused, StorageError if it failed; both name the file and the line.
    """
    target = Target(path.name, target_url)
    values = dict(os.environ if variables is None else variables)
    file = step_file(1, path.name, read_text(path), target.kind)
    (script,) = prepare([file], values, target.kind)
    if target.kind == "duckdb":
        _open(target.path)
    run_target, wrapped = RunTarget(target), not is_autonomous(file.text)
    try:
        session = run_target.session()
        with transaction_of(session, wrapped=wrapped, stopped=lambda: False):
            session.run(script, lambda: None)
    except SqlFailed as fault:
        raise StorageError(redact_text(fault.at(path.name, script), secrets_of(values))) from None
    except RotaError as fault:
        raise type(fault)(redact_text(f"{path.name}: {fault}", secrets_of(values))) from None
    finally:
        run_target.close()


def _open(path: str) -> None:
    """Open an instance and leave it open: attachments and extensions end with it."""
    real_path = os.path.realpath(path)
    with _guard:
        if real_path not in _open_instances:
            _open_instances[real_path] = open_instance(path)


def close_instances() -> None:
    """Close the instances on which scripts were run."""
    with _guard:
        instances = list(_open_instances.values())
        _open_instances.clear()
    for instance in instances:
        instance.close()
