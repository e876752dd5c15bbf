"""The docs as a site: built without a warning and without network, and asking nobody else."""

from __future__ import annotations

import json
import re
import shutil
import socket
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(page.relative_to(DOCS).with_suffix("") for page in DOCS.rglob("*.md"))


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the site is built without network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def make(docs: Path, site: Path) -> None:
    """As `make docs` does it: a warning is an error."""
    config = load_config(str(ROOT / "mkdocs.yml"), docs_dir=str(docs), site_dir=str(site))
    build(config)


@pytest.mark.usefixtures("offline")
def test_the_site_is_built_and_asks_nobody_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    try:
        make(DOCS, tmp_path)
    except Abort:
        pytest.fail(caplog.text)
    index = json.loads(read(tmp_path / "search" / "search_index.json"))
    assert {f"{page}.html" for page in PAGES} <= {one["location"] for one in index["docs"]}
    for file in tmp_path.rglob("*.html"):
        html = read(file)
        assert "```" not in html, f"a block of {file.name} is not understood"
        assert not re.search(r"<p>(?:(?!</p>).)*\n- ", html, re.DOTALL), (
            f"{file.name}: a list needs an empty line before it"
        )
        for tag in re.findall(r'<(?!a )[^>]*(?:src|href|url)="?(?:https?:)?//[^>]*>', html):
            pytest.fail(f"{file.name} loads from elsewhere: {tag}")


def test_what_is_broken_stops_it_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    docs = tmp_path / "docs"
    shutil.copytree(DOCS, docs)
    lines = ["[a](page.md)", "[b](sql.md#part)", "[c](../beside.toml)", "![d](images/picture.png)"]
    (docs / "metrics.md").write_text("\n\n".join([read(docs / "metrics.md"), *lines]))
    (docs / "lost.md").write_text("# In no navigation\n")
    with pytest.raises(Abort):
        make(docs, tmp_path / "site")
    for name in ("page.md", "#part", "../beside.toml", "images/picture.png", "lost.md"):
        assert name in caplog.text


def read(file: Path) -> str:
    return file.read_text("utf-8")
