"""The first screen: what is wrong, and what happens."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.conftest import Opening
from tests.browser.support import Site


def test_it_says_that_nothing_is_wrong_until_something_is(
    open_site: Site, new_tab: Opening
) -> None:
    tab = new_tab(open_site).open().is_live()
    verdict = tab.page.get_by_label("What is wrong now")
    expect(verdict).to_contain_text("Nothing is wrong")
    expect(verdict).to_contain_text("7 schedules, none of them paused; dispatch is on")
    open_site.finish("broken", text="the oven is cold")
    expect(verdict).to_contain_text("One thing is wrong")
    expect(verdict).to_contain_text("RuntimeError: the oven is cold")
    tab.page.get_by_role("link", name="dead runs").click()
    expect(tab.page.get_by_role("table", name="Runs")).to_contain_text("the oven is cold")


def test_a_paused_schedule_says_by_whom_and_why_and_is_resumed_here(
    open_site: Site, new_tab: Opening
) -> None:
    open_site.post("/schedules/nightly/pause", reason="the baker is ill")
    tab = new_tab(open_site).open().is_live()
    line = tab.page.locator("[data-kind=paused]")
    expect(line).to_contain_text("'nightly' is paused by first: the baker is ill")
    tab.act("Resume")
    expect(line).to_have_count(0)
    assert open_site.get("/schedules/nightly")["paused"] is False


def test_figures_and_lists_follow_the_runs(site: Site, new_tab: Opening) -> None:
    tab = new_tab(site).open().is_live()
    run = site.enqueue("gated", gate="overview", total=2)
    running = tab.page.get_by_label("Running now")
    expect(running).to_contain_text("gated")
    site.open_gate("overview", 0)
    expect(running).to_contain_text("1 of 2")
    site.open_gate("overview", 1)
    site.ended(run)
    expect(running.get_by_role("link", name=run[:13])).to_have_count(0)
    counts = {state: sum(ended) for state, ended in site.get("/activity")["ended"].items()}
    words = ", ".join(f"{counts[one]} {one}" for one in ("succeeded", "cancelled", "dead"))
    chart = tab.page.get_by_role("img", name=f"Runs that ended, by outcome: {words}")
    expect(chart).to_be_visible()
    expect(tab.page.get_by_label("Coming next")).to_contain_text("hourly")


DRAWN = """async ({ first, then }) => {
    const { base } = document.body.dataset;
    const { html, render } = await import(`${base}/lib/html.js`);
    const { Chart } = await import(`${base}/parts/chart.js`);
    const place = document.body.appendChild(document.createElement("div"));
    const frame = () => new Promise(requestAnimationFrame);
    const frames = async () => { await frame(); await frame(); };
    const series = [{ label: "it", tone: "ok", kind: "bars" }];
    const show = async (data) => {
        render(html`<${Chart} label="one" x="number" series=${series} data=${data} />`, place);
        await frames();
        return place.querySelector("canvas").toDataURL();
    };
    const before = await show(first);
    const now = await show(then);
    for (const theme of ["dark", "light"]) {
        document.documentElement.dataset.theme = theme;
        await frames();
    }
    return [before, now, place.querySelector("canvas").toDataURL()];
}"""


def test_a_chart_in_another_theme_has_the_same_data(site: Site, new_tab: Opening) -> None:
    page = new_tab(site).open("/queues").page
    page.evaluate("document.documentElement.dataset.theme = 'light'")
    before, now, again = page.evaluate(
        DRAWN, {"first": [[1, 2, 3], [1, 1, 1]], "then": [[1, 2, 3], [1, 5, 9]]}
    )
    assert before != now
    assert again == now
