"""docs/http.md has every route, limit, setting, event and code, as they are."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from rota.config import Settings
from rota.flow import follow
from rota.flow.events import NAMES
from rota.flow.look import DEAD_LOOKED
from rota.model import limits
from scripts import http_page
from tests.support.routes import ROLES

TEXT = http_page.PAGE.read_text("utf-8")
WEB = Path(http_page.__file__).parents[1] / "src" / "rota" / "web"


def test_the_routes_are_those_of_the_document() -> None:
    told = TEXT.partition(http_page.BEGIN)[2].partition(http_page.END)[0].strip()
    assert told == http_page.tables().strip(), "run python scripts/http_page.py"
    for method, path in ROLES:
        if path.startswith("/api/v1/") and not path.endswith("openapi.json"):
            assert f"| `{method} {path}` | {ROLES[method, path]} |" in told


def test_the_limits_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| [^|]+ \| ((?:`[A-Z_]+`(?:, )?)+) \| ([\d,. ]+) \|$", TEXT, re.MULTILINE)
    assert len(rows) > 10
    for names, values in rows:
        told = re.split(r", (?=\d)", values)
        for name, value in zip(re.findall(r"`([A-Z_]+)`", names), told, strict=True):
            assert float(value.replace(",", "")) == getattr(limits, name), name


def test_both_pages_say_how_many_dead_runs_are_grouped() -> None:
    docs = http_page.PAGE.parent
    dashboard = (docs / "dashboard.md").read_text("utf-8")
    assert f"The newest {DEAD_LOOKED:,} dead runs are grouped" in dashboard
    decision = (docs / "decisions" / "0028-lists-that-stay-quick.md").read_text("utf-8")
    assert (DEAD_LOOKED, "older than the newest thousand" in decision) == (1_000, True)


@pytest.mark.parametrize(
    "name", ["host", "port", "hosts", "open_local", "tls_certificate", "tls_key"]
)
def test_the_settings_are_on_the_page(name: str) -> None:
    assert name in {one.name for one in fields(Settings)}
    assert f"`{name}`" in TEXT.partition("## Settings")[2].partition("## ")[0]


def test_every_event_and_every_code_is_on_the_page() -> None:
    events = TEXT.partition("## Events")[2].partition("## ")[0]
    source = Path(follow.__file__).read_text("utf-8") + (WEB / "streams.py").read_text("utf-8")
    named = set(
        re.findall(r'"((?:run|job|attempt)\.[a-z]+|action|workers|more|resync|hello)"', source)
    )
    assert len(named) >= 9
    for name in named | set(NAMES):
        assert f"`{name}`" in events, name
    errors = TEXT.partition("| status | code |")[2].partition("## ")[0]
    for file in WEB.rglob("*.py"):
        for code in re.findall(
            r'(?:Refused|problem)\(\s*\d{3},\s*"([a-z-]+)"', file.read_text("utf-8")
        ):
            assert f"`{code}`" in errors, (code, file.name)
