"""Schedules: found, paused and resumed with a reason, edited with a look at what changes."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

from playwright.sync_api import expect

from tests.browser.conftest import Opening
from tests.browser.support import Site


def test_a_pause_in_one_tab_is_seen_in_another(site: Site, new_tab: Opening) -> None:
    one = new_tab(site, "operator").open("/schedules/hourly")
    other = new_tab(site, "viewer").open("/schedules?q=hourly").is_live()
    one.act("Pause", reason="flour is late")
    expect(one.badge("PAUSED")).to_be_visible()
    row = other.page.locator("tr[data-key=hourly]")
    expect(row).to_contain_text("by the-operator: flour is late")
    expect(row).to_contain_text("not while paused")
    expect(one.page.get_by_text("Why it does not fire")).to_be_visible()
    one.act("Resume")
    expect(row).to_contain_text("active")


def test_a_viewer_sees_no_action(site: Site, new_tab: Opening) -> None:
    for route in ("/schedules", "/schedules/nightly", "/runs?state=dead", "/"):
        page = new_tab(site, "viewer").open(route).page
        expect(page.get_by_role("button", name=re.compile("…$"))).to_have_count(0)
        expect(page.locator("main input[type=checkbox]:not(.log input)")).to_have_count(0)


def test_search_and_filters_are_in_the_address_and_survive(site: Site, new_tab: Opening) -> None:
    tab = new_tab(site, "operator").open("/schedules")
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("report")
    expect(tab.page.locator("tbody tr")).to_have_count(1)
    expect(tab.page).to_have_url(re.compile(r"q=report"))
    tab.page.get_by_role("button", name="Next").click()
    expect(tab.page).to_have_url(re.compile(r"q=report&sort=next"))
    tab.page.get_by_role("button", name="Pause daily/report").click()
    tab.page.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).click()
    expect(tab.page.locator("tbody tr")).to_contain_text("paused")
    expect(tab.page).to_have_url(re.compile(r"q=report&sort=next"))
    tab.page.get_by_role("link", name="daily/report").click()
    expect(tab.page.get_by_role("heading", level=1)).to_contain_text("daily/report")
    tab.page.get_by_role("main").get_by_role("link", name="Schedules").click()
    expect(tab.page).to_have_url(re.compile(r"q=report&sort=next"))
    site.post("/schedules/daily%2Freport/resume")


def test_many_are_paused_with_one_reason(site: Site, new_tab: Opening) -> None:
    tab = new_tab(site, "operator").open("/schedules?q=bulk-")
    tab.page.get_by_label("Select all on this page").check()
    region = tab.page.get_by_role("region", name="Selected schedules")
    region.get_by_role("button", name="Pause…").click()
    dialog = tab.page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("holidays")
    dialog.get_by_role("button", name="Pause").click()
    expect(tab.page.locator("tbody [data-state=PAUSED]")).to_have_count(3)
    reasons = {site.get(f"/schedules/bulk-{number}")["paused_reason"] for number in range(3)}
    assert reasons == {"holidays"}
    tab.act("Resume all", reason="back at work")
    expect(tab.page.locator("tbody [data-state=ACTIVE]")).to_have_count(3)


def test_an_edit_shows_what_changes_before_it_is_saved(site: Site, new_tab: Opening) -> None:
    tab = new_tab(site, "operator").open("/schedules/nightly")
    tab.allowed = ("422",)
    tab.page.get_by_role("button", name="Edit…").click()
    dialog = tab.page.get_by_role("dialog")
    dialog.get_by_label("When", exact=True).fill("61 * * * *")
    expect(dialog).to_contain_text("minute 61")
    dialog.get_by_label("When", exact=True).fill("15 4 * * *")
    expect(dialog).to_contain_text("At 04:15")
    dialog.get_by_role("button", name="Show what changes").click()
    expect(dialog).to_contain_text("0 3 * * *")
    expect(dialog).to_contain_text("15 4 * * *")
    dialog.get_by_role("button", name="Save").click()
    expect(tab.page.locator(".times li").first).to_contain_text("04:15:00")
    assert site.get("/schedules/nightly")["expr"] == "15 4 * * *"
    expect(tab.page.get_by_role("table", name="Changes")).to_contain_text("15 4 * * *")


def test_an_edit_of_what_another_process_changed_is_refused(site: Site, new_tab: Opening) -> None:
    tab = new_tab(site, "operator").open("/schedules/bulk-0")
    tab.allowed = ("412",)
    tab.page.get_by_role("button", name="Edit…").click()
    dialog = tab.page.get_by_role("dialog")
    dialog.get_by_label("When", exact=True).fill("2d")
    dialog.get_by_role("button", name="Show what changes").click()
    answer = site.api.patch(
        "/schedules/bulk-0", json={"catch_up": "none"}, headers={"If-Match": "*"}
    )
    assert answer.is_success, answer.text
    dialog.get_by_role("button", name="Save").click()
    expect(tab.page.locator(".toast")).to_contain_text("Somebody changed it meanwhile")
    assert site.get("/schedules/bulk-0")["expr"] == "1d"


def test_every_option_that_the_server_declares_is_in_the_form(site: Site, new_tab: Opening) -> None:
    site.post("/schedules", name="optional", job="greet", every="1d", misfire_grace="2m")
    tab = new_tab(site, "operator").open("/schedules/optional")
    tab.page.get_by_role("button", name="Edit…").click()
    dialog = tab.page.get_by_role("dialog")
    expect(dialog.locator("[name=kind]")).to_be_visible()
    declared = [option["name"] for option in site.get("/schedule-options")["items"]]
    for name in set(declared) - {"retry"}:
        expect(dialog.locator(f"[name={name}]")).to_have_count(1)
    # A group is open where something in it differs from its default.
    expect(dialog.get_by_label("Misfire grace")).to_have_value("2m")
    expect(dialog.get_by_label("Misfire grace")).to_be_visible()
    expect(dialog.get_by_label("Pause after")).to_be_hidden()
    dialog.get_by_text("Failure", exact=True).click()
    dialog.get_by_label("Pause after").fill("3")
    dialog.get_by_label("Enabled").uncheck()
    dialog.get_by_text("More about its times").click()
    dialog.get_by_label("First run").fill("2099-01-01T00:00:00Z")
    expect(dialog.locator(".preview li").first).to_contain_text("2099-01-01T00:00:00")
    dialog.get_by_role("button", name="Show what changes").click()
    expect(dialog.get_by_role("row")).to_have_count(4)
    dialog.get_by_role("button", name="Save").click()
    expect(tab.page.locator(".toast")).to_contain_text("is changed")
    after = site.get("/schedules/optional")
    assert (after["pause_after"], after["enabled"]) == (3, False)
    assert after["first_run"] == "2099-01-01T00:00:00+00:00"
    assert after["misfire_grace"] == "2m"


def test_a_schedule_is_made_with_the_options_of_the_form(site: Site, new_tab: Opening) -> None:
    tab = new_tab(site, "operator").open("/schedules")
    tab.page.get_by_role("button", name="New schedule…").click()
    dialog = tab.page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("made/here")
    dialog.locator("[name=job]").select_option("greet")
    dialog.get_by_text("Overlap", exact=True).first.click()
    dialog.locator("[name=overlap]").select_option("queue")
    dialog.get_by_label("Queue max").fill("5")
    dialog.get_by_role("button", name="Create").click()
    expect(tab.page.get_by_role("heading", level=1)).to_contain_text("made/here")
    made = site.get("/schedules/made%2Fhere")
    assert (made["overlap"], made["queue_max"], made["catch_up"]) == ("queue", 5, "one")
    assert made["owner"] == "the-operator"


def test_the_title_of_a_time_tells_it_on_the_clock_of_the_schedule(
    site: Site, new_tab: Opening
) -> None:
    page = new_tab(site, "viewer").open("/schedules?q=report").page
    at = page.locator("tbody time").first
    expect(at).to_have_attribute("title", re.compile(r" 06:30:00 America/New_York\n.*\(UTC .*\)$"))
    page = new_tab(site, "viewer").open("/schedules?q=hourly").page
    expect(page.locator("tbody time").first).not_to_have_attribute("title", re.compile("\n"))


def test_the_next_ten_times_and_the_ledger_are_there(site: Site, new_tab: Opening) -> None:
    told = {"cron": "30 6 * * 1-5", "starts_at": "2090-01-01T00:00:00Z"}
    site.post("/schedules", name="one/day", job="greet", **told)
    tab = new_tab(site, "operator").open("/schedules/one%2Fday")
    expect(tab.page.locator(".times li")).to_have_count(10)
    expect(tab.page.get_by_text("It has not been due yet")).to_be_visible()
    tab.page.get_by_role("button", name="Ask").click()
    expect(tab.page.get_by_role("dialog")).to_contain_text("not an occurrence")
    tab.page.keyboard.press("Escape")
    tab.act("Run now")
    link = tab.page.locator(".toast").get_by_role("link", name="look at it")
    link.click()
    expect(tab.badge("succeeded")).to_be_visible()


def test_the_ledger_is_read_to_its_beginning(site: Site, new_tab: Opening) -> None:
    name = "L" * 128  # once a year
    schedule = site.get(f"/schedules/{name}")["id"]
    years = [int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in range(2006, 2026)]
    site.write(
        "INSERT INTO _rota_occurrences (schedule_id, occurrence, last_occurrence, count, outcome,"
        " reason, recorded_at) VALUES (?, ?, ?, 1, 'skipped', 'holiday', ?)",
        [(schedule, at * 10**6, at * 10**6, int(time.time() * 10**6)) for at in years],
    )
    tab = new_tab(site).open(f"/schedules/{name}")
    card = tab.page.locator("section.card", has_text="What became of every occurrence")
    rows = card.locator("table.calendar tbody tr")
    expect(rows).to_have_count(14)
    newest = rows.get_by_role("rowheader").all_inner_texts()
    expect(card.locator("p.row")).to_contain_text("14 skipped")
    card.get_by_role("button", name="earlier").click()
    expect(rows).to_have_count(6)
    expect(card.locator("p.row")).to_contain_text("6 skipped")
    expect(card.get_by_role("button", name="earlier")).to_have_count(0)
    assert len({*newest, *rows.get_by_role("rowheader").all_inner_texts()}) == 20
    card.get_by_role("button", name="newest").click()
    expect(rows).to_have_count(14)


def test_what_the_form_foretells_is_what_the_schedule_does(site: Site, new_tab: Opening) -> None:
    told = {"cron": "0 3 * * *", "starts_at": "2090-01-01T00:00:00Z"}
    site.post("/schedules", name="late", job="greet", **told)
    begun = {"every": "10d", "first_run": "2020-01-01T00:00:07Z"}
    site.post("/schedules", name="begun", job="greet", enabled=False, **begun)
    tab = new_tab(site, "operator").open("/schedules/late")
    dialog = tab.page.get_by_role("dialog")
    tab.page.get_by_role("button", name="Edit…").click()
    expect(dialog.locator(".preview li").first).to_contain_text("2090-01-01T03:00:00")
    dialog.get_by_label("When", exact=True).fill("0 4 * * *")
    expect(dialog.locator(".preview li").first).to_contain_text("2090-01-01T04:00:00")
    tab.page.keyboard.press("Escape")
    tab.open("/schedules/begun")
    tab.page.get_by_role("button", name="Edit…").click()
    dialog.get_by_label("When", exact=True).fill("20d")
    expect(dialog.locator(".preview")).to_contain_text("20d")
    foretold = dialog.locator(".preview li code").first.inner_text()
    answer = site.api.patch(
        "/schedules/begun", json={"every": "20d", "enabled": True}, headers={"If-Match": "*"}
    )
    assert answer.is_success, answer.text
    assert datetime.fromisoformat(foretold) == datetime.fromisoformat(answer.json()["next_fire_at"])
