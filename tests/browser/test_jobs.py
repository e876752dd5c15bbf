"""Jobs: where they come from, what is wrong with them, and a form to run one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Opening
from tests.browser.support import Site, running

GOOD = 'schedule = "0 3 * * *"\n'
BAD = GOOD + 'timeout = "soon"\n'


@pytest.fixture
def folder_site(tmp_path: Path) -> Iterator[Site]:
    """One with a folder of jobs that the test may spoil."""
    with running(tmp_path) as made:
        yield made


def put(site: Site, name: str, manifest: str) -> None:
    """A folder of a job, there in one moment."""
    made = site.folder / name
    made.mkdir()
    (made / "job.toml").write_text(manifest)
    (made / "1_load.sql").write_text("SELECT 1 AS one;\n")
    made.rename(site.folder / "jobs.d" / name)


def test_jobs_are_searched_and_filtered_in_the_address(site: Site, new_tab: Opening) -> None:
    (greet,) = [one for one in site.get("/jobs")["items"] if one["name"] == "greet"]
    more = greet["schedule_count"] - len(greet["schedules"])
    assert more > 0
    page = new_tab(site).open("/jobs").page
    expect(page.locator("tr[data-key=greet]")).to_contain_text(greet["schedules"][0]["words"])
    expect(page.locator("tr[data-key=greet]")).to_contain_text(f"{more} more")
    page.get_by_label("Search jobs").fill("told to")
    expect(page.get_by_role("row")).to_have_count(2)
    expect(page).to_have_url(re.compile(r"q=told\+to"))
    page.get_by_role("button", name="broken", exact=True).click()
    expect(page.get_by_text("No job fits these filters")).to_be_visible()
    page.get_by_role("button", name="Show all jobs").click()
    page.get_by_role("button", name="talk").click()
    expect(page.locator("tr[data-key=greet]")).to_be_hidden()
    expect(page.locator("tr[data-key=chatty]")).to_be_visible()


def test_a_broken_file_shows_its_line_and_the_last_good_version(
    folder_site: Site, new_tab: Opening
) -> None:
    put(folder_site, "hopeless", BAD)
    put(folder_site, "sales", GOOD)
    page = new_tab(folder_site).open("/jobs").page
    expect(page.locator("tr[data-key=sales] [data-state=enabled]")).to_be_visible()
    expect(page.locator("tr[data-key=hopeless]")).to_contain_text("never had a good version")
    good = folder_site.get("/jobs/sales")["version"][:8]
    (folder_site.folder / "jobs.d/sales/job.toml").write_text(BAD)
    row = page.locator("tr[data-key=sales]")
    expect(row).to_contain_text("job.toml:2")
    expect(row).to_contain_text(f"Runs use the last good version {good}")
    row.get_by_role("link", name="sales").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("broken")
    expect(page.get_by_role("status").first).to_contain_text("job.toml:2")


def test_a_job_runs_with_what_the_form_says(site: Site, new_tab: Opening) -> None:
    page = new_tab(site, "operator").open("/jobs/gated").page
    form = page.get_by_role("form", name="Run gated")
    form.get_by_label("total").fill("many")
    form.get_by_role("button", name="Run").click()
    expect(form.get_by_text("It is required.", exact=False)).to_be_visible()
    expect(form.get_by_text("It must be a whole number.")).to_be_visible()
    expect(form.get_by_label("gate")).to_be_focused()
    expect(form.get_by_label("total")).to_have_attribute("aria-invalid", "true")
    form.get_by_label("gate").fill("of-the-form")
    form.get_by_label("total").fill("1")
    form.get_by_role("button", name="Run").click()
    expect(page.get_by_text("A run of gated is made.")).to_be_visible()
    expect(form.get_by_text("It is required.", exact=False)).to_be_hidden()
    (run,) = [
        one
        for one in site.get("/runs", job="gated")["items"]
        if one["args"]["gate"] == "of-the-form"
    ]
    assert run["args"] == {"gate": "of-the-form", "total": 1}
    row = page.locator(f"tr[data-key='{run['id']}']")
    expect(row).to_be_visible()
    site.open_gate("of-the-form", 0)
    expect(row.locator("[data-state=succeeded]")).to_be_visible()


def test_what_the_server_refuses_is_said_at_the_field(site: Site, new_tab: Opening) -> None:
    tab = new_tab(site, "operator").open("/jobs/greet")
    tab.allowed = ("422",)
    form = tab.page.get_by_role("form", name="Run greet")
    form.get_by_text("When, and how").click()
    form.get_by_label("Not before").fill("soon")
    form.get_by_role("button", name="Run").click()
    expect(form.get_by_role("alert")).to_contain_text("soon")
    expect(form.get_by_label("Not before")).to_have_attribute("aria-invalid", "true")


def test_a_viewer_is_told_what_it_takes_to_run_one(site: Site, new_tab: Opening) -> None:
    page = new_tab(site, "viewer").open("/jobs/gated").page
    expect(page.get_by_text("takes the role of an operator")).to_be_visible()
    expect(page.get_by_role("form")).to_have_count(0)


def test_a_job_that_is_not_there_says_what_to_do(site: Site, new_tab: Opening) -> None:
    tab = new_tab(site)
    tab.allowed = ("404",)
    tab.open("/jobs/nobody%2Fknows")
    expect(tab.page.get_by_text("There is no such job")).to_be_visible()
