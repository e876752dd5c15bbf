"""How the dashboard holds a large store: make one, open every screen, and say what it took.

    python scripts/scale.py                    1,000,000 runs of 10,000 schedules, over a week
    python scripts/scale.py --runs 10000 --schedules 100

For each screen: seconds until it can be used, opened cold and from within the page, the heap of
the page, and the memory of its process. Then, with 60 runs a second: frames a second, and the
longest time between two of them. The rows are written straight into the tables of a new SQLite
store: no queue could make a week of runs in two minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
from chromium import found as find_chromium
from playwright.sync_api import Browser, Page, expect, sync_playwright
from serving import serving

ROOT = Path(__file__).resolve().parent.parent
JOBS = 200
WEEK = 7 * 86_400 * 1_000_000
APP = f"""
import rota

app = rota.Rota("sqlite:///rota.db", slots=50)


def make(number):
    @app.job(f"team{{number % 20}}/job{{number}}", max_attempts=1)
    def job(ctx: rota.Context) -> None:
        ctx.wait(0.05)


for number in range({JOBS}):
    make(number)


@app.job("pulse", every="1s")
def pulse() -> None: ...


if __name__ == "__main__":
    app.load()
    app.close()
"""
RUNS = """INSERT INTO _rota_runs
    (id, job, queue, priority, state, due_at, created_at, queued_at, claimed_at, started_at,
     finished_at, attempt, failures, max_attempts, args, schedule_id, occurrence, missed_count,
     created_by, worker_id, error)
    VALUES (?, ?, 'default', 0, ?, ?, ?, ?, ?, ?, ?, 1, ?, 1, '{}', ?, ?, 1, 'scale', 'scale', ?)"""
LEDGER = """INSERT OR IGNORE INTO _rota_occurrences
    (schedule_id, occurrence, last_occurrence, count, outcome, reason, run_id, recorded_at)
    VALUES (?, ?, ?, 1, 'fired', NULL, ?, ?)"""
BATCH = 20_000
FIRST_ID = 10
UPDATES = 60  # a second
WATCH = """window.gaps = []; let last = performance.now();
const tick = (at) => { window.gaps.push(at - last); last = at; requestAnimationFrame(tick); };
requestAnimationFrame(tick);"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--schedules", type=int, default=10_000)
    arguments = parser.parse_args()
    path = find_chromium()
    if path is None:
        sys.exit("there is no chromium; scripts/chromium.py installs one")
    with tempfile.TemporaryDirectory(prefix="rota-scale-") as scratch:
        folder = Path(scratch)
        fill(folder, arguments.runs, arguments.schedules)
        with serving(folder, "big:app") as api, sync_playwright() as driver:
            browser = driver.chromium.launch(
                executable_path=path, args=["--headless=new", "--no-sandbox", "--disable-gpu"]
            )
            url = str(api.base_url.join("/"))
            print(f"{'screen':<40}{'cold':>8}{'again':>8}{'heap MB':>9}{'tab MB':>8}")
            for route in routes(api):
                print(screen(browser, url, route), flush=True)
            print(f"\n{'60 runs a second':<40}{'frames/s':>9}{'95 %':>8}{'longest':>9}")
            for route in ("/runs", "/", "/timeline?span=15m", "/schedules"):
                print(busy(browser, api, url, route), flush=True)
            browser.close()


def fill(folder: Path, runs: int, schedules: int) -> None:
    (folder / "big.py").write_text(APP)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "big.py"], cwd=folder, env=environment, check=True)
    luck, now = random.Random(1), int(time.time() * 1_000_000)
    with closing(sqlite3.connect(folder / "rota.db")) as store, store:
        store.row_factory = sqlite3.Row
        # Not *: that has generated columns, too, which cannot be inserted.
        stored = store.execute("SELECT name FROM pragma_table_info('_rota_schedules')").fetchall()
        columns = ", ".join(name for (name,) in stored)
        pattern = dict(store.execute(f"SELECT {columns} FROM _rota_schedules").fetchone())
        names = ", ".join(pattern)
        marks = ", ".join(f":{name}" for name in pattern)
        store.executemany(
            f"INSERT INTO _rota_schedules ({names}) VALUES ({marks})",
            [_schedule(pattern, number, now, luck) for number in range(schedules)],
        )
        for first in range(0, runs, BATCH):
            batch = [
                _run(number, runs, schedules, now, luck)
                for number in range(first, min(first + BATCH, runs))
            ]
            store.executemany(RUNS, batch)
            store.executemany(LEDGER, [(r[10], r[11], r[11], r[0], r[4]) for r in batch])


