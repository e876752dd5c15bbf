"""docs/errors.md has every error with what surfaces make of it, every event, field and action."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import fields
from pathlib import Path

import rota
from rota import errors
from rota.cli.main import _WRONG_USE
from rota.flow.events import NAMES, RunEvent
from rota.web.errors import of_error

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "errors.md").read_text("utf-8")
SOURCE = Path(rota.__file__).parent
_, ERRORS, EVENTS, ACTIONS = re.split(r"^## .*$", TEXT, flags=re.MULTILINE)


def rows(part: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in re.findall(r"^\| `.*$", part, re.MULTILINE)]


def named(part: str) -> set[str]:
    return {name for row in rows(part) for name in re.findall(r"`([\w.]+)`", row[0])}


def test_every_error_is_there_with_what_surfaces_make_of_it() -> None:
    told = {row[0].strip("`"): row for row in rows(ERRORS)}
    ours = [one for one in vars(errors).values() if inspect.isclass(one)]
    assert list(told) == [one.__name__ for one in ours]
    for kind in ours:
        assert kind.__name__ in rota.__all__
        assert getattr(rota, kind.__name__) is kind
    for kind in ours[1:]:
        _, means, _, answer, exit_code = told[kind.__name__]
        problem = of_error(kind("x"))
        assert answer == f"{problem.status_code} `{json.loads(problem.body)['code']}`", kind
        assert exit_code == ("2" if issubclass(kind, _WRONG_USE) else "1"), kind
        for base in set(kind.__bases__) - {errors.RotaError}:
            assert f"`{base.__name__}`" in means, (kind, base)


def test_every_event_and_field_is_there() -> None:
    listeners, _, names = EVENTS.partition("| field |")
    assert named(listeners) == set(NAMES)
    assert named(names) == {one.name for one in fields(RunEvent)}
    stored = "\n".join(path.read_text("utf-8") for path in SOURCE.rglob("*.sql"))
    written = "\n".join(path.read_text("utf-8") for path in SOURCE.rglob("*.py"))
    others = {*re.findall(r"'(run\.\w+)'", stored), *re.findall(r'"(run\.\w+)"', written)}
    assert len(others) >= 4
    for name in others:
        assert f"`{name}`" in EVENTS, name


def test_every_action_of_the_audit_is_there() -> None:
    code = "\n".join(path.read_text("utf-8") for path in SOURCE.rglob("*.py"))
    found = {
        *re.findall(r'\baudit\(\s*tx, actor, "(\w+)"', code),
        *re.findall(r'record_action,\s*(?:self\.actor|actor\(\)), "(\w+)"', code),
        *re.findall(r'_audited\(\s*"(\w+)"', code),
        *(f"{one}_schedule" for one in re.findall(r'record_change\(tx, \w+, \w+, "(\w+)"', code)),
        *(
            f"{one}_schedule"
            for one in re.findall(r'record_changes\(.*?, (?:actor|SYSTEM), "(\w+)"', code)
        ),
        *re.findall(r'"((?:pause|resume)_(?:dispatch|run))"', code),
    }
    assert len(found) > 18
    assert named(ACTIONS) == found
