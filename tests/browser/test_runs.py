"""Runs: seen as they start, move on and end; filtered, cancelled and done again."""

from __future__ import annotations

import re

from playwright.sync_api import Route, expect

from tests.browser.conftest import Opening
from tests.browser.support import Site


def test_a_run_is_seen_to_start_to_move_on_and_to_finish(site: Site, new_tab: Opening) -> None:
    tab = new_tab(site, "viewer").open("/runs?job=gated").is_live()
    run = site.enqueue("gated", gate="seen", total=3)
    row = tab.page.locator(f"tr[data-key='{run}']")
    expect(row).to_contain_text("running")
    expect(row).to_contain_text("0 of 3")
    site.open_gate("seen", 0)
    expect(row).to_contain_text("1 of 3")
    site.open_gate("seen", 1)
    expect(row).to_contain_text("2 of 3")
    site.open_gate("seen", 2)
    expect(row).to_contain_text("succeeded")


def test_a_log_is_followed_to_its_end(site: Site, new_tab: Opening) -> None:
    run = site.enqueue("gated", gate="log", total=3)
    tab = new_tab(site, "viewer").open(f"/runs/{run}").is_live()
    log = tab.page.get_by_role("log")
    for step in range(3):
        expect(log).to_contain_text(f"step {step + 1} of 3")
        expect(tab.page.get_by_role("progressbar", name="Progress")).to_have_attribute(
            "aria-valuenow", str(round(step * 100 / 3))
        )
        site.open_gate("log", step)
    expect(tab.badge("succeeded")).to_be_visible()
    expect(tab.page.get_by_text("following")).to_have_count(0)
    expect(tab.page.get_by_text('"gate": "open"')).to_be_visible()


def test_a_log_is_followed_on_when_the_store_was_away(site: Site, new_tab: Opening) -> None:
    run = site.enqueue("gated", gate="away", total=2)
    tab = new_tab(site, "viewer")
    away = 'event: end\ndata: {"state": null}\n\n'
    tab.page.route(
        "**/logs/stream?*",
        lambda route: route.fulfill(body=away, content_type="text/event-stream"),
        times=1,
    )
    tab.open(f"/runs/{run}").is_live()
    log = tab.page.get_by_role("log")
    expect(log).to_contain_text("step 1 of 2")
    site.open_gate("away", 0)
    expect(log).to_contain_text("step 2 of 2")
    site.open_gate("away", 1)
    expect(tab.page.get_by_text("following")).to_have_count(0)


def test_a_log_of_any_length_is_shown_without_a_hole(site: Site, new_tab: Opening) -> None:
    run = site.enqueue("chatty", lines=2_100, gate="flood")
    tab = new_tab(site, "viewer").open(f"/runs/{run}").is_live()
    log = tab.page.get_by_role("log")
    earlier = log.get_by_role("button", name="earlier lines")
    later = log.get_by_role("button", name="later lines")
    lines = log.locator(".text")
    expect(lines.last).to_have_text("line 2100")

    def without_hole() -> tuple[int, int]:
        texts = [one for one in lines.all_inner_texts() if one.startswith("line ")]
        numbers = [int(one.removeprefix("line ")) for one in texts]
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        return numbers[0], numbers[-1]

    first, _ = without_hole()
    while first > 1:  # what was cut off, or never asked for, is offered
        earlier.click()
        expect(lines.first).to_have_text(f"line {max(1, first - 200)}")
        first, last = without_hole()
    assert last < 2_100
    expect(earlier).to_have_count(0)
    expect(tab.page.get_by_text("following")).to_have_count(0)
    site.open_gate("flood", 0)  # nothing is added behind a gap
    expect(later).to_be_visible()
    tab.page.route("**/logs?after=*", lambda route: route.abort())
    tab.allowed = ("ERR_FAILED",)
    later.click()
    expect(tab.page.locator(".toast")).to_contain_text("the server does not answer")
    assert without_hole() == (1, last)
    tab.page.unroute("**/logs?after=*")
    later.click()
    expect(lines.last).to_have_text("after gate 0")
    expect(later).to_have_count(0)
    expect(earlier).to_be_visible()
    site.open_gate("flood", 1)
    expect(lines.last).to_have_text("after gate 1")
    assert without_hole()[1] == 2_100


def test_a_dead_run_says_what_ended_it_and_a_list_the_line_that_names_it(
    site: Site, new_tab: Opening
) -> None:
    run = site.finish("broken")["id"]
    error = "no such table: flour\nLINE 3:   FROM flour\n               ^"
    site.write("UPDATE _rota_runs SET lost = 1, error = ? WHERE id = ?", [(error, run)])
    tab = new_tab(site).open(f"/runs/{run}")
    expect(tab.page.get_by_text("Dead: 1 of 1 attempts failed")).to_be_visible()
    site.write("UPDATE _rota_runs SET max_attempts = 3 WHERE id = ?", [(run,)])
    tab.page.reload()
    expect(tab.page.get_by_text("Dead: attempt 1 failed for good")).to_be_visible()
    site.write(
        "UPDATE _rota_attempts SET outcome = 'lost' "
        " WHERE run_seq = (SELECT seq FROM _rota_runs WHERE id = ?)",
        [(run,)],
    )
    tab.page.reload()
    expect(tab.page.get_by_text("Dead: its worker was lost")).to_be_visible()
    # Without the attempt it is told only where the run itself leaves no doubt.
    site.write(
        "DELETE FROM _rota_attempts WHERE run_seq = (SELECT seq FROM _rota_runs WHERE id = ?)",
        [(run,)],
    )
    tab.page.reload()
    expect(tab.page.get_by_text("Dead.", exact=True)).to_be_visible()
    site.write("UPDATE _rota_runs SET failures = 0 WHERE id = ?", [(run,)])
    tab.page.reload()
    expect(tab.page.get_by_text("Dead: its worker was lost")).to_be_visible()
    tab.open("/runs?job=broken")
    row = tab.page.locator(f"tr[data-key='{run}']")
    expect(row.locator(".error-line")).to_have_text("no such table: flour")


