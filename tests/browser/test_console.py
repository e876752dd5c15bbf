"""The SQL console: written with help, answered with rows, and told where it is wrong."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.conftest import Opening
from tests.browser.shop import HOSTILE
from tests.browser.support import Site


def run(page: Page, text: str) -> None:
    editor = page.get_by_label("SQL", exact=True)
    editor.fill(text)
    editor.press("Control+Enter")


def test_a_statement_and_a_query_answer_with_rows(site: Site, new_tab: Opening) -> None:
    page = new_tab(site, "viewer").open("/sql").page
    run(page, "SHOW SCHEDULES;\nSELECT name, 1 + 1 AS two FROM jobs WHERE name = 'greet';")
    first, second = page.get_by_label("Result").nth(0), page.get_by_label("Result").nth(1)
    expect(first.get_by_role("table")).to_contain_text("daily/report")
    expect(second.get_by_role("columnheader").nth(1)).to_have_text("two integer")
    expect(second.get_by_role("cell")).to_have_text(["greet", "2"])


def test_a_statement_changes_what_it_says(site: Site, new_tab: Opening) -> None:
    page = new_tab(site, "operator").open("/sql").page
    run(page, "PAUSE SCHEDULE hourly REASON 'from the console'")
    expect(page.get_by_label("Result").get_by_role("table")).to_contain_text("PAUSED")
    assert site.get("/schedules/hourly")["paused_reason"] == "from the console"
    run(page, "RESUME SCHEDULE hourly")
    expect(page.get_by_label("Result").get_by_role("table")).to_contain_text("ACTIVE")


def test_words_names_views_and_columns_are_completed(site: Site, new_tab: Opening) -> None:
    page = new_tab(site).open("/sql").page
    editor, offer = page.get_by_label("SQL", exact=True), page.get_by_role("listbox")
    editor.press_sequentially("PAU")
    expect(offer.get_by_role("option")).to_have_text(["PAUSE"])
    editor.press("Tab")
    editor.press_sequentially("SCHEDULE ni")
    expect(offer.get_by_role("option")).to_have_text(["nightlyschedule"])
    editor.press("Enter")
    expect(editor).to_have_value("PAUSE SCHEDULE nightly ")
    editor.fill("")
    editor.press_sequentially("SELECT * FROM job_r")
    expect(offer.get_by_role("option")).to_have_text(["job_runsview"])
    editor.press("Enter")
    with page.expect_response("**/api/v1/sql"):  # the columns are asked for once
        page.reload()
    editor.press_sequentially("SELECT * FROM job_runs WHERE rec")
    expect(offer.get_by_role("option")).to_have_text(["record_typeof job_runs"])
    editor.press("Escape")
    expect(offer).to_be_hidden()


def test_an_error_is_marked_where_it_is(site: Site, new_tab: Opening) -> None:
    tab = new_tab(site).open("/sql")
    tab.allowed = ("422",)
    run(tab.page, "SHOW SCHEDULES;\nSHOW RUNZ")
    alert = tab.page.get_by_role("alert")
    expect(alert).to_contain_text("RUNZ")
    expect(alert.locator("mark")).to_have_text("RUNZ")
    expect(alert).to_contain_text("line 2:")
    assert tab.page.evaluate("getSelection().toString()") == "RUNZ"
    run(tab.page, "SELECT nonsense FROM runs")
    expect(alert.locator("mark")).to_have_text("nonsense")


def test_a_viewer_may_not_operate_and_is_told_so(site: Site, new_tab: Opening) -> None:
    tab = new_tab(site, "viewer").open("/sql")
    tab.allowed = ("403",)
    expect(tab.page.get_by_text("you may query and look")).to_be_visible()
    expect(tab.page.get_by_role("button", name="PAUSE SCHEDULE name")).to_be_disabled()
    run(tab.page, "PAUSE SCHEDULE nightly")
    expect(tab.page.get_by_role("alert")).to_contain_text("operator")
    assert site.get("/schedules/nightly")["paused"] is False


def test_what_was_run_is_kept_in_this_browser(site: Site, new_tab: Opening) -> None:
    page = new_tab(site).open("/sql").page
    run(page, "SHOW JOBS")
    expect(page.get_by_label("Result").get_by_role("table")).to_be_visible()
    page.reload()
    editor = page.get_by_label("SQL", exact=True)
    editor.press("Alt+ArrowUp")
    expect(editor).to_have_value("SHOW JOBS")
    page.get_by_role("tab", name="History").click()
    page.get_by_role("button", name="Forget all").click()
    expect(page.get_by_text("in this browser only")).to_be_visible()
    assert page.evaluate("localStorage.getItem('rota.sql.history')") is None


def test_rows_become_files_and_a_chart(site: Site, new_tab: Opening, tmp_path: Path) -> None:
    for name in ("=1+1", HOSTILE):
        site.finish("greet", name=name)
    page = new_tab(site).open("/sql").page
    run(page, "SELECT created_at, seq, job_name, '=1+1' AS formula FROM runs LIMIT 20")
    answer = page.get_by_label("Result")
    answer.get_by_role("button", name="Chart").click()
    expect(answer.locator(".chart canvas")).to_be_visible()
    expect(answer.get_by_role("img", name="Quick chart")).to_be_visible()
    answer.get_by_label("Along").select_option("row")
    expect(answer.locator(".chart canvas")).to_be_visible()
    with page.expect_download() as taken:
        answer.get_by_role("button", name="CSV").click()
    taken.value.save_as(tmp_path / "rows.csv")
    rows = list(csv.DictReader((tmp_path / "rows.csv").open(encoding="utf-8")))
    assert rows[0]["formula"] == "'=1+1"
    with page.expect_download() as taken:
        answer.get_by_role("button", name="JSON").click()
    taken.value.save_as(tmp_path / "rows.json")
    records = json.loads((tmp_path / "rows.json").read_text("utf-8"))
    assert [record["seq"] for record in records] == [int(row["seq"]) for row in rows]
    assert records[0]["formula"] == "=1+1"


def test_hostile_rows_are_only_shown(site: Site, new_tab: Opening) -> None:
    site.finish("broken", text=HOSTILE)
    page = new_tab(site, phone=True).open("/sql").page
    run(page, "SELECT error_message FROM job_runs WHERE status = 'failed' ORDER BY id DESC LIMIT 1")
    expect(page.get_by_label("Result").get_by_role("table")).to_contain_text("<img src=x")
    assert page.locator("main img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
