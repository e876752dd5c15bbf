"""Every screen can be used by everyone: axe-core finds nothing serious, in both looks."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Opening
from tests.browser.support import HERE, Site

AXE = (HERE / "vendor/axe.min.js").read_text("utf-8")
RUN = """async () => (await axe.run(document, {resultTypes: ['violations']})).violations
    .filter((one) => ['serious', 'critical'].includes(one.impact))
    .map((one) => [one.id, one.help, ...one.nodes.slice(0, 3).map((node) =>
        `${node.html.slice(0, 160)} ${node.any.map((check) => check.message).join(' ')}`)]
        .join('\\n    '))"""
ROUTES = (
    "/", "/timeline?span=6h", "/schedules", "/schedules/nightly", "/schedules/ticking", "/runs",
    "/runs/{dead}", "/runs/{bread}", "/jobs", "/jobs/broken", "/queues", "/workers", "/dead",
    "/sql", "/audit",
)  # fmt: skip


@pytest.fixture(scope="module")
def lively(site: Site) -> dict[str, str]:
    site.finish("greet")
    site.post("/jobs/greet/runs", delay="1h")
    site.post("/schedules", name="ticking", job="greet", every="1s")
    with site.api.stream("GET", f"{site.url}/events") as events:  # until it has fired once
        next(line for line in events.iter_lines() if '"schedule_name":"ticking"' in line)
    site.post("/schedules/ticking/pause", reason="once is enough")
    return {"dead": site.finish("broken")["id"], "bread": site.finish("bread")["id"]}


@pytest.mark.parametrize(("phone", "dark"), [(False, False), (False, True), (True, True)])
def test_nothing_serious_is_found_on_any_screen(
    site: Site, lively: dict[str, Any], new_tab: Opening, phone: bool, dark: bool
) -> None:
    tab = new_tab(site, "operator", phone=phone, dark=dark)
    found: dict[str, list[str]] = {}
    for route in ROUTES:
        tab.open(route.format(**lively)).is_live()
        expect(tab.page.locator("main").get_by_text("Loading…")).to_have_count(0)
        if not tab.page.evaluate("typeof axe === 'object'"):
            tab.page.evaluate(AXE)
        if wrong := tab.page.evaluate(RUN):
            found[route] = wrong
    assert not found, "\n".join(f"{route}\n{line}" for route in found for line in found[route])


def test_dialogs_and_the_login_are_found_good_too(site: Site, new_tab: Opening) -> None:
    tab = new_tab(site, "operator").open("/schedules/nightly")
    tab.page.evaluate(AXE)
    for name in ("Pause…", "Edit…", "Run now…"):
        tab.page.get_by_role("button", name=name).click()
        expect(tab.page.get_by_role("dialog")).to_be_visible()
        assert tab.page.evaluate(RUN) == []
        tab.page.keyboard.press("Escape")
    tab.page.keyboard.press("?")
    assert tab.page.evaluate(RUN) == []
    other = new_tab(site).open()
    other.page.evaluate(AXE)
    other.page.get_by_role("button", name="Log in").click()
    assert other.page.evaluate(RUN) == []


def test_axe_finds_what_is_wrong(site: Site, new_tab: Opening) -> None:
    """The check can fail."""
    tab = new_tab(site).open()
    tab.page.evaluate(AXE)
    tab.page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    assert any("button-name" in one for one in tab.page.evaluate(RUN))
