"""Settings: defaults < rota.toml < ROTA_* environment < flags. Unknown names are refused."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rota.errors import Invalid
from rota.executors.targets import STORE, kind_of
from rota.model.duration import format_duration, parse_duration
from rota.model.environment import Stray, is_link, strays
from rota.model.limits import ALLOWED_NETWORKS, NAME, check_name, check_schema_name, check_whole
from rota.model.redact import passwords_in, secret_values
from rota.model.retention import RETENTION
from rota.model.secrets import know
from rota.model.url import check_url
from rota.model.zone import parse_zone

log = logging.getLogger("rota.config")

FILE = "rota.toml"
JOBS_DIR = "jobs.d"
MAX_SLOTS = 10_000
SETTLED_SECONDS = 1.0  # a file that changed within this may be half written
PORT = 7682
_HOST = re.compile(r"[A-Za-z0-9._:%-]{1,253}")
# Settings that no single variable of the environment can hold.
_TABLES = {"retention", "scheduler", "targets", "executors"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting with its default. `grace` None waits for handlers for ever; `jobs_dir` None is
    jobs.d for `rota up`, and no folder for an app of one's own."""

    database: str = "sqlite:///rota.db"
    schema: str = "rota"
    targets: Mapping[str, str] = field(default_factory=dict)
    default_target: str = STORE
    timezone: str = "UTC"
    jobs_dir: str | None = None
    origin: str | None = None
    cluster: str | None = None
    host: str = "127.0.0.1"
    port: int = PORT
    hosts: tuple[str, ...] = ()
    open_local: bool = False
    tls_certificate: str | None = None
    tls_key: str | None = None
    slots: int = 10
    queues: tuple[str, ...] = ()
    lease: timedelta = timedelta(seconds=30)
    max_lost: int = 3
    grace: timedelta | None = timedelta(seconds=30)
    retention: Mapping[str, timedelta] = field(default_factory=lambda: RETENTION)
    keep_last: int = 50
    scheduler: Scheduler = field(default_factory=lambda: Scheduler())
    executors: Executors = field(default_factory=lambda: Executors())

    def __post_init__(self) -> None:
        for url in (self.database, *self.targets.values()):
            if isinstance(url, str):
                know(passwords_in(url))
        if not isinstance(self.database, str) or "://" not in self.database:
            # Only a plain name is repeated: anything else may hold a password.
            plain = not isinstance(self.database, str) or NAME.fullmatch(self.database)
            shown = f" {self.database!r}" if plain else ""
            raise Invalid(
                f"database{shown} is not a URL; "
                "use sqlite:///rota.db or postgresql://user@host/name or duckdb:///warehouse.duckdb"
            )
        check_url(self.database, "the database URL")
        check_schema_name(self.schema)
        if self.default_target not in (STORE, *self.targets):
            known = ", ".join((STORE, *self.targets))
            raise Invalid(f"default_target {self.default_target!r} is unknown; known are {known}")
        if self.origin is not None:
            check_name(self.origin, "origin")
        if self.jobs_dir is not None:
            _check_folder(self.jobs_dir)
            check_name(self.file_origin, "origin (the name of jobs_dir, unless set)")
        _check_web(self)
        check_whole(self.slots, "slots", 1, MAX_SLOTS)
        check_whole(self.max_lost, "max_lost", 1, 1_000)
        check_whole(self.keep_last, "keep_last", 0, 1_000_000)
        for queue in self.queues:
            check_name(queue, "queue")
        if self.lease < timedelta(seconds=1):
            raise Invalid(f"lease {format_duration(self.lease)} must be at least 1s")
        if not isinstance(self.timezone, str):
            raise Invalid(f"timezone {self.timezone!r} must be text, such as 'Europe/Berlin'")
        parse_zone(self.timezone)

    @property
    def jobs_folder(self) -> Path:
        """The folder of jobs, also where nobody named it."""
        return Path(self.jobs_dir or JOBS_DIR)

    @property
    def file_origin(self) -> str:
        """Whose jobs those of the folder are: workers of one origin serve the same folder."""
        return self.origin or self.jobs_folder.absolute().name


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """`pace` is the longest sleep between looks, `max_fires_per_tick` a safety valve (0 = off).
    `enabled` is live: whoever fires asks a `Switch`, which looks at the file of settings."""

    enabled: bool = True
    pace: timedelta = timedelta(seconds=60)
    max_fires_per_tick: int = 0
    start_delay: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Executors:
    """Executors that reach beyond Rota are off until somebody switches them on. `http_allow` are
    addresses and networks that a request may go to though they are not public."""

    shell: bool = False
    http: bool = False
    http_allow: tuple[str, ...] = ()


