"""The first screen of `rota up`: what runs here, how to stop it, what to look at next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rota.app import Rota
from rota.cli.output import clean, paint, say_painted
from rota.cli.times import when, zone_of
from rota.config import Settings
from rota.executors.targets import missing_extras
from rota.flow.service import WEB
from rota.flow.workers import is_alive
from rota.model.duration import format_duration
from rota.model.host import is_loopback_host
from rota.model.redact import redact_text
from rota.model.schedule import Schedule
from rota.version import VERSION

SCHEDULES, JOBS, PROBLEMS = 15, 12, 5


def describe(
    app: Rota, address: str | None, parts: Sequence[str], missing: str | None = None
) -> dict[str, Any]:
    """What runs here, as data; `missing` says why the API does not."""
    settings = app.settings
    return {
        "version": VERSION,
        "app": address,
        "database": redact_text(settings.database),
        "other_processes": _others(app),
        "parts": list(parts),
        "jobs_dir": _folder(app, address, parts),
        "jobs": sorted(job.name for job in app.jobs()),
        "problems": [*_missing(app), *app.problems()] if "worker" in parts else [],
        "schedules": [
            {"name": one.name, "next_fire_at": one.next_fire_at} for one in app.control.schedules()
        ],
        "slots": settings.slots if "worker" in parts else 0,
        "queues": list(settings.queues),
        "grace": settings.grace,
        "web": _web(app, parts, missing),
    }


def say_screen(app: Rota, told: dict[str, Any], usual: str | None, processes: int = 1) -> None:
    """`usual` is the store that other commands find without being told."""
    lines = [
        ("store", [told["database"], *_others_words(told)]),
        ("app", [told["app"]] if told["app"] else []),
        ("folder", [told["jobs_dir"]] if told["jobs_dir"] else []),
        ("jobs", [_jobs(told)]),
        ("problems", _problems(told)),
        ("schedules", _schedules(app, app.control.schedules()) or ["none yet"]),
        ("scheduler", [_scheduler(app.settings, told)]),
        ("worker", [_worker(app.settings, told, processes)]),
        ("web", _web_words(app.settings, told)),
        ("stop", [_stop(app.settings)]),
        ("look", _look(app, told, usual)),
        ("next", _next(app, told)),
    ]
    say_painted(paint(f"Rota {VERSION}", "bold") + "\n")
    for name, values in lines:
        for place, value in enumerate(values):
            label = f"{name if place == 0 else '':<9}"
            say_painted(f"  {paint(label, 'dim')}  {clean(value)}")
    say_painted("")


def _others(app: Rota) -> int:
    """Processes whose workers are alive on this store; this one has not begun yet."""
    now = app.storage.now()
    return len({(one["host"], one["pid"]) for one in app.control.workers() if is_alive(one, now)})


def _missing(app: Rota) -> list[str]:
    """What the jobs of this process need and this installation does not have."""
    return [
        f"{message} (for {', '.join(names[:JOBS])}{', …' if len(names) > JOBS else ''})"
        for message, names in missing_extras(app.targets, app.jobs()).items()
    ]


def _others_words(told: dict[str, Any]) -> list[str]:
    count = told["other_processes"]
    if not count:
        return []
    words = "1 other process works" if count == 1 else f"{count} other processes work"
    return [f"{words} on it already; `rota workers` lists them"]


def _folder(app: Rota, address: str | None, parts: Sequence[str]) -> str | None:
    """Where jobs come from beside the app; a folder that may come later is told as such. Who has
    an app and named no folder is not told of one that is not there."""
    if "worker" not in parts:
        return None
    folder = app.settings.jobs_folder
    if folder.is_dir():
        return str(folder)
    return f"{folder} (not there yet)" if address is None or app.settings.jobs_dir else None


def _next(app: Rota, told: dict[str, Any]) -> list[str]:
    """What to do where there is nothing to do. Settings are read at the start: hence Ctrl-C."""
    if told["jobs"] or told["problems"] or told["app"] or "worker" not in told["parts"]:
        return []
    if app.settings.jobs_folder.is_dir():
        return [f"save a job in {told['jobs_dir']}; `rota init DIR` writes two that work to DIR"]
    return [
        "Ctrl-C, then `rota init` (a folder with two working jobs) and `rota up`",
        "or `rota up MODULE:APP` for an app in Python",
    ]


def _problems(told: dict[str, Any]) -> list[str]:
    problems = told["problems"]
    more = [f"and {len(problems) - PROBLEMS} more; `rota check` has all"]
    return [*problems[:PROBLEMS], *(more if len(problems) > PROBLEMS else [])]


def _jobs(told: dict[str, Any]) -> str:
    names = told["jobs"]
    if not names:
        return "none of its own; runs wait for a worker that knows their job"
    more = f" and {len(names) - JOBS} more" if len(names) > JOBS else ""
    return ", ".join(names[:JOBS]) + more


def _schedules(app: Rota, schedules: Sequence[Schedule]) -> list[str]:
    now, shown = app.storage.now(), schedules[:SCHEDULES]
    name_width = max((len(one.name) for one in shown), default=0)
    what_width = max((len(one.described()) for one in shown), default=0)
    lines = [
        f"{one.name:<{name_width}}  {one.described():<{what_width}}  "
        + (
            when(one.next_fire_at, now, zone_of(one), named=True)
            if one.status == "ACTIVE"
            else one.status
        )
        for one in shown
    ]
    if len(schedules) > SCHEDULES:
        lines.append(f"and {len(schedules) - SCHEDULES} more")
    return lines


def _scheduler(settings: Settings, told: dict[str, Any]) -> str:
    if "scheduler" not in told["parts"]:
        return "not here (--only)"
    return "on" if settings.scheduler.enabled else "off by the setting scheduler.enabled"


def _worker(settings: Settings, told: dict[str, Any], processes: int) -> str:
    if "worker" not in told["parts"]:
        return "not here (--only)"
    queues = f"queues {', '.join(settings.queues)}" if settings.queues else "all queues"
    times = f"{processes} \N{MULTIPLICATION SIGN} " if processes > 1 else ""
    return f"{times}{settings.slots} slots, {queues}"


def _stop(settings: Settings) -> str:
    if settings.grace is None:
        return "Ctrl-C: runs under way go on to their end; again: at once"
    return f"Ctrl-C: runs under way get {format_duration(settings.grace)}; again: at once"


def _web(app: Rota, parts: Sequence[str], missing: str | None) -> dict[str, Any]:
    if WEB not in parts:
        return {"url": None, "token_file": None, "note": missing or "not here (--only)"}
    web = app.serve_web()
    file = None if web.token_file is None else str(web.token_file)
    return {"url": web.url, "token_file": file, "note": web.note}


def _web_words(settings: Settings, told: dict[str, Any]) -> list[str]:
    """Where the API is and what it asks for, or why it is not there."""
    url, file, note = told["web"].values()
    if url is None:
        return [note]
    how = "to operate, show a token: `rota token create` makes one"
    if settings.open_local:
        how = "any browser on this machine may operate (--open-local)"
    elif file is not None:
        how = f"this machine may look; to operate, show the token in {file}"
    where = url
    if not is_loopback_host(settings.host):
        where = f"listens on {settings.host}, port {url.rpartition(':')[2]}; from here {url}"
    return [where, how, *([note] if note else [])]


def _look(app: Rota, told: dict[str, Any], usual: str | None) -> list[str]:
    """Commands that work as they stand, in another terminal in the same folder."""
    store, first = "", ""
    if app.settings.database != usual:
        store = f" --database {told['database']}"
        if app.settings.database != told["database"]:
            store, first = "", "  (with ROTA_DATABASE set: its password is not for a screen)"
    names = ["runs", "schedules", *(f"show {job}" for job in told["jobs"][:1])]
    return [f"rota {names[0]}{store}{first}", *(f"rota {name}{store}" for name in names[1:])]
