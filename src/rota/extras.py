"""Packages beyond the core: which extra of Rota brings them, and how this installation gets one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

EXTRAS: Final = {
    "postgres": ("psycopg",),
    "duckdb": ("duckdb", "pytz"),
    "web": ("starlette", "uvicorn", "prometheus_client"),
    "otel": ("opentelemetry",),
}
# Which extra a store or a target needs, by the scheme of its URL.
OF_SCHEME: Final = {"postgresql": "postgres", "postgres": "postgres", "duckdb": "duckdb"}


def missing(extra: str) -> list[str]:
    """The packages of an extra that are not installed."""
    from importlib.util import find_spec  # not by every command

    return [name for name in EXTRAS[extra] if find_spec(name) is None]


def missing_for(url: str) -> str | None:
    """The extra that a store or a target needs and that is not installed."""
    extra = OF_SCHEME.get(url.partition(":")[0])
    return extra if extra is not None and missing(extra) else None


def how_to_install(extra: str) -> str:
    """The command that adds an extra: Rota comes from where this installation came from."""
    from shlex import quote  # rarely needed, and commands shall be quick

    return f"pip install {quote(_requirement(extra))}"


def _requirement(extra: str) -> str:
    # It loads zipfile and email: a tenth of the time of a short command.
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        text = distribution("rota").read_text("direct_url.json")
    except PackageNotFoundError:  # a folder of sources on PYTHONPATH
        folder = Path(__file__).resolve().parents[2]
        return f"{folder}[{extra}]" if (folder / "pyproject.toml").exists() else f"rota[{extra}]"
    origin: dict[str, Any] = json.loads(text) if text else {}
    url: str = origin.get("url", "")
    if url.startswith("file:"):
        return f"{unquote(urlsplit(url).path)}[{extra}]"
    if revision := origin.get("vcs_info"):
        return f"rota[{extra}] @ {revision['vcs']}+{url}@{revision['commit_id']}"
    return f"rota[{extra}] @ {url}" if url else f"rota[{extra}]"
