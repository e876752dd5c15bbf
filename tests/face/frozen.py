"""The parts of the face beside their files."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.face.parts import PARTS, views
from tests.support.postgres import open_server

WIDTH = 110
FOLDER = Path(__file__).with_name("frozen")
ENGINES = ("views-sqlite", "views-duckdb", "views-postgres")


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.json"


def written(part: Any) -> str:
    """As JSON, with what fits on a line on one line: a difference is read in a screen."""
    return _written(part, "") + "\n"


def _written(part: Any, indent: str) -> str:
    line = json.dumps(part, ensure_ascii=False)
    if len(indent) + len(line) <= WIDTH or not isinstance(part, dict | list):
        return line
    inner = indent + " "
    if isinstance(part, list):
        return f"[\n{_lines((_written(one, inner) for one in part), inner)}\n{indent}]"
    members = (f"{json.dumps(name)}: {_written(one, inner)}" for name, one in part.items())
    return f"{{\n{_lines(members, inner)}\n{indent}}}"


def _lines(parts: Iterable[str], indent: str) -> str:
    return ",\n".join(indent + part for part in parts)


def collect(name: str) -> dict[str, Any]:
    if name in PARTS:
        return PARTS[name]()
    engine = name.removeprefix("views-")
    if engine == "postgres":
        with open_server() as server, server.database() as url:
            return views(url)
    with tempfile.TemporaryDirectory() as folder:
        return views(f"{engine}:///{folder}/rota.db")
