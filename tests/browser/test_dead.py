"""Dead letters: one error, one group; one decision for all of it."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.conftest import Opening
from tests.browser.shop import HOSTILE
from tests.browser.support import Site


def die(site: Site, *texts: str) -> list[str]:
    runs = [site.enqueue("broken", text=text) for text in texts]
    assert all(site.ended(run)["state"] == "dead" for run in runs)
    return runs


def test_a_group_is_opened_and_redone_and_filters_stay(site: Site, new_tab: Opening) -> None:
    runs = die(site, *(f"parcel {number} is lost" for number in range(3)))
    page = new_tab(site, "operator").open("/dead?q=parcel").page
    row = page.get_by_role("table", name="Groups of dead runs").locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("RuntimeError: parcel")
    expect(row.locator("td", has_text=re.compile("^3$"))).to_be_visible()
    row.locator(".dead-error").click()
    group = page.get_by_label("Runs of broken that died of this").first
    expect(group.locator("tbody tr")).to_have_count(3)
    expect(group).to_contain_text("raise RuntimeError(text)")
    row.get_by_role("button", name="Redo all 3 dead runs of broken").click()
    page.get_by_role("dialog").get_by_role("button", name="Redo all").click()
    expect(page.get_by_role("status", name="Redo 3 dead runs of broken")).to_contain_text("3 done")
    for run in runs:
        assert site.ended(run)["redo"] == 1
    expect(page).to_have_url(re.compile("q=parcel"))


def test_what_is_shown_is_deleted_and_nothing_else(site: Site, new_tab: Opening) -> None:
    gone = die(site, "old letter, from Ada", "old letter, from Bob")
    (kept,) = die(site, "another thing")
    page = new_tab(site, "operator").open("/dead?q=old+letter").page
    page.get_by_role("button", name="Delete all that are shown").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("2 dead runs in 2 groups")
    dialog.get_by_role("button", name="Delete all").click()
    expect(page.get_by_role("status", name=re.compile("^Delete"))).to_contain_text("2 done")
    expect(page.get_by_text("No dead run fits these filters")).to_be_visible()
    assert all(site.api.get(f"/runs/{run}").status_code == 404 for run in gone)
    assert site.get(f"/runs/{kept}")["state"] == "dead"


def test_a_viewer_looks_and_a_hostile_error_does_nothing(site: Site, new_tab: Opening) -> None:
    die(site, HOSTILE)
    page = new_tab(site, "viewer", phone=True).open("/dead?q=onerror").page
    row = page.get_by_role("table", name="Groups of dead runs").locator("tbody tr")
    expect(row).to_contain_text("<img src=x onerror=alert(1)>")
    row.locator(".dead-error").click()
    expect(page.locator(".error-text").first).to_contain_text("onerror=alert(1)")
    expect(page.get_by_role("button", name=re.compile("Redo|Delete"))).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("main img").count() == 0
