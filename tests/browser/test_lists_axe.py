"""What is opened by a key or a click is for everyone, too: axe-core finds nothing serious."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Opening
from tests.browser.support import Site
from tests.browser.test_axe import AXE, RUN

LOOKS = pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])


@LOOKS
def test_the_console_with_completion_and_chart(site: Site, new_tab: Opening, dark: bool) -> None:
    site.finish("greet")
    site.finish("greet")
    page = new_tab(site, "admin", dark=dark).open("/sql").page
    editor = page.get_by_label("SQL", exact=True)
    editor.fill("SELECT seq, created_at, state FROM runs LIMIT 5")
    editor.press("Control+Enter")
    page.get_by_role("button", name="Chart").click()
    editor.press("Control+End")
    editor.press_sequentially("; SHOW S")
    expect(page.get_by_role("listbox")).to_be_visible()
    page.evaluate(AXE)
    assert page.evaluate(RUN) == []


@LOOKS
def test_an_open_group_of_dead_runs(site: Site, new_tab: Opening, dark: bool) -> None:
    site.finish("broken", text="for axe")
    page = new_tab(site, "admin", dark=dark).open("/dead?q=for+axe").page
    page.locator(".dead-error").first.click()
    expect(page.locator(".error-text").first).to_be_visible()
    page.evaluate(AXE)
    assert page.evaluate(RUN) == []


@LOOKS
def test_a_form_with_faults_and_a_paused_queue(site: Site, new_tab: Opening, dark: bool) -> None:
    page = new_tab(site, "operator", dark=dark).open("/jobs/gated").page
    page.get_by_role("form", name="Run gated").get_by_role("button", name="Run").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.evaluate(AXE)
    assert page.evaluate(RUN) == []
    site.post("/queues/talk/pause", reason="for axe")
    page.goto(f"{site.url}/#/queues")
    expect(page.locator("tr[data-key=talk] [data-state=paused]")).to_be_visible()
    assert page.evaluate(RUN) == []
    site.post("/queues/talk/resume")
