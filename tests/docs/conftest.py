"""Pages are told with the command line of the surface tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.story import Story
from tests.surface.conftest import Cli, cli

__all__ = ["cli"]


@pytest.fixture
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    # Stories are told side by side, and the usual port is for people.
    monkeypatch.setenv("ROTA_PORT", "0")


@pytest.fixture
def story(surroundings: None, cli: Cli, tmp_path: Path) -> Iterator[Story]:
    told = Story(cli, tmp_path)
    yield told
    told.close()
