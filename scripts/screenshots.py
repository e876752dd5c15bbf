"""Take a picture of every screen of the dashboard, light and dark, on a desktop and on a phone.

    make screenshots            all of them, into build/screenshots
    make screenshots KEEP=1     and the ones that the documents show, into docs/images

A real `rota up` runs the bakery of scripts/demo.py, after a day of history, and the SQL jobs of
examples/. Look at each picture before it is kept.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from chromium import found as find_chromium
from playwright.sync_api import Browser, Page, expect, sync_playwright
from serving import serving

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build/screenshots"
IMAGES = ROOT / "docs/images"
SIZES = {"desktop": (1360, 850), "phone": (390, 844)}
LOOKS: tuple[Any, ...] = ("light", "dark")
QUERY = """SELECT job_name, state, count(*) AS runs
  FROM runs
 GROUP BY job_name, state ORDER BY runs DESC"""
# The pictures that the documents show: name of the picture → name of the file.
KEPT = {
    "overview-desktop-light": "dashboard-overview",
    "timeline-desktop-light": "dashboard-timeline",
    "schedules-desktop-light": "dashboard-schedules",
    "schedule-desktop-light": "dashboard-schedule",
    "run-desktop-dark": "dashboard-run",
    "sql-desktop-dark": "dashboard-sql",
    "overview-phone-light": "dashboard-phone",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="also write docs/images")
    parser.add_argument("--only", help="screens whose name this pattern finds")
    arguments = parser.parse_args()
    path = find_chromium()
    if path is None:
        sys.exit("there is no chromium; scripts/chromium.py installs one")
    OUT.mkdir(parents=True, exist_ok=True)
    with bakery() as api, sync_playwright() as driver:
        routes = liven(api)
        browser = driver.chromium.launch(
            executable_path=path, args=["--headless=new", "--no-sandbox", "--disable-gpu"]
        )
        wanted = {name: at for name, at in routes.items() if re.search(arguments.only or "", name)}
        for size in SIZES:
            for look in LOOKS:
                shoot(browser, str(api.base_url.join("/")), wanted, size, look)
        browser.close()
    if arguments.keep:
        for picture, name in KEPT.items():
            if (OUT / f"{picture}.png").exists():
                shutil.copy(OUT / f"{picture}.png", IMAGES / f"{name}.png")
    print(f"{len(list(OUT.glob('*.png')))} pictures in {OUT.relative_to(ROOT)}")


@contextmanager
def bakery() -> Iterator[httpx.Client]:
    """A Rota with a past, in a folder of its own; a client that may do everything."""
    with tempfile.TemporaryDirectory(prefix="rota-bakery-") as scratch:
        folder = Path(scratch)
        shutil.copy(ROOT / "scripts/demo.py", folder)
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        subprocess.run([sys.executable, "demo.py"], cwd=folder, env=environment, check=True)
        for name in ("jobs.d", "startdb.d", "data", "out", "rota.toml"):
            source = ROOT / "examples" / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
        with serving(folder, "demo:app") as api:
            yield api


def liven(api: httpx.Client) -> dict[str, str]:
    """Let things happen, as they do; the routes of the pictures."""
    _wait(lambda: api.get("/jobs/partner_feed").is_success)
    for schedule in ("rebuild_search_index", "nightly_backup", "fetch_orders", "partner_feed"):
        api.post(f"/schedules/{schedule}/trigger", json={})
    for number in range(12):
        args = {"to": f"guest{number}@example.org", "order": 4711 + number}
        api.post("/jobs/send_receipt/runs", json={"args": args})
    api.post("/jobs/refund/runs", json={"args": {"order": 4712, "amount": 3.5}, "delay": "2h"})
    reason = {"reason": "the New York oven is cold until Monday"}
    api.post("/schedules/morning_report/pause", json=reason)
    dead = _wait(lambda: _items(api, job="partner_feed", state="dead"))[0]["id"]
    running = _wait(lambda: _items(api, job="rebuild_search_index", state="running"))[0]["id"]
    _wait(lambda: (api.get(f"/runs/{running}").json()["progress"] or {}).get("done", 0) > 2)
    return {
        "overview": "/",
        "timeline": "/timeline?span=6h",
        "timeline-month": "/timeline?span=31d",
        "schedules": "/schedules",
        "schedule": "/schedules/fetch_orders",
        "runs": "/runs",
        "run": f"/runs/{dead}",
        "run-running": f"/runs/{running}",
        "jobs": "/jobs",
        "job": "/jobs/fetch_orders",
        "queues": "/queues",
        "workers": "/workers",
        "dead": "/dead",
        "sql": "/sql",
        "audit": "/audit",
    }


def shoot(browser: Browser, url: str, routes: dict[str, str], size: str, look: Any) -> None:
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=look)
    page = context.new_page()
    for name, route in routes.items():
        page.goto(f"{url}#{route}")
        page.locator("[data-stream=live]").wait_for(state="attached")
        page.locator("main h1").wait_for()
        expect(page.get_by_text("Loading…")).to_have_count(0)
        if name == "sql":
            ask(page)
        page.wait_for_timeout(500)  # charts, and what slides in
        page.screenshot(path=OUT / f"{name}-{size}-{look}.png")
    context.close()


def ask(page: Page) -> None:
    """The console shows what it answers."""
    editor = page.get_by_label("SQL", exact=True)
    editor.fill(QUERY)
    editor.press("Control+Enter")
    page.get_by_label("Result").get_by_role("table").first.wait_for()


def _items(api: httpx.Client, **query: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = api.get("/runs", params=query).json()["items"]
    return items


def _wait(look: Any, seconds: float = 120) -> Any:
    """What `look` finds, once it finds something."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            found = look()
        except (httpx.HTTPError, OSError):
            found = None
        if found:
            return found
        time.sleep(0.2)
    raise TimeoutError(f"nothing after {seconds:g} s")


if __name__ == "__main__":
    main()
