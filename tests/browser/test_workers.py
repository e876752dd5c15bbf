"""Workers: what each runs now, who is gone, and the locks that are held."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from playwright.sync_api import expect

from rota.storage import operations
from rota.storage.store import open_store
from tests.browser.conftest import Opening
from tests.browser.support import Site


def test_a_worker_shows_what_it_runs_while_it_runs(site: Site, new_tab: Opening) -> None:
    page = new_tab(site).open("/workers").is_live().page
    card = page.locator("section.card", has=page.locator("[data-state=alive]"))
    expect(card).to_contain_text("of 10 slots")
    run = site.enqueue("gated", gate="of-the-worker", total=1)
    line = card.get_by_role("listitem").filter(has=page.locator(f"a[title='{run}']"))
    expect(line).to_contain_text("gated")
    expect(line).to_contain_text("0 of 1")
    site.open_gate("of-the-worker", 0)
    site.ended(run)
    expect(line).to_have_count(0)


def test_workers_are_not_dead_because_the_network_is(site: Site, new_tab: Opening) -> None:
    tab = new_tab(site)
    tab.page.clock.install()
    page = tab.open("/workers").is_live().page
    card = page.locator("section.card", has=page.locator("[data-state=alive]"))
    expect(card).to_be_visible()
    tab.allowed = ("ERR_FAILED",)
    page.route("**/api/v1/**", lambda route: route.abort())
    page.clock.fast_forward("01:30")
    expect(card).to_contain_text("1 min ago")
    expect(page.locator("[data-state=lost]")).to_have_count(0)


def test_one_that_is_gone_is_marked_and_locks_are_listed(site: Site, new_tab: Opening) -> None:
    url = f"sqlite:///{site.folder}/rota.db"
    past = open_store(url, clock=lambda: datetime.now(UTC) - timedelta(minutes=2))
    past.write(operations.put_worker, {
        "id": "gone-1", "host": "elsewhere", "pid": 7, "version": "0.1.0", "tzdata": "2026.1",
        "origin": None, "jobs": "[]", "queues": "[]", "slots": 4, "stuck": 1,
    })  # fmt: skip
    present = open_store(url, clock=lambda: datetime.now(UTC))
    token = present.write(operations.acquire_lock, "import", "somebody", 60)
    assert token is not None
    try:
        page = new_tab(site).open("/workers").page
        card = page.get_by_label("Worker gone-1")
        expect(card.locator("[data-state=lost]")).to_be_visible()
        expect(card).to_contain_text("look at its log on elsewhere")
        expect(card).to_contain_text("1 of its slots are stuck")
        expect(card).to_contain_text("it can run nothing")
        expect(page.get_by_role("table", name="Locks")).to_contain_text("somebody")
    finally:
        present.write(operations.release_lock, "import", token)
        present.write(operations.forget_worker, "gone-1")
        present.close()
        past.close()
