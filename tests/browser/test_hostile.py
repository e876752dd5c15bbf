"""Whatever people and programs write is shown as text: it runs nothing and breaks nothing."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Opening
from tests.browser.shop import HOSTILE
from tests.browser.support import Site

FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def hostile(site: Site) -> dict[str, str]:
    """A store with the worst in every field that takes free text."""
    dead = site.finish("broken", text=HOSTILE)["id"]
    site.post(f"/schedules/{'L' * 128}/pause", reason=HOSTILE[:2000])
    site.post("/queues/hostile/pause", reason=HOSTILE)
    greeted = site.finish("greet", name=HOSTILE)["id"]
    keyed = site.post("/jobs/greet/runs", delay="1h", correlation_id=HOSTILE)
    site.post(f"/runs/{keyed['id']}/cancel", reason=HOSTILE)
    return {"dead": dead, "greeted": greeted, "cancelled": keyed["id"]}


ROUTES = (
    "/", "/timeline", "/schedules", "/schedules/" + "L" * 128, "/runs", "/runs?state=dead",
    "/runs/{dead}", "/runs/{greeted}", "/runs/{cancelled}", "/jobs", "/jobs/broken", "/queues",
    "/workers", "/dead", "/sql", "/audit",
)  # fmt: skip


@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
def test_hostile_text_opens_no_dialog_and_breaks_no_layout(
    site: Site, hostile: dict[str, str], new_tab: Opening, phone: bool
) -> None:
    tab = new_tab(site, "operator", phone=phone)
    for route in ROUTES:
        tab.open(route.format(**hostile))
        expect(tab.page.locator("main").get_by_text("Loading…")).to_have_count(0)
        assert tab.page.evaluate(FITS), f"{route} is wider than the screen"
        assert tab.page.locator("img[src=x], script:not([src]):not([type=importmap])").count() == 0


def test_hostile_text_is_shown_as_it_is(
    site: Site, hostile: dict[str, str], new_tab: Opening
) -> None:
    tab = new_tab(site, "viewer").open(f"/runs/{hostile['dead']}")
    expect(tab.page.locator(".errortext")).to_contain_text(HOSTILE[:40])
    expect(tab.page.get_by_role("log")).to_contain_text(HOSTILE[:40])


@pytest.mark.parametrize(
    "route",
    [
        "/runs/%3Cscript%3E", "/schedules/%E0%A4%A", "/schedules/__proto__", "/runs?state=%22%3E",
        "/runs?before=x", "/timeline?at=x&span=9", "/schedules?sort=%27&q=%00", "/constructor",
        "/jobs/..%2F..%2Fetc", "?a=b", "/runs?job=" + "x" * 200,
    ],
)  # fmt: skip
def test_a_hostile_address_is_answered_with_words(site: Site, new_tab: Opening, route: str) -> None:
    tab = new_tab(site, "viewer")
    tab.allowed = ("404", "422", "400")
    tab.page.goto(f"{site.url}/#{route}")
    expect(tab.page.locator("main")).not_to_be_empty()
    expect(tab.page.locator("main").get_by_text("Loading…")).to_have_count(0)
    expect(tab.page.locator("main").get_by_text("This screen has failed")).to_have_count(0)
