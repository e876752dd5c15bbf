"""How an installation gets an extra depends on where it came from."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from rota import extras

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'rota[postgres]'"),
        (
            {"url": "file:///srv/my%20rota", "dir_info": {"editable": True}},
            "pip install '/srv/my rota[postgres]'",
        ),
        (
            {"url": "file:///srv/rota-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip install '/srv/rota-0.1.0-py3-none-any.whl[postgres]'",
        ),
        (
            {
                "url": "https://host.example/rota",
                "vcs_info": {"vcs": "git", "commit_id": "c0ffee"},
            },
            "pip install 'rota[postgres] @ git+https://host.example/rota@c0ffee'",
        ),
        (
            {"url": "https://host.example/rota-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip install 'rota[postgres] @ https://host.example/rota-0.1.0-py3-none-any.whl'",
        ),
    ],
)
def test_the_command_names_the_place_that_rota_came_from(
    origin: dict[str, Any] | None, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    information = tmp_path / "rota-0.1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: rota\nVersion: 0.1.0\n")
    if origin is not None:
        (information / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    assert extras.how_to_install("postgres") == command


def test_sources_that_were_never_installed_are_named_by_their_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.path", [])
    importlib.invalidate_caches()
    assert extras.how_to_install("web") == f"pip install '{ROOT}[web]'"


def test_what_is_missing_is_found_by_name_and_by_url(monkeypatch: pytest.MonkeyPatch) -> None:
    assert extras.missing("duckdb") == []
    assert extras.missing_for("duckdb:///a.duckdb") is None
    monkeypatch.setitem(extras.EXTRAS, "duckdb", ("duckdb", "no_such_package"))
    assert extras.missing("duckdb") == ["no_such_package"]
    assert extras.missing_for("duckdb:///a.duckdb") == "duckdb"
    assert extras.missing_for("sqlite:///a.db") is None
