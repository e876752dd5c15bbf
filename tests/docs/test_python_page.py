"""docs/python.md names everything public with its parameters, and its blocks run as they stand."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

import rota
from rota import testing
from rota.executors.context import Lock
from rota.executors.keeping import Storage
from rota.flow.control import Control
from rota.model.options import SCHEDULE_OPTIONS
from rota.model.run import Run
from rota.task import ENQUEUE_OPTIONS, HeldLock

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
TEXT = PAGE.read_text("utf-8")
_, *_parts = re.split(r"^## (.*)$", TEXT, flags=re.MULTILINE)
SECTIONS = dict(zip(_parts[::2], _parts[1::2], strict=True))
# The wiring of the app, for the rooms of Rota itself.
OF_ROTA = {
    "check_file_job", "control_as", "counters", "drop_file_job", "events", "executors",
    "file_scripts", "forget_web", "python", "serve_folder", "serve_web", "set_file_job", "storage",
    "targets", "tell_jobs", "woken", "worker_id",
}  # fmt: skip
# For executors and workers; docs/executors.md tells those that an executor may use.
OF_EXECUTORS = {
    "add_secrets", "close", "definition", "heard_stop", "in_child", "on_stop", "port",
    "secrets", "span", "steps", "stop", "stoppable", "stopped_at", "target", "trace",
    "waited", "waiting", "waiting_since",
}  # fmt: skip
# What screens and commands are drawn from: shapes that follow them.
OF_SURFACES = {
    "activity", "adopt_token", "as_actor", "bulk", "cancel_retired", "counts", "dead_groups",
    "dead_runs", "density", "dialect", "durations", "enqueue", "find_audit", "find_jobs",
    "find_schedules", "good_since", "jobs_named", "log_tail", "put_schedule", "queue_work",
    "recent_outcomes", "running_by_schedule", "runs_beginning", "schedule_name", "schedule_names",
    "schedules_of", "texts", "timeline", "within",
}  # fmt: skip


def public(of: object, without: Collection[str] = frozenset()) -> list[str]:
    # What an object gets when it is made is declared on its class.
    told = {*dir(of), *getattr(of, "__annotations__", ())}
    names = sorted(name for name in told if not name.startswith("_"))
    assert set(without) <= set(names), set(without) - set(names)
    return [name for name in names if name not in without]


def parameters(function: Any) -> list[str]:
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    told = inspect.signature(function).parameters.values()
    return [one.name for one in told if one.name != "self" and one.kind not in kinds]


def called(owner: Any, name: str, section: str) -> None:
    """`name(parameter, …)` stands in the section, with all of its parameters in their order."""
    wanted = ", ".join(parameters(getattr(owner, name)))
    assert f"{name}({wanted})`" in section, f"{name}({wanted})"


def test_every_name_of_the_package_is_documented() -> None:
    errors = (PAGE.parent / "errors.md").read_text("utf-8")
    for name in rota.__all__:
        if inspect.isclass(found := getattr(rota, name)) and issubclass(found, rota.RotaError):
            assert f"`{name}`" in errors, name
        else:
            assert f"rota.{name}" in TEXT, name


@pytest.mark.parametrize(
    ("section", "names"),
    [
        ("Jobs", parameters(rota.Rota.job)),
        ("Schedules", [*SCHEDULE_OPTIONS, *parameters(rota.Rota.schedule)]),
        ("Enqueue", sorted(ENQUEUE_OPTIONS)),
        ("Context", public(rota.Context, OF_EXECUTORS)),
        ("Context", [*public(Lock, {"port"}), *public(HeldLock, {"storage"})]),
        ("Files that outlive a run", rota.KeptFile.__struct_fields__),
        ("Runs", [*Run.__dataclass_fields__]),
    ],
)
def test_every_option_and_member_is_in_its_section(section: str, names: list[str]) -> None:
    assert names
    for name in names:
        assert re.search(rf"`(?:[^`]*[ (])?{name}\b[^`]*`", SECTIONS[section]), name


def test_every_method_has_its_parameters() -> None:
    for name in ("Snooze", "Cancel", "Retry"):
        wanted = ", ".join(parameters(getattr(rota, name)))
        assert f"`rota.{name}({wanted})`" in SECTIONS["What a handler may say"], name
    for name in public(Storage):
        called(Storage, name, SECTIONS["Files that outlive a run"])
    for name in ("wait", "progress", "extend_lease", "lock"):
        called(rota.Context, name, SECTIONS["Context"])
    for name in public(rota.Task, {"name"}):
        assert f"send.{name}(" in SECTIONS["Enqueue"], name
    app = SECTIONS["The app"]
    for name in public(rota.Rota, OF_ROTA - {"counters", "events", "executors", "python"}):
        if callable(getattr(rota.Rota, name)) and name not in ("job", "schedule", "enqueue"):
            called(rota.Rota, name, app)
        elif name not in ("job", "schedule"):
            assert f"`{name}" in app, name
    for name in public(Control, OF_SURFACES):
        called(Control, name, SECTIONS["Control"])


def test_every_name_for_tests_is_documented() -> None:
    section = SECTIONS["Tests"]
    for name in public(testing.Clock):
        called(testing.Clock, name, section.replace("clock.", ""))
    for name in public(testing.Driver):
        called(testing.Driver, name, section)
    for name in ("TestApp", "in_memory", "Driver", "Clock"):
        assert re.search(rf"`{name}\b", section), name
    for name in [*parameters(testing.TestApp), *parameters(testing.in_memory)]:
        assert re.search(rf"\b{name}\b", section), name
