"""Jobs, queues, workers, dead letters, console and audit are for everyone: nothing is grave."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.axe import grave
from tests.browser.conftest import Opening
from tests.browser.support import Site

ROUTES = ("/jobs", "/jobs/gated", "/queues", "/workers", "/dead", "/sql", "/audit")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("route", ROUTES)
def test_nothing_grave(site: Site, new_tab: Opening, route: str, dark: bool) -> None:
    site.finish("broken", text="for axe")
    site.post("/queues/talk/pause", reason="for axe")
    page = new_tab(site, "admin", dark=dark).open(route).page
    expect(page.get_by_text("Loading…")).to_have_count(0)
    if route == "/sql":
        editor = page.get_by_label("SQL", exact=True)
        editor.fill("SELECT seq, created_at, state FROM runs LIMIT 5")
        editor.press("Control+Enter")
        page.get_by_role("button", name="Chart").click()
        editor.press("Control+End")
        editor.press_sequentially("; SHOW S")
        expect(page.get_by_role("listbox")).to_be_visible()
    if route == "/dead":
        page.locator(".error-line").first.click()
        expect(page.locator(".error-text").first).to_be_visible()
    assert grave(page) == []
    site.post("/queues/talk/resume")