def _schedule(
    pattern: dict[str, Any], number: int, now: int, luck: random.Random
) -> dict[str, Any]:
    paused = number % 1_000 == 7
    return pattern | {
        "id": FIRST_ID + number,
        "name": f"schedule/{number:05d}",
        "job": _job(number),
        "expr": "1d",
        "next_fire_at": now + luck.randint(3_600, 86_400) * 1_000_000,
        "last_fired_at": now - luck.randint(0, 86_400) * 1_000_000,
        "paused": int(paused),
        "paused_by": "ada" if paused else None,
    }


def _run(number: int, runs: int, schedules: int, now: int, luck: random.Random) -> tuple[Any, ...]:
    at = now - WEEK + number * WEEK // runs
    schedule, dead = luck.randrange(schedules), luck.random() < 0.01
    begun = at + 20_000
    return (
        f"{luck.getrandbits(32):08x}-0000-4000-8000-{number:012x}", _job(schedule),
        "dead" if dead else "succeeded", at, at, at, at, begun,
        begun + luck.randint(100_000, 10_000_000), int(dead), FIRST_ID + schedule, at,
        f"ValueError: bad row {number}" if dead else None,
    )  # fmt: skip


def _job(number: int) -> str:
    return f"team{number % 20}/job{number % JOBS}"


def routes(api: httpx.Client) -> list[str]:
    dead = api.get("/runs", params={"state": "dead", "limit": 1}).json()["items"][0]["id"]
    return [
        "/", "/?span=week", "/timeline", "/timeline?span=1d", "/timeline?span=31d", "/schedules",
        "/schedules?q=0099", "/schedules?sort=next", "/schedules/schedule%2F00042", "/runs",
        "/runs?state=dead", "/runs?job=team1%2Fjob1&state=succeeded", f"/runs/{dead}", "/jobs",
        "/jobs/team1%2Fjob1", "/queues", "/workers", "/dead", "/sql", "/audit",
    ]  # fmt: skip


def screen(browser: Browser, url: str, route: str) -> str:
    page = browser.new_context(viewport={"width": 1360, "height": 850}).new_page()
    cold = usable(page, f"{url}#{route}")
    page.goto(f"{url}#/elsewhere")
    page.get_by_text("There is no such page").wait_for()
    again = usable(page, f"{url}#{route}")
    page.wait_for_timeout(1_500)  # events come, and lists look again
    heap, tab = memory(page), tab_megabytes()
    page.context.close()
    return f"{route[:39]:<40}{cold:>7.2f}s{again:>7.2f}s{heap:>9.1f}{tab:>8}"


def usable(page: Page, address: str) -> float:
    began = time.monotonic()
    page.goto(address)
    page.locator("main h1").wait_for()
    expect(page.get_by_text("Loading…")).to_have_count(0, timeout=60_000)
    return time.monotonic() - began


def memory(page: Page) -> float:
    """The heap, after a collection."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    told = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return float(told["JSHeapUsedSize"]) / 1e6


def tab_megabytes() -> int:
    """The largest process of a page: its own memory, and its share of what it shares."""
    sizes = [0]
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if b"--type=renderer" in (path / "cmdline").read_bytes():
                found = re.search(r"Pss:\s+(\d+)", (path / "smaps_rollup").read_text())
                sizes.append(int(found[1]) // 1024 if found else 0)
        except OSError:
            continue
    return max(sizes)


def busy(browser: Browser, api: httpx.Client, url: str, route: str) -> str:
    page = browser.new_context(viewport={"width": 1360, "height": 850}).new_page()
    page.add_init_script(WATCH)
    page.goto(f"{url}#{route}")
    page.locator("[data-stream=live]").wait_for(state="attached")
    page.wait_for_timeout(2_000)
    page.evaluate("window.gaps.length = 0")
    stop = threading.Event()
    thread = threading.Thread(target=enqueue, args=(api, stop))
    thread.start()
    began = time.monotonic()
    page.wait_for_timeout(10_000)
    seconds = time.monotonic() - began
    stop.set()
    thread.join()
    gaps = sorted(json.loads(page.evaluate("JSON.stringify(window.gaps)")))
    page.context.close()
    late = gaps[int(len(gaps) * 0.95)]
    return f"{route:<40}{len(gaps) / seconds:>9.0f}{late:>5.0f} ms{gaps[-1]:>6.0f} ms"


def enqueue(api: httpx.Client, stop: threading.Event) -> None:
    began, made = time.monotonic(), 0
    while not stop.is_set():
        api.post("/jobs/team1%2Fjob1/runs", json={})
        made += 1
        time.sleep(max(0.0, began + made / UPDATES - time.monotonic()))


if __name__ == "__main__":
    main()
