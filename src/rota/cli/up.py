"""`rota up`: say what runs here, run it until a signal, stop gracefully."""

from __future__ import annotations

import logging
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

from rota import config
from rota.app import Rota
from rota.cli.load import load_app
from rota.cli.main import OK
from rota.cli.options import FILES, HERE, QUEUES, Option, Where
from rota.cli.output import say_json
from rota.cli.siblings import Siblings, Telling, check_processes, end_with_parent
from rota.cli.store import door_to, settings_of, store_file
from rota.cli.up_log import FORMATS, LEVELS, RunLines, choose_format, set_up_logging
from rota.cli.up_screen import describe, say_screen
from rota.errors import Conflict, Invalid, MissingExtra
from rota.flow.service import PARTS, WEB
from rota.life import live, start_anew
from rota.model.redact import redact_text

STOPS = (signal.SIGINT, signal.SIGTERM)


def up(
    address: Annotated[
        str | None,
        Option(
            "The app: a module and the name of its rota.Rota, such as examples.hello:app. The "
            "folder of jobs (jobs_dir, else jobs.d) is served with it and without it.",
            "MODULE:APP",
        ),
    ] = None,
    /,
    *,
    only: Annotated[
        str | None,
        Option(
            "Parts to run, with commas: scheduler, worker, web. All if not given.",
            "PARTS",
            values=(*PARTS, WEB),
        ),
    ] = None,
    slots: Annotated[int | None, Option("How many runs at a time, in each process.", "N")] = None,
    processes: Annotated[
        int,
        Option(
            "How many processes work: this one and N - 1 workers beside it, for more cores.", "N"
        ),
    ] = 1,
    queue: Annotated[
        list[str] | None, Option("Work only on this queue; may be repeated.", "NAME", values=QUEUES)
    ] = None,
    host: Annotated[
        str | None,
        Option(
            "Where web listens: 127.0.0.1 if not given. Any other address needs a token first.",
            "ADDRESS",
        ),
    ] = None,
    port: Annotated[
        int | None, Option("Its port: 7682 if not given; 0 picks a free one.", "N")
    ] = None,
    open_local: Annotated[
        bool, Option("Any browser on this machine may operate, without a token.")
    ] = False,
    tls_certificate: Annotated[
        str | None,
        Option("Serve HTTPS with this certificate (PEM, with its chain).", "FILE", values=FILES),
    ] = None,
    tls_key: Annotated[
        str | None,
        Option("Its key, if the file of the certificate does not hold it.", "FILE", values=FILES),
    ] = None,
    quiet: Annotated[bool, Option("Print warnings and errors only.")] = False,
    log_level: Annotated[
        str | None,
        Option("debug, info, warning or error; info if not given.", "LEVEL", values=LEVELS),
    ] = None,
    log_format: Annotated[
        str, Option("text, or json: one object a line.", "FORMAT", values=FORMATS)
    ] = "text",
    sibling: Annotated[bool, Option("", hidden=True)] = False,
    where: Where = HERE,
) -> int:
    """Run scheduler, worker and web until Ctrl-C or SIGTERM. Creates the store if there is none."""
    level = log_level or ("warning" if quiet else "info")
    as_json = where.json or choose_format(log_format) == "json"
    set_up_logging(level, as_json=as_json, sibling=sibling)
    parts = _parts(only)
    if not sibling:
        _tell_strays()
    usual = _usual_database()
    told = {
        "database": where.database,
        "slots": slots,
        "queues": queue and tuple(queue),
        "host": host,
        "port": port,
        "open_local": open_local or None,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
    }
    # Stop quietly also before the app listens to signals itself, which is after the screen.
    before = {number: signal.signal(number, _leave) for number in STOPS}
    app = None
    try:
        app = _app(address, told, where, debug=level == "debug")
        check_processes(processes, app.settings.database)
        _refuse_second(app)
        if WEB in parts:
            _refuse_others(app)
        if "worker" in parts:
            app.serve_folder().prepare()
        app.load(patient=False)
        web = None
        if WEB in parts:
            parts, web = _prepare_web(app, parts, only)
        if not quiet:
            RunLines(app, sibling=sibling)
        if not quiet and not sibling:
            _introduce(app, address, parts, where, usual, web, processes)
        telling = Telling(app.counters) if sibling else None
        if sibling:
            end_with_parent()
        siblings = Siblings(
            processes - 1,
            _as_worker(address, told, level, where, log_format, quiet=quiet),
            {} if where.database is None else {"ROTA_DATABASE": where.database},
            app.counters,
        )
        siblings.start()
        try:
            anew = live(app, parts, siblings.ask_to_stop)
        finally:
            siblings.ask_to_stop()
            siblings.wait()
            if telling is not None:
                telling.end()
    except _Left:
        if app is not None:
            with suppress(_Left):
                app.close()
        return OK
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if anew:  # not before its siblings have ended: nobody would wait for them any more
        start_anew()
    if not quiet and not sibling:
        logging.getLogger("rota.up").info("stopped")
    return OK


