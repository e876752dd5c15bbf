"""Executors by name."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from rota.errors import Invalid, Unknown
from rota.executors import registry as module
from rota.executors.context import Context
from rota.executors.registry import Registry
from rota.model.job import Job
from rota.model.outcome import Outcome


class Plain:
    def __init__(self) -> None:
        self.closed = False

    def check(self, job: Job) -> None:
        pass

    def run(self, context: Context) -> Outcome:
        return Outcome(kind="succeeded")

    def close(self) -> None:
        self.closed = True
        raise OSError("close failed")


READY = Plain()


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    here = __name__
    points = [
        EntryPoint("plain", f"{here}:Plain", module.GROUP),
        EntryPoint("ready", f"{here}:READY", module.GROUP),
        EntryPoint("broken", "no_such_module:Executor", module.GROUP),
        EntryPoint("wrong", "builtins:dict", module.GROUP),
        EntryPoint("python", f"{here}:READY", module.GROUP),
    ]
    monkeypatch.setattr(module, "entry_points", lambda group: points)


@pytest.mark.usefixtures("offered")
def test_entry_points_are_loaded_once_when_asked_for() -> None:
    registry = Registry()
    assert isinstance(registry.get("plain"), Plain)
    assert registry.get("plain") is registry.get("plain")
    assert registry.get("ready") is READY
    assert registry.names() == ["broken", "plain", "ready", "wrong"]


@pytest.mark.usefixtures("offered")
@pytest.mark.parametrize("name", ["broken", "wrong"])
def test_a_broken_entry_point_is_named(name: str) -> None:
    with pytest.raises(Invalid, match=f"executor '{name}'"):
        Registry().get(name)


@pytest.mark.usefixtures("offered")
def test_no_package_takes_the_place_of_a_built_in() -> None:
    with pytest.raises(Unknown):
        Registry().get("python")
    assert Registry().is_builtin("python")
    assert not Registry().is_builtin("plain")


@pytest.mark.usefixtures("offered")
def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(Unknown, match="executor 'plian' is unknown; did you mean 'plain'"):
        Registry().get("plian")


def test_factories_are_called_once_and_replaced_by_register() -> None:
    made: list[Any] = []

    def factory() -> Plain:
        made.append(Plain())
        return made[-1]  # type: ignore[no-any-return]

    registry = Registry({"sql": factory})
    assert made == []
    assert registry.get("sql") is registry.get("sql") is made[0]
    registry.register("sql", READY)
    assert registry.get("sql") is READY
    assert len(made) == 1


def test_all_are_closed_even_if_one_fails() -> None:
    first, second = Plain(), Plain()
    registry = Registry()
    registry.register("a", first)
    registry.register("b", second)
    registry.close()
    assert first.closed
    assert second.closed
