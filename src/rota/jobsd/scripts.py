"""Run scripts on the default target: initdb.d/*.sql once, startdb.d/*.sql at every start.

initdb.d runs only on a target that Rota creates. Both folders lie beside the folder of jobs and run
before any job. A script that fails, or a folder that cannot be read, is logged and shown, and the
start goes on. An initdb.d that cannot be read at the start is deferred until it can be.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from rota.app import Rota
from rota.errors import Invalid, RotaError
from rota.executors.sql import run_script
from rota.executors.targets import Target
from rota.model.redact import redact_text
from rota.storage import operations
from rota.storage.store import open_store

log = logging.getLogger("rota.jobsd")

INIT, START = "initdb.d", "startdb.d"


def run_scripts(app: Rota) -> dict[str, str]:
    """Run the scripts of this start; returns errors by script, or by folder that cannot be read.

    Call it before the store is opened for the first time: it checks whether Rota creates it."""
    parent = app.settings.jobs_folder.absolute().parent
    target = app.targets.find()
    scripts: dict[str, list[Path]] = {INIT: [], START: []}
    failed: dict[str, str] = {}
    for name in scripts:
        try:
            scripts[name] = scripts_in(parent / name)
        except Invalid as fault:
            failed[name] = str(fault)
            log.error("%s %s", name, fault)
    if scripts[INIT] or INIT in failed:
        creates = _creates(app, target)  # must run before the store is opened
        if creates and INIT in failed:
            app.storage.write(operations.owe_scripts, target.name)
        elif not app.storage.write(operations.take_scripts, target.name) and not creates:
            scripts[INIT] = []
    to_run = [*scripts[INIT], *scripts[START]]
    if to_run and target.is_store:
        _ = app.storage  # let the migrations create the store before any script runs
    return failed | _run_all(app, to_run)


def run_deferred(app: Rota) -> dict[str, str] | None:
    """Run a deferred initdb.d; returns its errors, or None if it still cannot be read."""
    try:
        scripts = scripts_in(app.settings.jobs_folder.absolute().parent / INIT)
    except Invalid:
        return None
    return _run_all(
        app, scripts if app.storage.write(operations.take_scripts, app.targets.find().name) else []
    )


def _run_all(app: Rota, scripts: list[Path]) -> dict[str, str]:
    """The errors of the scripts that failed, by script."""
    errors = {f"{path.parent.name}/{path.name}": _run(app, path) for path in scripts}
    return {path: error for path, error in errors.items() if error is not None}


def scripts_in(folder: Path) -> list[Path]:
    """The scripts of a folder in lexical order; none where there is no folder."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".sql"))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as fault:
        raise Invalid(f"cannot be read: {fault.strerror}") from None
    return [folder / name for name in names if not name.startswith((".", "_"))]


def _run(app: Rota, path: Path) -> str | None:
    display_path = f"{path.parent.name}/{path.name}"
    try:
        run_script(app.targets.find().url, path)
    except (RotaError, OSError) as fault:
        message = redact_text(str(fault))
        log.error("%s failed: %s", display_path, message)
        return message
    log.info("%s is done", display_path)
    return None


def _creates(app: Rota, target: Target) -> bool:
    """True if the target does not exist yet and Rota creates it."""
    if target.kind != "postgres":
        return target.path != ":memory:" and not Path(target.path).exists()
    if not target.is_store:
        return False  # Rota does not create databases on a server
    try:
        store = open_store(app.settings.database, schema=app.settings.schema)
    except RotaError:
        return False
    try:
        return any(name.startswith("0001") for name, _ in store.pending_migrations())
    except RotaError:
        return False
    finally:
        store.close()
