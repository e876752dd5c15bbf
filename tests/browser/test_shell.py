"""The frame around the screens: who may look, who may act, and how the page is served."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import httpx
import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Opening
from tests.browser.support import SECONDS, Site

SCREENS = (
    "Overview", "Timeline", "Schedules", "Runs", "Jobs", "Queues", "Workers", "Dead letters",
    "SQL console", "Audit",
)  # fmt: skip


def test_every_screen_is_reached_from_the_navigation(site: Site, new_tab: Opening) -> None:
    tab = new_tab(site).open()
    for title in SCREENS:
        tab.page.get_by_role("navigation", name="Screens").get_by_role("link", name=title).click()
        expect(tab.page.get_by_role("heading", level=1, name=title)).to_be_visible()
        expect(tab.page).to_have_title(f"{title} · Rota")


def test_a_token_of_each_role_logs_in(site: Site, new_tab: Opening) -> None:
    for role in ("viewer", "operator", "admin"):
        tab = new_tab(site).open()
        expect(tab.page.get_by_text("read only")).to_be_visible()
        tab.page.get_by_role("button", name="Log in").click()
        dialog = tab.page.get_by_role("dialog")
        dialog.get_by_label("Token").fill(site.tokens[role])
        dialog.get_by_role("button", name="Log in").click()
        expect(dialog).to_be_hidden()
        expect(tab.page.get_by_text(f"the-{role} {role}")).to_be_visible()


def test_a_wrong_token_is_told_and_another_may_be_tried(site: Site, new_tab: Opening) -> None:
    tab = new_tab(site).open()
    tab.allowed = ("401",)
    tab.page.get_by_role("button", name="Log in").click()
    dialog = tab.page.get_by_role("dialog")
    dialog.get_by_label("Token").fill("rota_no")
    dialog.get_by_role("button", name="Log in").click()
    expect(dialog.get_by_role("alert")).to_contain_text("wrong, revoked or expired")


def test_open_local_gives_this_machine_an_operator(open_site: Site, new_tab: Opening) -> None:
    tab = new_tab(open_site).open()
    expect(tab.page.get_by_text("local operator")).to_be_visible()


def test_the_page_is_live_and_the_clock_goes(site: Site, new_tab: Opening) -> None:
    tab = new_tab(site).open().is_live()
    clock = tab.page.locator(".clock")
    before = clock.inner_text()
    expect(clock).not_to_have_text(before)


def test_keys_lead_to_screens_and_to_help(site: Site, new_tab: Opening) -> None:
    page = new_tab(site).open().page
    page.clock.set_fixed_time(datetime.now(UTC))  # no time passes between the two keys
    page.keyboard.press("g")
    page.keyboard.press("w")
    expect(page.get_by_role("heading", level=1, name="Workers")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_look_is_the_systems_until_it_is_chosen(site: Site, new_tab: Opening) -> None:
    page = new_tab(site, dark=True).open().page
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Light").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")


def test_on_a_phone_the_menu_opens(site: Site, new_tab: Opening) -> None:
    page = new_tab(site, phone=True).open().page
    navigation = page.get_by_role("navigation", name="Screens")
    expect(navigation.get_by_role("link", name="Queues")).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    navigation.get_by_role("link", name="Queues").click()
    expect(page.get_by_role("heading", level=1, name="Queues")).to_be_visible()


def test_files_are_kept_for_ever_and_the_page_is_asked_for_again(site: Site) -> None:
    page = httpx.get(site.url, timeout=SECONDS)
    assert page.headers["cache-control"] == "no-cache"
    again = httpx.get(site.url, headers={"If-None-Match": page.headers["etag"]}, timeout=SECONDS)
    assert again.status_code == 304
    found = re.search(r'src="(/static/[0-9a-f]{16}/main\.js)"', page.text)
    assert found
    script = httpx.get(site.url + found[1].replace("main.js", "parts/shell.js"), timeout=SECONDS)
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert script.headers["content-type"].startswith("text/javascript")
    assert script.headers["content-encoding"] == "gzip"


@pytest.mark.parametrize(
    "name", ["../files.py", "..%2ffiles.py", "index.html", "vendor/VENDOR.toml", ""]
)
def test_nothing_but_the_files_of_the_dashboard_is_served(site: Site, name: str) -> None:
    found = re.search(r"/static/[0-9a-f]{16}/", httpx.get(site.url, timeout=SECONDS).text)
    assert found
    for path in (f"{found[0]}{name}", f"/static/{'0' * 16}/main.js"):
        assert httpx.get(site.url + path, timeout=SECONDS).status_code == 404, path


def test_whatever_goes_wrong_in_a_page_fails_its_test(site: Site, new_tab: Opening) -> None:
    tab = new_tab(site).open()
    tab.page.evaluate("console.error('boom')")
    with tab.page.expect_console_message(lambda message: message.text.startswith("CSP: ")):
        tab.page.evaluate(
            "const made = document.createElement('script'); made.textContent = 'window.ran = 1';"
            "document.body.append(made)"
        )
    with pytest.raises(AssertionError, match=r"boom[\s\S]*CSP: script-src"):
        tab.check()
    assert tab.page.evaluate("window.ran") is None
    tab.faults.clear()
