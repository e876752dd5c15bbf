"""docs/configuration.md has every setting with its variable and its default, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from rota.config import Settings, load_settings
from rota.errors import Invalid
from rota.model.duration import format_duration
from rota.model.retention import RETENTION

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
ROW = re.compile(r"^\| `([a-z_.]+)` \| (?:`(\w+)`)? ?\| (.*?) ?\| (\S.*) \|$", re.MULTILINE)
TOLD = {row[0]: row[1:] for row in ROW.findall(PAGE.read_text("utf-8"))}


def settings() -> Iterator[tuple[str, object]]:
    """Every name with its default; those of a table have the name of the table before them."""
    for one in fields(Settings):
        value = getattr(Settings(), one.name)
        if one.name == "retention":
            yield from ((f"retention.{state}", age) for state, age in RETENTION.items())
        elif is_dataclass(value):
            for part in fields(value):
                yield f"{one.name}.{part.name}", getattr(value, part.name)
        yield one.name, value


def shown(value: object) -> str:
    match value:
        case bool():
            return f"`{str(value).lower()}`"
        case timedelta():
            return f"`{format_duration(value)}`" if value else "none"
        case None | ():
            return "none"
        case str() | int():
            return f"`{value}`"
        case _:  # a table: its parts have defaults
            return ""


def test_every_setting_is_on_the_page_with_its_default() -> None:
    assert {name: told[1] for name, told in TOLD.items()} == {
        name: shown(value) for name, value in settings()
    }


SAMPLES = {
    "executors.http_allow": ("10.0.0.0/8", ("10.0.0.0/8",)),
    "executors.shell": ("true", True),
    "executors.http": ("true", True),
    "database": ("sqlite:///other.db", "sqlite:///other.db"),
    "timezone": ("Europe/Paris", "Europe/Paris"),
    "default_target": ("store", "store"),
    "open_local": ("true", True),
    "lease": ("7s", timedelta(seconds=7)),
    "grace": ("7s", timedelta(seconds=7)),
    "queues": ("mail,slow", ("mail", "slow")),
    "hosts": ("a.example.org,b", ("a.example.org", "b")),
    **dict.fromkeys(("port", "slots", "max_lost", "keep_last"), ("7", 7)),
}


@pytest.mark.parametrize("name", [name for name, told in TOLD.items() if told[0]])
def test_each_variable_sets_it(name: str) -> None:
    text, value = SAMPLES.get(name, ("word", "word"))
    environment = {TOLD[name][0]: text}
    if name == "tls_key":
        environment["ROTA_TLS_CERTIFICATE"] = "file.pem"
    found: object = load_settings(environment=environment)
    for part in name.split("."):
        found = getattr(found, part)
    assert found == value


def test_every_variable_that_is_read_is_on_the_page() -> None:
    """Asked by reading: nonsense is refused as a value, or found in the settings."""
    for name, _ in settings():
        variable = "ROTA_" + name.replace(".", "_").upper()
        try:
            read = load_settings(environment={variable: "no such\0thing"}) != Settings()
        except Invalid as problem:
            read = f"{variable} sets nothing" not in str(problem)
        assert read == (TOLD[name][0] == variable), variable
