"""Queues: how much waits, why, and the switches."""

from __future__ import annotations

import re

from playwright.sync_api import Route, expect

from tests.browser.conftest import Opening
from tests.browser.shop import HOSTILE
from tests.browser.support import Site


def test_a_pause_in_one_tab_is_seen_in_another(site: Site, new_tab: Opening) -> None:
    one, other = new_tab(site, "operator"), new_tab(site, "viewer")
    one.open("/queues")
    other.open("/queues").is_live()
    row, seen = (tab.page.locator("tr[data-key=talk]") for tab in (one, other))
    expect(seen).to_contain_text("open")
    row.get_by_role("button", name="Pause queue talk").click()
    dialog = one.page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("the mail server moves")
    dialog.get_by_role("button", name="Pause").click()
    expect(seen.locator("[data-state=paused]")).to_be_visible()
    expect(seen).to_contain_text("by the-operator")
    expect(seen).to_contain_text("the mail server moves")
    expect(seen.get_by_role("button")).to_have_count(0)  # a viewer only looks

    run = site.enqueue("chatty")
    expect(seen.get_by_role("link", name="1")).to_be_visible()
    expect(other.page.get_by_label("Why runs wait")).to_contain_text("queue 'talk' is paused")

    row.get_by_role("button", name="Resume queue talk").click()
    one.page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect(seen.locator("[data-state=open]")).to_be_visible()
    assert site.ended(run)["state"] == "succeeded"
    expect(other.page.get_by_label("Why runs wait")).to_be_hidden()


def test_a_count_that_was_cut_short_says_so(site: Site, new_tab: Opening) -> None:
    tab = new_tab(site)

    def crowded(route: Route) -> None:
        told = route.fetch()
        queues = [one | {"capped": ["waiting"]} for one in told.json()["items"]]
        route.fulfill(response=told, json={"items": queues, "next": None})

    tab.page.route("**/api/v1/queues?*", crowded)
    row = tab.open("/queues").page.locator("tr[data-key=talk]")
    expect(row.locator("[data-label=waiting]")).to_have_text(re.compile(r"^\d+\+$"))
    expect(row.locator("[data-label=held]")).to_have_text("0")


def test_dispatch_that_is_off_is_said_first(site: Site, new_tab: Opening) -> None:
    one, other = new_tab(site, "operator").open("/queues"), new_tab(site).open("/queues").is_live()
    one.page.get_by_role("button", name="Pause all dispatch").click()
    dialog = one.page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("failover")
    dialog.get_by_role("button", name="Pause everything").click()
    notice = other.page.get_by_label("Dispatch is off")
    expect(notice).to_contain_text("paused by the-operator: failover")
    expect(notice.get_by_role("button")).to_have_count(0)
    one.page.get_by_role("button", name="Resume dispatch").click()
    one.page.get_by_role("dialog").get_by_role("button", name="Resume", exact=True).click()
    expect(notice).to_be_hidden()


def test_a_hostile_reason_is_only_shown(site: Site, new_tab: Opening) -> None:
    site.post("/queues/talk/pause", reason=HOSTILE)
    page = new_tab(site, phone=True).open("/queues").page
    expect(page.locator("tr[data-key=talk]")).to_contain_text("onerror=alert(1)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    site.post("/queues/talk/resume")
