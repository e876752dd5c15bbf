"""Scripts for the default target: initdb.d/*.sql where Rota creates it, startdb.d/*.sql at every
start. They lie beside the folder of jobs and run before any job; one that fails, or a folder that
cannot be read, is logged and shown, and the start goes on. An initdb.d that cannot be read then is
owed, and runs when it can be."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from rota.app import Rota
from rota.errors import Invalid, RotaError
from rota.executors.sql import run_script
from rota.executors.targets import Target
from rota.model.redact import redact_text
from rota.storage.store import open_store

log = logging.getLogger("rota.jobsd")

INIT, START = "initdb.d", "startdb.d"


def run_scripts(app: Rota) -> dict[str, str]:
    """Run what is to be run now; the error of each script that failed, and of each folder that
    cannot be read, by its place.

    Before the store is opened for the first time: whether Rota creates it is asked here."""
    beside = app.settings.jobs_folder.absolute().parent
    target = app.targets.find()
    found: dict[str, list[Path]] = {INIT: [], START: []}
    failed: dict[str, str] = {}
    for name in found:
        try:
            found[name] = scripts_in(beside / name)
        except Invalid as fault:
            failed[name] = str(fault)
            log.error("%s %s", name, fault)
    if found[INIT] or INIT in failed:
        creates = _creates(app, target)  # before the store is opened
        if creates and INIT in failed:
            app.storage.owe_scripts(target.name)
        elif not app.storage.take_scripts(target.name) and not creates:
            found[INIT] = []
    wanted = [*found[INIT], *found[START]]
    if wanted and target.is_store:
        _ = app.storage  # a store is created by its own migrations, not by a script
    return failed | _run_all(app, wanted)


def run_owed(app: Rota) -> dict[str, str] | None:
    """Run initdb.d if it can be read by now, and is owed; None if it still cannot be read."""
    try:
        scripts = scripts_in(app.settings.jobs_folder.absolute().parent / INIT)
    except Invalid:
        return None
    return _run_all(app, scripts if app.storage.take_scripts(app.targets.find().name) else [])


def _run_all(app: Rota, scripts: list[Path]) -> dict[str, str]:
    """The error of each script that failed, by its place."""
    told = {f"{path.parent.name}/{path.name}": _run(app, path) for path in scripts}
    return {place: error for place, error in told.items() if error is not None}


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
    place = f"{path.parent.name}/{path.name}"
    try:
        run_script(app.targets.find().url, path)
    except (RotaError, OSError) as fault:
        told = redact_text(str(fault))
        log.error("%s failed: %s", place, told)
        return told
    log.info("%s is done", place)
    return None


def _creates(app: Rota, target: Target) -> bool:
    """True if the target does not exist yet, and Rota is who makes it."""
    if target.kind != "postgres":
        return target.path != ":memory:" and not Path(target.path).exists()
    if not target.is_store:
        return False  # a server's database is made by somebody else
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
