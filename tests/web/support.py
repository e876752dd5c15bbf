"""A Rota that serves HTTP on a free port of the loopback, and clients that know its roles."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import httpx

import rota
from rota.model.roles import ROLES
from rota.web.server import Web

T = TypeVar("T")

ENGINES = ("sqlite", "postgres", "duckdb")
WRONG = f"rota_{'0' * 16}_{'A' * 43}"
SECONDS = 20.0
CONTEXT = ssl.create_default_context()  # to make one for each client takes longer than a request


class Site:
    """`url` is where it is; `tokens` has a text for each role."""

    def __init__(self, app: rota.Rota, web: Web) -> None:
        self.app, self.web = app, web
        self.tokens = {role: app.control.create_token(f"the-{role}", role)[1] for role in ROLES}

    @property
    def url(self) -> str:
        return self.web.url

    def client(self, role: str | None = None, **headers: str) -> httpx.Client:
        told = dict(headers)
        if role is not None:
            told["Authorization"] = f"Bearer {self.tokens.get(role, role)}"
        return httpx.Client(base_url=self.url, headers=told, timeout=SECONDS, verify=CONTEXT)

    def login(self, role: str) -> httpx.Client:
        """A browser with a session, and its secret in every request."""
        client = self.client(Origin=self.url)
        answer = client.post("/api/v1/session", json={"token": self.tokens[role]})
        assert answer.status_code == 200, answer.text
        client.headers["X-Rota-CSRF"] = answer.json()["csrf"]
        return client


@contextmanager
def serving(
    folder: Path,
    database: str | None = None,
    *,
    parts: tuple[str, ...] = ("web",),
    define: Callable[[rota.Rota], object] = lambda app: None,
    **settings: Any,
) -> Iterator[Site]:
    """The folder is where its token and its store are."""
    here = Path.cwd()
    os.chdir(folder)
    app = rota.Rota(database or f"sqlite:///{folder}/rota.db", port=0, **settings)
    jobs(app)
    define(app)
    web = app._web = Web(app, wrong_tokens=10**9)
    try:
        app.start(parts)
        web.wait_ready()
        if "worker" in parts:  # its first heartbeat comes when it comes
            eventually(app.control.workers)
        yield Site(app, web)
    finally:
        app.stop(grace="1s")
        os.chdir(here)


def jobs(app: rota.Rota) -> None:
    @app.job(max_attempts=1, retry_jitter="1s")
    def greet(name: str = "Ada", copies: int = 1) -> str:
        """Says hello."""
        return f"Hello, {name}!" * copies

    @app.job(max_attempts=1)
    def broken(ctx: rota.Context, number: int = 0) -> None:
        ctx.logger.warning("about to break")
        raise RuntimeError(f"no bread, {number} of 7, at postgresql://me:geheim@db/shop")

    @app.job(queue="talk")
    def chatty(ctx: rota.Context, lines: int = 3) -> dict[str, int]:
        for number in range(lines):
            ctx.logger.info("line %d", number)
            ctx.progress(number + 1, lines)
        return {"lines": lines}

    @app.job
    def deep(given: dict[str, Any]) -> None:
        pass

    @app.job("maintenance/vacuum")
    def vacuum() -> None:
        pass

    app.schedule("maintenance/nightly", job="maintenance/vacuum", cron="0 3 * * *")
    app.schedule("hourly", job="greet", every="1h", args={"name": "Bob"})


def eventually(look: Callable[[], T]) -> T:
    """What it finds, as soon as that is something."""
    until = time.monotonic() + SECONDS
    while not (found := look()):
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.01)
    return found


def fresh_id() -> str:
    return str(uuid4())
