from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts import chromium
from tests.browser.support import FLAGS, Site, Tab, running

playwright = pytest.importorskip("playwright.sync_api")


@pytest.fixture(scope="session")
def browser() -> Iterator[playwright.Browser]:
    """One chromium for all tests; each tab has a context, and so a profile, of its own."""
    path = chromium.found()
    if path is None:
        word = "no chromium: apt-get install chromium, or set ROTA_TEST_CHROMIUM to one"
        if os.environ.get("CI"):
            pytest.fail(word)
        pytest.skip(word)
    with (
        tempfile.TemporaryDirectory(prefix="rota-chromium-") as home,
        playwright.sync_playwright() as driver,
    ):
        made = driver.chromium.launch(
            executable_path=path, args=FLAGS, env={**os.environ, "HOME": home}
        )
        yield made
        made.close()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """On SQLite, for every test that leaves the others' things alone."""
    with running(tmp_path_factory.mktemp("site")) as made:
        yield made


@pytest.fixture
def open_site(tmp_path: Path) -> Iterator[Site]:
    """A fresh one, with --open-local."""
    with running(tmp_path, local=True) as made:
        yield made


Opening = Callable[..., Tab]


@pytest.fixture
def new_tab(browser: playwright.Browser) -> Iterator[Opening]:
    """new_tab(site, role="operator", phone=True, dark=True): a browser of its own, logged in."""
    tabs: list[Tab] = []

    def make(
        site: Site, role: str | None = None, *, phone: bool = False, dark: bool = False
    ) -> Tab:
        context = browser.new_context(
            viewport={"width": 390, "height": 844} if phone else {"width": 1280, "height": 900},
            color_scheme="dark" if dark else "light",
        )
        tab = Tab(context, site)
        tabs.append(tab)
        return tab if role is None else tab.login(role)

    yield make
    for tab in tabs:
        tab.page.context.close()
    for tab in tabs:
        tab.check()
