"""The audit: who did what, from where, and what it changed."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.conftest import Opening
from tests.browser.shop import HOSTILE
from tests.browser.support import Site


def test_a_change_is_there_at_once_with_what_differs(site: Site, new_tab: Opening) -> None:
    page = new_tab(site).open("/audit").is_live().page
    site.post("/schedules/nightly/pause", reason="end of year")
    row = page.locator("tbody tr").first
    expect(row).to_contain_text("pause schedule nightly")
    expect(row).to_contain_text("end of year")
    expect(row).to_contain_text("http 127.0.0.1")
    expect(row.locator("del")).to_contain_text("false")
    expect(row.locator("ins")).to_contain_text("true")
    site.post("/schedules/nightly/resume")
    expect(page.locator("tbody tr").first).to_contain_text("resume schedule nightly")


def test_filters_are_in_the_address_and_pages_keep_them(site: Site, new_tab: Opening) -> None:
    for _ in range(55):
        site.enqueue("greet")
    page = new_tab(site).open("/audit").page
    expect(page.get_by_label("Action").get_by_role("option", name="prune")).to_be_attached()
    page.get_by_label("Action").select_option("enqueue")
    expect(page).to_have_url(re.compile("action=enqueue"))
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="first", exact=True).first.click()
    expect(page).to_have_url(re.compile("by=first"))
    newest = rows.first.get_attribute("data-key")
    page.get_by_role("button", name="More").click()
    expect(page).to_have_url(re.compile("action=enqueue.*before="))
    expect(rows.first).not_to_have_attribute("data-key", newest or "")
    page.get_by_role("button", name="Remove the filter who").click()
    expect(page).not_to_have_url(re.compile("by=first"))
    page.get_by_label("Search the audit").fill("no such thing anywhere")
    expect(page.get_by_text("Nobody did anything that fits")).to_be_visible()
    page.get_by_role("button", name="Show all").click()
    expect(rows.first).to_be_visible()


def test_a_hostile_reason_is_only_shown(site: Site, new_tab: Opening) -> None:
    site.post("/queues/talk/pause", reason=HOSTILE)
    site.post("/queues/talk/resume")
    page = new_tab(site, phone=True).open("/audit?action=pause_queue").page
    expect(page.locator("tbody tr").first).to_contain_text("onerror=alert(1)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("main img").count() == 0