def test_a_dead_run_is_redone_from_the_step_that_failed(site: Site, new_tab: Opening) -> None:
    run = site.finish("bread")["id"]
    tab = new_tab(site, "operator").open(f"/runs/{run}").is_live()
    expect(tab.badge("dead")).to_be_visible()
    expect(tab.page.get_by_role("region", name="The line of the error")).to_contain_text("flour")
    expect(tab.page.get_by_label("Attempts")).to_contain_text("failed")
    site.finish("flour")
    tab.page.get_by_role("button", name="Redo from here: 02_bake.sql").click()
    dialog = tab.page.get_by_role("dialog")
    expect(dialog.get_by_label("Begin at")).to_have_value("02_bake.sql")
    dialog.get_by_label("Reason").fill("flour is here")
    dialog.get_by_role("button", name="Redo", exact=True).click()
    expect(tab.badge("succeeded")).to_be_visible()
    steps = tab.page.get_by_role("table", name="Steps", exact=True)
    expect(steps).to_contain_text("02_bake.sql")
    expect(steps).not_to_contain_text("01_dough.sql")
    expect(tab.page.get_by_role("table", name="Result of 02_bake.sql")).to_contain_text("sacks")
    assert site.get("/audit", limit=1)["items"][0]["reason"] == "flour is here"


def test_a_running_run_is_asked_to_pause_and_cancelled(site: Site, new_tab: Opening) -> None:
    run = site.enqueue("gated", gate="cancelled")
    tab = new_tab(site, "operator").open(f"/runs/{run}").is_live()
    expect(tab.badge("running")).to_be_visible()
    tab.act("Pause")
    expect(tab.page.locator(".toast")).to_contain_text("A pause is asked for.")
    tab.act("Cancel", reason="burnt", confirm="Cancel the run")
    expect(tab.badge("cancelled")).to_be_visible()
    expect(tab.page.get_by_text("Cancelled: burnt.")).to_be_visible()


def test_what_waits_says_why(site: Site, new_tab: Opening) -> None:
    site.post("/queues/talk/pause", reason="too loud")
    run = site.enqueue("chatty")
    tab = new_tab(site, "viewer").open(f"/runs/{run}").is_live()
    expect(tab.page.get_by_text("queue 'talk' is paused by first: too loud")).to_be_visible()
    site.post("/queues/talk/resume")
    expect(tab.badge("succeeded")).to_be_visible()
    later = site.post("/jobs/greet/runs", delay="1h")["id"]
    tab.open(f"/runs/{later}")
    expect(tab.page.get_by_text("Not due yet")).to_be_visible()


def test_filters_survive_a_bulk_action_over_everything_that_matches(
    site: Site, new_tab: Opening
) -> None:
    runs = [site.post("/jobs/chatty/runs", delay="1h")["id"] for _ in range(60)]
    tab = new_tab(site, "operator").open("/runs")
    tab.page.get_by_role("button", name="waiting", exact=True).click()
    tab.page.get_by_label("Job, or id of a run").fill("chatty")
    tab.page.keyboard.press("Enter")
    expect(tab.page.locator("tbody tr")).to_have_count(50)
    expect(tab.page.get_by_text("60 waiting")).to_be_visible()
    tab.page.get_by_role("button", name="More").click()
    expect(tab.page.locator("tbody tr")).to_have_count(10)
    tab.page.get_by_role("button", name="Newest").click()
    tab.act("Cancel all", reason="too many")
    expect(tab.page.get_by_text("No run matches")).to_be_visible()
    expect(tab.page).to_have_url(re.compile(r"state=waiting&job=chatty"))
    states = {site.get(f"/runs/{run}")["state"] for run in runs}
    assert states == {"cancelled"}


def test_the_timeline_shows_what_ran_and_what_comes(site: Site, new_tab: Opening) -> None:
    run = site.finish("greet")["id"]
    gated = site.enqueue("gated", gate="timeline", total=1)
    tab = new_tab(site, "viewer").open("/timeline?span=6h").is_live()
    row = tab.page.locator(".timerow[data-job=greet]")
    expect(row.locator(f"a[href='#/runs/{run}']")).to_be_attached()
    expect(row.locator("a.expected").first).to_be_attached()
    growing = tab.page.locator(f".timerow[data-job=gated] a.pulse[href='#/runs/{gated}']")
    expect(growing).to_be_attached()
    site.open_gate("timeline", 0)
    expect(growing).to_have_count(0)
    expect(tab.page.get_by_text("runs, one by one")).not_to_contain_text("missing")

    def busy(route: Route) -> None:
        told = route.fetch()
        route.fulfill(response=told, json={**told.json(), "more_across": True})

    tab.page.route("**/timeline?*", busy)
    tab.page.get_by_role("button", name="15 min").click()
    expect(tab.page).to_have_url(re.compile("span=15m"))
    expect(tab.page.get_by_text("one that ended long after may be missing")).to_be_visible()
    expect(row.locator(f"a[href='#/runs/{run}']")).to_be_attached()
    tab.page.get_by_label("Search jobs").fill("nothing like it")
    expect(tab.page.get_by_text("No such job in this time")).to_be_visible()
