"""A real `rota up` in a process of its own, and a browser that looks at it."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import (
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Locator,
    Page,
    expect,
)

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SECONDS = 20.0
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
URL = re.compile(r"http://127\.0\.0\.1:\d+")
TERMINAL = ("succeeded", "dead", "cancelled")

expect.set_options(timeout=SECONDS * 1000)


class Site:
    """A Rota that runs; `url` is where its dashboard is."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        first = (folder / ".rota/token").read_text("utf-8").strip()
        self.api = httpx.Client(
            base_url=f"{url}/api/v1",
            headers={"Authorization": f"Bearer {first}"},
            timeout=SECONDS,
        )
        self.tokens: dict[str, str] = {
            role: self.post("/tokens", name=f"the-{role}", role=role)["token"]
            for role in ("viewer", "operator", "admin")
        }

    def get(self, path: str, **query: Any) -> Any:
        answer = self.api.get(path, params=query)
        assert answer.is_success, answer.text
        return answer.json()

    def post(self, path: str, **body: Any) -> Any:
        answer = self.api.post(path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def enqueue(self, job: str, **args: Any) -> str:
        made: str = self.post(f"/jobs/{job}/runs", args=args)["id"]
        return made

    def ended(self, run: str) -> dict[str, Any]:
        """The run, once it has ended. The stream of its log ends with it: nothing is polled."""
        with self.api.stream("GET", f"/runs/{run}/logs/stream") as stream:
            for line in stream.iter_lines():
                if line.startswith("event: end"):
                    break
        told: dict[str, Any] = self.get(f"/runs/{run}")
        assert told["state"] in TERMINAL
        return told

    def finish(self, job: str, **args: Any) -> dict[str, Any]:
        return self.ended(self.enqueue(job, **args))

    def open_gate(self, gate: str, step: int) -> None:
        (self.folder / f"{gate}.{step}").touch()

    def write(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        """Rows as they may have become, where the way there would take years or crashes."""
        with closing(sqlite3.connect(self.folder / "rota.db", timeout=SECONDS)) as connection:
            connection.executemany(statement, rows)
            connection.commit()


@contextmanager
def running(
    folder: Path, *, app: Path = HERE / "shop.py", database: str | None = None, local: bool = False
) -> Iterator[Site]:
    """`rota up` in a folder, until the block ends. `local`: with --open-local."""
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT / 'src'}:{app.parent}",
        "ROTA_GRACE": "1s",
        **({} if database is None else {"ROTA_DATABASE": database}),
    }
    rota = [sys.executable, "-m", "rota.cli"]
    command = [*rota, "up", f"{app.stem}:app", "--port", "0"]
    shutil.copytree(app.parent / "jobs.d", folder / "jobs.d")
    log = folder / "up.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--open-local"] if local else command,
            cwd=folder,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        site = Site(_address(process, log), folder)
        yield site
        site.api.close()
    finally:
        process.terminate()
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """What it says of itself, once it answers there."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        found = URL.search(log.read_text("utf-8", "replace"))
        if found is not None:
            try:
                httpx.get(f"{found[0]}/healthz", timeout=SECONDS)
                return found[0]
            except httpx.TransportError:
                pass
        assert process.poll() is None, log.read_text("utf-8", "replace")
        time.sleep(0.05)  # a process that starts wakes no other
    raise AssertionError(log.read_text("utf-8", "replace"))


class Tab:
    """A page of the dashboard. Whatever goes wrong in it is kept, and fails the test at its end."""

    def __init__(self, context: BrowserContext, site: Site) -> None:
        self.page: Page = context.new_page()
        self.site, self.faults = site, list[str]()
        self.allowed: tuple[str, ...] = ()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda fault: self.faults.append(f"uncaught: {fault}"))
        self.page.on("dialog", self._dialog)
        self.page.add_init_script(
            "addEventListener('securitypolicyviolation', (event) => console.error("
            "`CSP: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`))"
        )

    def open(self, route: str = "/") -> Tab:
        self.page.goto(f"{self.site.url}/#{route}")
        expect(self.page.locator("main h1, main h2").first).to_be_visible()
        return self

    def login(self, role: str) -> Tab:
        """With a token of the role. That a person can do it is a test of its own."""
        answer = self.page.context.request.post(
            f"{self.site.url}/api/v1/session",
            data={"token": self.site.tokens[role]},
            headers={"Origin": self.site.url},
        )
        assert answer.ok, answer.text()
        return self

    def badge(self, state: str) -> Locator:
        """The state beside the title of a screen."""
        return self.page.locator(f"main .head [data-state={state}]")

    def act(self, verb: str, *, reason: str | None = None, confirm: str | None = None) -> None:
        """Press a button that asks, fill in the reason, and confirm."""
        self.page.get_by_role("button", name=f"{verb}…").click()
        dialog = self.page.get_by_role("dialog")
        if reason is not None:
            dialog.get_by_label("Reason").fill(reason)
        dialog.get_by_role("button", name=confirm or verb, exact=True).click()
        expect(dialog).to_be_hidden()

    def is_live(self) -> Tab:
        expect(self.page.locator("[data-stream=live]")).to_be_attached()
        return self

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.type}: {message.text}")

    def _dialog(self, dialog: Dialog) -> None:
        self.faults.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def check(self) -> None:
        left = [one for one in self.faults if not any(told in one for told in self.allowed)]
        assert not left, "\n".join(left)