def _app(address: str | None, told: dict[str, Any], where: Where, *, debug: bool) -> Rota:
    flags = {name: value for name, value in told.items() if value is not None}
    config.make_settings(flags)  # refuses a wrong flag by its own name, before anything is imported
    if address is None:
        app = Rota()
        app.settings = replace(settings_of(where), **flags)
        if where.config is not None:
            app.settings_file = where.config.absolute()
        return app
    if where.config is not None:
        settings_of(where)  # says what is wrong with the file, before anything is imported
        config.FILE = str(where.config)  # where an app looks for settings as it is made
    # An app that leaves a setting open reads it here, and so do the processes it starts.
    for name, value in flags.items():
        shown = ",".join(value) if isinstance(value, tuple) else str(value)
        os.environ[f"ROTA_{name.upper()}"] = shown
    try:
        app = load_app(address)
    except Invalid as fault:
        if debug and fault.__cause__ is not None:
            traceback.print_exception(fault.__cause__)
        raise
    app.settings = replace(app.settings, **flags)
    return app


def _refuse_others(app: Rota) -> None:
    """A store that is not there yet has no token, and is not made only to say so."""
    path = store_file(app.settings.database)
    if path is not None and not path.exists():
        with suppress(MissingExtra):  # said later
            app.serve_web().refuse_others()


def _prepare_web(
    app: Rota, parts: tuple[str, ...], only: str | None
) -> tuple[tuple[str, ...], str | None]:
    """Take its address; (the parts that run, what the screen says about it). Without its packages
    everything else runs, unless it was asked for by name."""
    try:
        web = app.serve_web()
        web.prepare()
    except MissingExtra as fault:
        if only is not None:
            raise
        app.forget_web()
        return tuple(part for part in parts if part != WEB), str(fault)
    return parts, None


def _refuse_second(app: Rota) -> None:
    """On a DuckDB store there is one process; DuckDB's own lock makes sure of it."""
    other = door_to(app.settings)
    if other is not None:
        other.close()
        process = other.connection.hello.process
        raise Conflict(
            f"{redact_text(app.settings.database)} is run by process {process} already, and DuckDB "
            f"lets one process open a file; commands reach it (rota runs), or stop it first "
            f"(kill {process})"
        )


def _as_worker(
    address: str | None,
    told: dict[str, Any],
    level: str,
    where: Where,
    log_format: str,
    *,
    quiet: bool,
) -> list[str]:
    """The arguments of a process that works beside this one, and says as much of its runs. The
    database is not among them: everybody can read the arguments of a process."""
    made = ["--only", "worker", "--sibling", "--log-level", level]
    made += ["--quiet"] if quiet else []
    made += [] if address is None else [address]
    made += [] if where.config is None else ["--config", str(where.config)]
    made += ["--json"] if where.json else ["--log-format", log_format]
    made += [] if told["slots"] is None else ["--slots", str(told["slots"])]
    for queue in told["queues"] or ():
        made += ["--queue", queue]
    return made


def _introduce(
    app: Rota,
    address: str | None,
    parts: Sequence[str],
    where: Where,
    usual: str | None,
    web: str | None,
    processes: int,
) -> None:
    told = describe(app, address, parts, web)
    if where.json:
        say_json(told)
    else:
        say_screen(app, told, usual, processes)
    sys.stdout.flush()


def _parts(only: str | None) -> tuple[str, ...]:
    known = (*PARTS, WEB)
    if only is None:
        return known
    chosen = tuple(part.strip() for part in only.split(",") if part.strip())
    unknown = [part for part in chosen if part not in known]
    if unknown or not chosen:
        raise Invalid(f"--only {only!r} is unknown; use {', '.join(known)} or some of them")
    return chosen


def _tell_strays() -> None:
    """Those that resemble a setting are refused where settings are read."""
    for stray in config.stray_variables(os.environ):
        if not stray.is_mistake:
            log = logging.getLogger("rota.config")
            log.warning("variable %s sets nothing; %s", stray.name, stray.fix)


def _usual_database() -> str | None:
    """The store that commands without flags use: asked before ours get into the environment."""
    try:
        return config.load_settings().database
    except Invalid:
        return None


class _Left(BaseException):
    """A signal to stop before anything ran."""


def _leave(number: int, frame: object) -> None:
    raise _Left
