"""The same dashboard on PostgreSQL: a run is seen to its end, an action in one tab in another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Opening
from tests.browser.support import Site, running


@pytest.fixture
def postgres_site(tmp_path: Path, postgres_url: str) -> Iterator[Site]:
    with running(tmp_path, database=postgres_url) as made:
        yield made


def test_the_screens_live_on_postgresql_too(postgres_site: Site, new_tab: Opening) -> None:
    site = postgres_site
    tab = new_tab(site, "operator").open("/runs").is_live()
    run = site.enqueue("gated", gate="postgres", total=2)
    row = tab.page.locator(f"tr[data-key='{run}']")
    expect(row).to_contain_text("0 of 2")
    site.open_gate("postgres", 0)
    expect(row).to_contain_text("1 of 2")
    site.open_gate("postgres", 1)
    expect(row).to_contain_text("succeeded")
    other = new_tab(site, "viewer").open("/schedules?q=hourly&sort=next").is_live()
    tab.open("/schedules/hourly")
    tab.act("Pause", reason="flour is late")
    expect(other.page.locator("tr[data-key=hourly]")).to_contain_text("flour is late")
    site.finish("broken")
    for route in ("/", "/timeline", "/timeline?span=31d", "/schedules/hourly", f"/runs/{run}"):
        tab.open(route)
        expect(tab.page.locator("main").get_by_text("Loading…")).to_have_count(0)
        expect(tab.page.get_by_text("could not be read")).to_have_count(0)