def load_settings(
    flags: Mapping[str, Any] | None = None,
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Settings from all four places; None in `flags` means not given."""
    know(secret_values(os.environ))
    told = _from_file(file)
    outside = os.environ if environment is None else environment
    for stray in stray_variables(outside):
        if stray.is_mistake:
            raise Invalid(f"variable {stray.name} sets nothing; {stray.fix}")
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    # Each switch by itself: one that is set elsewhere does not take the others along.
    switches = [told.get("executors"), _switches(outside), given.get("executors")]
    told |= _from_environment(outside)
    told |= given
    if all(one is None or isinstance(one, Mapping) for one in switches):
        told["executors"] = {name: value for one in switches for name, value in (one or {}).items()}
    return make_settings(told)


class Switch:
    """`scheduler.enabled` as the file of settings has it now. One that is being written, that
    nobody can read, or that is gone changes nothing."""

    def __init__(self, enabled: bool, file: Path | None) -> None:
        self._enabled, self._file = enabled, file
        self._seen: float | None = None  # when the file was changed
        self._since = 0.0  # when we saw that
        self._read = True

    def __call__(self) -> bool:
        if self._file is not None:
            self._look(self._file)
        return self._enabled

    def _look(self, file: Path) -> None:
        try:
            changed_at = os.stat(file).st_mtime
        except OSError:
            changed_at = 0.0
        if changed_at != self._seen:
            never_there = self._seen is None and not changed_at
            self._seen, self._since, self._read = changed_at, time.monotonic(), never_there
        if self._read:
            return
        age = max(time.monotonic() - self._since, time.time() - changed_at if changed_at else 0.0)
        if age >= SETTLED_SECONDS:
            self._read = True
            self._take(file)

    def _take(self, file: Path) -> None:
        before = self._enabled
        try:
            self._enabled = _convert("scheduler", _from_file(file).get("scheduler", {})).enabled
        except Invalid as problem:
            log.warning("the scheduler stays %s: %s", _on(before), problem)
        if self._enabled != before:
            log.warning("the scheduler is %s now, by %s", _on(self._enabled), file)


def _on(enabled: bool) -> str:
    return "on" if enabled else "off"


def make_settings(told: Mapping[str, Any]) -> Settings:
    """Settings from plain values, each converted and checked by name."""
    _check_names(told)
    return replace(Settings(), **{name: _convert(name, value) for name, value in told.items()})


def _check_names(told: Mapping[str, Any], place: str = "") -> None:
    known = {one.name for one in fields(Settings)}
    for name in told:
        if name not in known:
            raise Invalid(f"{place}setting {name!r} is unknown{_hint(name, known)}")


def _convert(name: str, value: Any) -> Any:
    match name:
        case "lease":
            return parse_duration(value, name)
        case "grace":
            return None if value == "none" else parse_duration(value, name, zero=True)
        case "jobs_dir":
            return str(value) if isinstance(value, Path) else value
        case "slots" | "max_lost" | "keep_last" | "port":
            return _whole(value, name)
        case "queues":
            return _queues(value)
        case "hosts":
            return _hosts(value)
        case "open_local":
            return _switch(value, name)
        case "tls_certificate" | "tls_key":
            return str(value) if isinstance(value, Path) else value
        case "targets":
            return _targets(value)
        case "retention":
            return _retention(value)
        case "scheduler":
            return value if isinstance(value, Scheduler) else _scheduler(value)
        case "executors":
            return value if isinstance(value, Executors) else _executors(value)
        case _:
            return value


def _check_folder(value: object) -> None:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise Invalid(f"jobs_dir {value!r} is not a folder; use a path, such as 'jobs.d'")


def _check_web(settings: Settings) -> None:
    if not isinstance(settings.host, str) or not _HOST.fullmatch(settings.host):
        raise Invalid(f"host {settings.host!r} is no address; use 127.0.0.1, 0.0.0.0 or a name")
    check_whole(settings.port, "port", 0, 65_535)
    for host in settings.hosts:
        if not isinstance(host, str) or not _HOST.fullmatch(host):
            raise Invalid(f"hosts: {host!r} is no name; use one without a port, such as rota.local")
    for name in ("tls_certificate", "tls_key"):
        if not isinstance(getattr(settings, name), str | None):
            raise Invalid(f"{name} {getattr(settings, name)!r} must be the path of a file")
    if settings.tls_key is not None and settings.tls_certificate is None:
        raise Invalid("tls_key needs tls_certificate")
    if not isinstance(settings.open_local, bool):
        raise Invalid(f"open_local {settings.open_local!r} must be true or false")


def _hosts(value: Any) -> tuple[Any, ...]:
    named = value.split(",") if isinstance(value, str) else value
    if not isinstance(named, list | tuple | set | frozenset):
        raise Invalid(f"hosts {value!r} must be names, such as ['rota.example.org']")
    told = [name.strip() if isinstance(name, str) else name for name in named]
    return tuple(name for name in told if name != "")


def _switch(value: Any, name: str) -> bool:
    """From the environment it is a word."""
    words = {"true": True, "1": True, "false": False, "0": False}
    found = words.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise Invalid(f"{name} {value!r} must be true or false")
    return found


def _queues(value: Any) -> tuple[str, ...]:
    named = value.split(",") if isinstance(value, str) else value
    if not isinstance(named, list | tuple | set | frozenset):
        raise Invalid(f"queues {value!r} must be names, such as ['mail', 'default']")
    told = [name.strip() if isinstance(name, str) else name for name in named]
    return tuple(check_name(name, "queue") for name in told if name != "")


def _targets(value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise Invalid("targets is a table, such as [targets] warehouse = 'duckdb:///w.duckdb'")
    for name, url in value.items():
        check_name(name, "target")
        if name == STORE:
            raise Invalid(f"target {STORE!r} is Rota's own database; choose another name")
        if not isinstance(url, str) or "://" not in url:
            raise Invalid(f"target {name!r} is not a URL; use duckdb:///warehouse.duckdb")
        kind_of(url, f"target {name!r}")
        check_url(url, f"the URL of target {name!r}")
    return dict(value)


def _retention(value: Any) -> Mapping[str, timedelta]:
    ages = dict(RETENTION)
    if not isinstance(value, Mapping):
        raise Invalid("retention is a table, such as [retention] succeeded = '7d'")
    for state, age in value.items():
        if state not in ages:
            raise Invalid(f"retention of {state!r} is unknown; use {', '.join(ages)}")
        ages[state] = parse_duration(age, f"retention.{state}", zero=True)
    return ages


def _scheduler(value: Any) -> Scheduler:
    if not isinstance(value, Mapping):
        raise Invalid("scheduler is a table, such as [scheduler] pace = '60s'")
    known = {one.name for one in fields(Scheduler)}
    made: dict[str, Any] = {}
    for name, told in value.items():
        if name not in known:
            raise Invalid(f"setting 'scheduler.{name}' is unknown{_hint(name, known)}")
        match name:
            case "pace":
                made[name] = parse_duration(told, "scheduler.pace")
            case "start_delay":
                made[name] = parse_duration(told, "scheduler.start_delay", zero=True)
            case "max_fires_per_tick":
                made[name] = check_whole(_whole(told, name), "scheduler." + name, 0, 100_000)
            case _:
                if not isinstance(told, bool):
                    raise Invalid(f"scheduler.{name} {told!r} must be true or false")
                made[name] = told
    return Scheduler(**made)


def _executors(value: Any) -> Executors:
    if not isinstance(value, Mapping):
        raise Invalid("executors is a table, such as [executors] shell = true")
    known = {one.name for one in fields(Executors)}
    made: dict[str, Any] = {}
    for name, told in value.items():
        if name not in known:
            raise Invalid(f"setting 'executors.{name}' is unknown{_hint(name, known)}")
        made[name] = _networks(told) if name == "http_allow" else _switch(told, f"executors.{name}")
    return Executors(**made)


def _networks(value: Any) -> tuple[str, ...]:
    from rota.executors.networks import parse_network

    told = value.split(",") if isinstance(value, str) else value
    if not isinstance(told, list | tuple) or len(told) > ALLOWED_NETWORKS:
        raise Invalid(
            f"executors.http_allow {value!r} must be a list of up to {ALLOWED_NETWORKS:,} "
            'addresses and networks, such as ["10.1.0.0/16", "127.0.0.1:8080"]'
        )
    named = [one.strip() if isinstance(one, str) else one for one in told]
    for one in named:
        parse_network(one)
    return tuple(named)


def _from_file(file: Path | None) -> dict[str, Any]:
    path = file or Path(FILE)
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        if file is not None:
            raise Invalid(f"settings file {path} does not exist") from None
        return {}
    except (OSError, UnicodeDecodeError) as fault:
        raise Invalid(f"settings file {path} cannot be read: {fault}") from None
    import tomllib

    try:
        told = tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise Invalid(f"settings file {path} is not valid TOML: {fault}") from None
    _check_names(told, f"{path}: ")
    return told


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    names = {one.name for one in fields(Settings)} - _TABLES
    told = {name: environment.get(f"ROTA_{name.upper()}") for name in names}
    return {
        name: value
        for name, value in told.items()
        if value is not None and not is_link(f"ROTA_{name.upper()}", value)
    }


def stray_variables(environment: Mapping[str, str]) -> list[Stray]:
    """Variables that begin as ours do, and set nothing."""
    names = {one.name for one in fields(Settings)} - _TABLES
    switches = {f"executors_{one.name}" for one in fields(Executors)}
    tables = {
        "scheduler": {one.name for one in fields(Scheduler)},
        "retention": set(RETENTION),
        "executors": set[str](),  # the switches have variables
        "targets": None,
    }
    return strays(environment, names | switches, tables)


def _switches(environment: Mapping[str, str]) -> dict[str, str]:
    names = {one.name: f"ROTA_EXECUTORS_{one.name.upper()}" for one in fields(Executors)}
    return {name: environment[told] for name, told in names.items() if told in environment}


def _whole(value: Any, name: str) -> Any:
    if isinstance(value, str):
        if not value.isascii() or not value.isdigit():
            raise Invalid(f"{name} {value!r} must be a whole number")
        return int(value)
    return value


def _hint(name: str, known: set[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(sorted(known))}"
