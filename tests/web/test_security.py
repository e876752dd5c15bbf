"""Tokens, sessions, limits and headers, as a client meets them."""

from __future__ import annotations

import os
import select
import socket
import ssl
import stat
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from anyio.from_thread import run_sync as run_in_loop

import rota
from rota import extras
from rota.cli import token
from rota.errors import Conflict, Invalid, MissingExtra
from rota.flow.tokens import new_text
from rota.model import limits
from rota.storage import operations
from rota.web import guard, protocol, server
from rota.web.files import dashboard
from rota.web.routes import health
from rota.web.routes import sql as sql_route
from rota.web.routing import THREADS, Ask
from rota.web.who import Doorkeeper, WrongTokens, is_loopback
from tests.support.operations import replace_operation
from tests.surface.conftest import Cli, cli  # noqa: F401
from tests.web.support import SECONDS, WRONG, Site, eventually, serving

# The first token


def test_the_first_start_writes_a_token_for_its_owner_only(tmp_path: Path) -> None:
    with serving(tmp_path) as site:
        file = tmp_path / ".rota" / "token"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert (file.parent / ".gitignore").read_text() == "*\n"
        first = file.read_text().strip()
        with site.client(first) as client:
            told = client.get("/api/v1/session").json()
            assert (told["kind"], told["role"]) == ("token", "admin")
        names = [token.name for token in site.app.control.tokens()]
        assert names.count("first") == 1
    with serving_again(tmp_path) as client:
        assert file.read_text().strip() == first
        client.headers["Authorization"] = f"Bearer {first}"
        assert client.get("/api/v1/session").json()["role"] == "admin"


def test_a_store_that_was_removed_knows_the_token_in_the_file_again(tmp_path: Path) -> None:
    with serving(tmp_path):
        first = (tmp_path / ".rota" / "token").read_text()
    for file in tmp_path.glob("rota.db*"):
        file.unlink()
    with serving(tmp_path) as site, site.client(first.strip()) as client:
        assert (tmp_path / ".rota" / "token").read_text() == first
        assert client.get("/api/v1/tokens").status_code == 200


def test_a_token_that_others_can_read_is_not_taken_for_ours(tmp_path: Path) -> None:
    with serving(tmp_path):
        file = tmp_path / ".rota" / "token"
        first = file.read_text()
    file.chmod(0o644)
    for one in tmp_path.glob("rota.db*"):
        one.unlink()
    with serving(tmp_path):
        assert file.read_text() != first
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def planted(folder: Path) -> str:
    """A token that somebody knows, where the first start looks for one."""
    text = new_text()
    (folder / ".rota").mkdir(mode=0o700)
    (folder / ".rota" / "token").write_text(text)
    (folder / ".rota" / "token").chmod(0o600)
    return text


def test_a_token_that_somebody_else_planted_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = planted(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with serving(tmp_path) as site, site.client(text) as client:
        assert client.get("/api/v1/runs").status_code == 401
        assert site.web.token_file is None
    assert (tmp_path / ".rota" / "token").read_text() == text


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    text = planted(tmp_path)
    file = (tmp_path / ".rota" / "token").rename(tmp_path / "elsewhere")
    (tmp_path / ".rota" / "token").symlink_to(file)
    with serving(tmp_path) as site, site.client(text) as client:
        assert client.get("/api/v1/runs").status_code == 401
    assert not (tmp_path / ".rota" / "token").is_symlink()
    assert file.read_text() == text


def test_a_link_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    text = planted(tmp_path)
    (tmp_path / ".rota").rename(tmp_path / "elsewhere")
    (tmp_path / ".rota").symlink_to(tmp_path / "elsewhere")
    with serving(tmp_path) as site, site.client(text) as client:
        assert client.get("/api/v1/runs").status_code == 401


class serving_again:  # noqa: N801
    """A second start in the same folder: its tokens are there already."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> httpx.Client:
        self._app = rota.Rota(f"sqlite:///{self._folder}/rota.db", port=0)
        self._app.start(["web"])
        web: Any = self._app.serve_web()
        web.wait_ready()
        return httpx.Client(base_url=web.url, timeout=SECONDS)

    def __exit__(self, *fault: object) -> None:
        self._app.stop()


# Sessions


def test_a_browser_shows_its_token_once(site: Site) -> None:
    browser = site.login("operator")
    (cookie,) = browser.cookies.jar
    assert cookie.name == f"rota_session_{site.web.port}"
    told = browser.get("/api/v1/session").json()
    assert (told["kind"], told["name"], told["role"]) == ("session", "the-operator", "operator")
    assert told["csrf"] == browser.headers["X-Rota-CSRF"]
    assert browser.post("/api/v1/queues/talk/pause", json={}).status_code == 200
    assert browser.delete("/api/v1/session").status_code == 204
    browser.cookies.set(cookie.name, cookie.value or "")
    assert browser.get("/api/v1/session").json()["kind"] == "local"
    browser.close()


def test_the_cookie_is_no_script_s_and_no_other_site_s(site: Site) -> None:
    with site.client(Origin=site.url) as client:
        answer = client.post("/api/v1/session", json={"token": site.tokens["viewer"]})
    told = answer.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(told)
    assert site.tokens["viewer"] not in answer.text
    assert site.tokens["viewer"] not in answer.headers["set-cookie"]


def test_a_revoked_token_ends_its_sessions(site: Site) -> None:
    browser = site.login("admin")
    assert browser.get("/api/v1/tokens").status_code == 200
    site.app.control.revoke_token("the-admin")
    assert browser.get("/api/v1/tokens").status_code == 401
    browser.close()


def test_open_local_lets_browsers_of_this_machine_operate(tmp_path: Path) -> None:
    with serving(tmp_path, open_local=True) as site:
        with site.client(Origin=site.url) as browser:
            assert browser.get("/api/v1/session").json()["open_local"] is True
            assert browser.post("/api/v1/dispatch/pause", json={}).status_code == 401
            told = browser.post("/api/v1/session", json={}).json()
            assert (told["role"], told["name"]) == ("operator", "local")
            assert browser.post("/api/v1/dispatch/pause", json={}).status_code == 403
            browser.headers["X-Rota-CSRF"] = told["csrf"]
            assert browser.post("/api/v1/dispatch/pause", json={}).status_code == 200
            assert browser.get("/api/v1/tokens").status_code == 403
            (entry,) = browser.get("/api/v1/audit", params={"limit": 1}).json()["items"]
            assert (entry["action"], entry["by"], entry["via"]) == (
                "pause_dispatch", "local", "http 127.0.0.1",
            )  # fmt: skip
            # The same cookie, through a proxy or without the page: nothing.
            proxied = {"X-Forwarded-For": "198.51.100.7"}
            assert browser.get("/api/v1/jobs", headers=proxied).status_code == 401
        with site.client() as program:
            assert program.post("/api/v1/session", json={}).status_code == 401
        with site.client(Origin="https://evil.example") as page:
            assert page.post("/api/v1/session", json={}).status_code == 403


def test_old_sessions_make_room_and_end_by_themselves(site: Site) -> None:
    now = 0.0
    keeper = Doorkeeper(lambda: site.app.storage, monotonic=lambda: now, open_local=True)
    cookies = [keeper.begin(None)[0] for _ in range(limits.SESSIONS + 1)]

    def role(cookie: str) -> str | None:
        headers = guard.Headers({"cookie": f"x=1; {keeper.cookie}={cookie}"})
        return keeper.identify(headers, "127.0.0.1", local=True).role

    assert role(cookies[0]) == "viewer"
    assert role(cookies[-1]) == "operator"
    now = limits.SESSION_HOURS * 3600 + 1.0
    assert role(cookies[-1]) == "viewer"


# What an operator may


def test_an_operator_makes_and_drops_schedules_but_says_no_sql_on_both_surfaces(site: Site) -> None:
    with site.client("operator") as client:

        def sql(text: str) -> int:
            return client.post("/api/v1/sql", json={"sql": text}).status_code

        assert sql("CREATE SCHEDULE by_sql FOR JOB greet EVERY '5m'") == 200
        assert sql("ALTER SCHEDULE by_sql SET EVERY '6m'") == 200
        assert sql("DROP SCHEDULE by_sql") == 200
        told = {"name": "by_http", "job": "greet", "every": "5m"}
        assert client.post("/api/v1/schedules", json=told).status_code == 201
        assert client.delete("/api/v1/schedules/by_http").status_code in (200, 204)
        assert sql("CREATE SCHEDULE own AS $$ SELECT 1; $$ EVERY '5m'") == 403
        with_role = "FOR JOB greet EVERY '5m' WITH SCHEDULE OPTIONS (run_as = 'x')"
        assert sql(f"CREATE SCHEDULE own {with_role}") == 422  # it belongs to the job
        assert sql("ALTER SCHEDULE hourly SET run_as = 'x'") == 403
        assert sql("ALTER SCHEDULE hourly SET AS $$ SELECT 1; $$") == 403


# Wrong tokens


def test_too_many_wrong_tokens_are_not_looked_at(site: Site) -> None:
    keeper = Doorkeeper(lambda: site.app.storage, wrong_tokens=3)
    good = site.tokens["viewer"]
    keeper.check(good, "198.51.100.7")
    for _ in range(3):
        with pytest.raises(guard.Refused) as refused:
            keeper.check(WRONG, "198.51.100.7")
        assert refused.value.status_code == 401
    with pytest.raises(guard.Refused) as refused:
        keeper.check(WRONG, "198.51.100.7")
    assert refused.value.status_code == 429
    assert int((refused.value.headers or {})["Retry-After"]) > 0
    # Who was good before is not locked out by others behind the same address; nor are others.
    assert keeper.check(good, "198.51.100.7").name == "the-viewer"
    assert keeper.check(site.tokens["admin"], "198.51.100.8").name == "the-admin"
    with pytest.raises(guard.Refused) as refused:
        keeper.check(site.tokens["operator"], "198.51.100.7")
    assert refused.value.status_code == 429


def test_after_a_minute_an_address_may_try_again() -> None:
    now = 100.0
    wrong = WrongTokens(2, lambda: now)
    wrong.add("a")
    assert not wrong.blocked("a")
    wrong.add("a")
    assert 0 < wrong.blocked("a") <= 61
    now += 61
    assert not wrong.blocked("a")
    wrong.add("a")
    assert not wrong.blocked("a")


# Limits


GET, HOST = b"GET /healthz", b"\r\nHost: localhost\r\n"


def raw(site: Site, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", site.web.port), timeout=20) as line:
        line.sendall(request)
        told = b""
        while part := line.recv(65_536):
            told += part
        return told


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (GET + b" HTTP/1.1" + HOST + b"X: " + b"x" * 40_000 + b"\r\n\r\n", 431, "too-large"),
        (GET + b" HTTP/1.1" + HOST + b"X: " + b"x" * 200_000, 431, "too-large"),
        (GET + b"?" + b"x" * 9_000 + b" HTTP/1.1" + HOST + b"\r\n", 414, "too-large"),
        (b"rubbish\r\n\r\n", 400, "malformed"),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400, "malformed"),
        (b"GET /healthz HTTP/1.0\r\n\r\n", 421, "host"),
        (b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404, "no-route"),
        (b"PUT /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 405, "method"),
    ],
    ids=["headers", "endless-headers", "url", "no-http", "no-host", "old", "no-route", "method"],
)  # fmt: skip
def test_what_is_too_large_or_no_request_is_a_problem(
    site: Site, request_: bytes, status: int, code: str
) -> None:
    told = raw(site, request_)
    assert told.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"application/problem+json" in told.lower()
    assert f'"code": "{code}"'.encode() in told


def test_a_body_that_is_too_large_is_refused(site: Site) -> None:
    with site.client("admin") as client:
        large = b'{"sql": "' + b"x" * limits.BODY_BYTES + b'"}'
        kind = {"Content-Type": "application/json"}
        answer = client.post("/api/v1/sql", content=large, headers=kind)
        assert (answer.status_code, answer.json()["code"]) == (413, "too-large")
        in_parts = (large[start : start + 10_000] for start in range(0, len(large), 10_000))
        answer = client.post("/api/v1/sql", content=in_parts, headers=kind)
        assert (answer.status_code, answer.json()["code"]) == (413, "too-large")
        deep = b"[" * 100_000
        answer = client.post("/api/v1/sql", content=deep, headers=kind)
        assert answer.status_code in (400, 422)
        assert answer.headers["content-type"] == "application/problem+json"


def test_who_says_nothing_is_sent_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.1)
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.1)
    monkeypatch.setattr(server, "KEEP_ALIVE_SECONDS", 1)  # then the connection is closed, too
    with serving(tmp_path) as site:
        assert raw(site, b"GET /healthz HT").startswith(b"HTTP/1.1 408 ")
        told = f"Authorization: Bearer {site.tokens['admin']}"
        head = (
            f"POST /api/v1/sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n"
            f"Content-Type: application/json\r\n{told}\r\n\r\n"
        )
        assert raw(site, head.encode() + b"{").startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("role", [None, "admin"])
def test_a_body_that_drips_has_one_deadline(
    site: Site, monkeypatch: pytest.MonkeyPatch, role: str | None
) -> None:
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.3 if role else 600.0)
    monkeypatch.setattr(guard, "UNKNOWN_BODY_SECONDS", 600.0 if role else 0.3)
    with slow_login(site, role) as line:
        for _ in range(200):
            if select.select([line], [], [], 0.05)[0]:
                break
            line.sendall(b" ")
        assert line.recv(20).startswith(b"HTTP/1.1 408 ")


def slow_login(site: Site, role: str | None = None) -> socket.socket:
    """A request whose body does not end."""
    line = socket.create_connection(("127.0.0.1", site.web.port), timeout=20)
    told = f"Authorization: Bearer {site.tokens[role]}\r\n" if role else ""
    head = (
        f"POST /api/v1/session HTTP/1.1\r\nHost: 127.0.0.1:{site.web.port}\r\n{told}"
        f"Origin: {site.url}\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n{{"
    )
    line.sendall(head.encode())
    return line


def test_who_shows_no_token_cannot_take_every_place(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "UNKNOWN_BODY_SECONDS", 600.0)
    monkeypatch.setattr(guard, "UNKNOWN_AT_ONCE", 2)
    held = [slow_login(site) for _ in range(2)]
    with site.client() as nobody, site.client("viewer") as viewer:
        answer = eventually(lambda: busy(nobody.get("/api/v1/session")))
        assert "without a token" in answer.json()["detail"]
        assert viewer.get("/api/v1/runs").status_code == 200
        assert nobody.get("/healthz").status_code == 200
        assert nobody.get("/readyz").status_code == 200
        assert nobody.get("/").status_code == 200, "also those who have a session load it"
        for line in held:
            line.close()
        eventually(lambda: nobody.get("/api/v1/session").status_code == 200)


def busy(answer: httpx.Response) -> httpx.Response | None:
    return answer if answer.status_code == 503 and answer.json()["code"] == "busy" else None


def test_health_is_told_however_busy_it_is(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "REQUESTS_AT_ONCE", 0)
    with site.client("admin") as client:
        assert busy(client.get("/api/v1/runs"))
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 200


def test_what_is_public_is_told_whatever_is_shown(site: Site) -> None:
    """Nobody is looked up for it: a wrong token would be refused."""
    for path in ("/healthz", "/readyz", "/", "/api/v1/openapi.json"):
        for headers in ({"Authorization": f"Bearer {WRONG}"}, {"Authorization": "Basic Og=="}):
            with site.client(**headers) as client:
                assert client.get(path).status_code == 200, path
    with site.client(WRONG) as client:
        assert client.get("/api/v1/session").status_code == 401


def test_who_asks_whether_it_is_ready_takes_no_thread_from_others(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    go = threading.Event()
    now = site.app.storage.now

    def slow() -> datetime:
        if threading.current_thread().name.startswith("AnyIO"):
            asked.append(1)
            assert go.wait(SECONDS)
        return now()

    monkeypatch.setattr(site.app.storage, "now", slow)
    monkeypatch.setattr(health, "STORE_SECONDS", 600.0)
    with site.client() as client, ThreadPoolExecutor(2 * THREADS) as crowd:
        answers = [crowd.submit(client.get, "/readyz") for _ in range(2 * THREADS)]
        eventually(lambda: asked)
        with site.client("viewer") as viewer:
            assert viewer.get("/api/v1/session").status_code == 200
        assert len(asked) == 1
        go.set()
        assert {one.result(SECONDS).status_code for one in answers} == {200}
    assert len(asked) == 1


def test_the_dashboard_is_loaded_while_every_thread_waits_for_the_store(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = threading.Semaphore(0)
    go = threading.Event()
    now = site.app.storage.now

    def slow() -> datetime:
        if threading.current_thread().name.startswith("AnyIO"):
            waiting.release()
            assert go.wait(SECONDS)
        return now()

    with site.client("viewer") as viewer, ThreadPoolExecutor(THREADS) as crowd:
        document = "/api/v1/openapi.json"
        assert viewer.get(document).status_code == 200  # made once
        monkeypatch.setattr(site.app.storage, "now", slow)
        answers = [crowd.submit(viewer.get, "/api/v1/overview") for _ in range(THREADS)]
        try:
            assert all(waiting.acquire(timeout=SECONDS) for _ in answers)
            for path in ("/", f"/static/{dashboard().mark}/main.js", document):
                assert viewer.get(path).status_code == 200, path
        finally:
            go.set()
        assert {one.result(SECONDS).status_code for one in answers} == {200}


def test_a_body_that_nobody_wants_takes_no_place(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, pass_over = threading.Event(), guard.Body.pass_over

    async def watched(body: guard.Body) -> None:
        entered.set()
        await pass_over(body)

    monkeypatch.setattr(guard.Body, "pass_over", watched)
    monkeypatch.setattr(guard, "PASS_OVER_SECONDS", 600.0)
    monkeypatch.setattr(guard, "REQUESTS_AT_ONCE", 1)
    address = ("127.0.0.1", site.web.port)
    with socket.create_connection(address, timeout=20) as line, site.client("admin") as client:
        line.sendall(b"POST / HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 9\r\n\r\n{")
        assert entered.wait(20)
        assert client.get("/api/v1/runs").status_code == 200


def test_sql_keeps_its_place_while_its_thread_works(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    real = sql_route._run

    def slow(ask: Ask, text: str) -> sql_route.Results:
        if not go.is_set():  # the time of the request is over as soon as its thread works
            turn = ask.request.scope["state"][guard.STREAM].__self__
            run_in_loop(turn.timer.reschedule, 0.0)
        assert go.wait(60)
        return real(ask, text)

    monkeypatch.setattr(sql_route, "SQL_AT_ONCE", 1)
    monkeypatch.setattr(sql_route, "_run", slow)
    with site.client("viewer") as client:
        answer = client.post("/api/v1/sql", json={"sql": "SHOW SCHEDULES"})
        assert (answer.status_code, answer.json()["code"]) == (503, "timeout")
        assert busy(client.post("/api/v1/sql", json={"sql": "SHOW SCHEDULES"}))
        go.set()
        done = eventually(
            lambda: client.post("/api/v1/sql", json={"sql": "SHOW SCHEDULES"}).status_code == 200
        )
        assert done


PROXIES = (
    "Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Port",
    "X-Real-IP", "X-Client-IP", "True-Client-IP", "CF-Connecting-IP", "CF-Ray", "X-Original-URL",
    "X-Original-Forwarded-For",
)  # fmt: skip


@pytest.mark.parametrize("header", PROXIES)
def test_what_comes_through_a_proxy_is_not_of_this_machine(site: Site, header: str) -> None:
    with site.client() as client:
        assert client.get("/api/v1/runs").status_code == 200
        assert client.get("/api/v1/runs", headers={header: "198.51.100.7"}).status_code == 401


def test_a_proxy_may_speak_tls_for_us(site: Site) -> None:
    secure = site.url.replace("http:", "https:")
    token = {"token": site.tokens["viewer"]}
    for told, status in (
        ({}, 403),
        ({"X-Forwarded-For": "198.51.100.7"}, 200),
        ({"X-Forwarded-Proto": "https"}, 200),
        ({"X-Forwarded-Proto": "http"}, 403),
    ):
        with site.client(Origin=secure, **told) as client:
            assert client.post("/api/v1/session", json=token).status_code == status, told


def test_who_has_no_token_is_told_how_to_show_one(site: Site) -> None:
    with site.client() as client:
        for told in ({}, {"Authorization": "Basic abc"}):
            detail = client.post("/api/v1/prune", headers=told).json()["detail"]
            assert "Authorization as `Bearer TOKEN`" in detail


def test_too_many_connections_are_closed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "CONNECTIONS", 2)
    address = ("127.0.0.1", site.web.port)
    held = [socket.create_connection(address, timeout=20) for _ in range(2)]
    for line in held:
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert line.recv(20).startswith(b"HTTP/1.1 200")
    with socket.create_connection(address, timeout=20) as line:
        try:
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            told = line.recv(20)
        except ConnectionError:
            told = b""
        assert told == b""
    for line in held:
        line.close()


def test_a_request_that_takes_too_long_is_answered(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    monkeypatch.setattr(guard, "REQUEST_SECONDS", 0.2)
    replace_operation(
        monkeypatch,
        site.app.storage,
        operations.list_queues,
        lambda plain, **page: go.wait(20) or [],
    )
    with site.client() as client:
        answer = client.get("/api/v1/queues")
        go.set()
    assert (answer.status_code, answer.json()["code"]) == (503, "timeout")


def test_a_failure_of_ours_says_where_to_look_and_nothing_else(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(plain: object, **page: object) -> None:
        raise RuntimeError("the secret is geheim")

    replace_operation(monkeypatch, site.app.storage, operations.list_queues, fail)
    with site.client() as client:
        answer = client.get("/api/v1/queues")
    told = answer.json()
    assert (answer.status_code, told["code"]) == (500, "internal")
    assert "geheim" not in answer.text
    assert told["detail"].rpartition(" ")[2] in caplog.text


# Headers


def test_every_answer_has_the_headers(site: Site) -> None:
    for path in ("/", "/healthz", "/api/v1/runs", "/nothing", "/api/v1/tokens"):
        with site.client() as client:
            told = client.get(path).headers
        policy = told["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert told["x-content-type-options"] == "nosniff"
        assert told["x-frame-options"] == "DENY"
        assert told["referrer-policy"] == "no-referrer"
        assert "server" not in told
        assert "access-control-allow-origin" not in told


# Where it listens


@pytest.mark.parametrize(
    ("address", "own"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True),
     ("10.0.0.1", False), ("::ffff:10.0.0.1", False), ("0.0.0.0", False), ("evil.test", False)],
)  # fmt: skip
def test_what_this_machine_is(address: str, own: bool) -> None:
    assert is_loopback(address) is own


def test_with_a_token_others_may_reach_it_and_need_it(tmp_path: Path) -> None:
    with serving(tmp_path) as site:
        admin = site.tokens["admin"]
    app = rota.Rota(f"sqlite:///{tmp_path}/rota.db", host="0.0.0.0", port=0, hosts=["rota.test"])
    app.start(["web"])
    try:
        web: Any = app.serve_web()
        web.wait_ready()
        with httpx.Client(base_url=web.url, timeout=SECONDS) as client:
            for host in ("rota.test", "192.0.2.7", socket.gethostname()):
                assert client.get("/api/v1/runs", headers={"Host": host}).status_code == 401
                told = {"Host": host, "Authorization": f"Bearer {admin}"}
                assert client.get("/api/v1/runs", headers=told).status_code == 200
            assert client.get("/api/v1/runs", headers={"Host": "evil.test"}).status_code == 421
    finally:
        app.stop()


def test_a_port_that_is_taken_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        app = rota.Rota(f"sqlite:///{tmp_path}/rota.db", port=port)
        with pytest.raises(Conflict, match="--port 0"):
            app.serve_web().prepare()
        # The usual one is not worth a refusal: another Rota has it.
        monkeypatch.setattr(server, "PORT", port)
        web = app.serve_web()
        web.prepare()
        assert "is in use" in (web.note or "")
        assert not web.url.endswith(f":{port}")
        app.close()


def test_without_its_packages_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(extras.EXTRAS, "web", ("uvicorn", "no_such_package"))
    app = rota.Rota(f"sqlite:///{tmp_path}/rota.db")
    with pytest.raises(MissingExtra, match=r"no_such_package: pip install '.*\[web\]'"):
        app.serve_web().prepare()


def test_it_speaks_tls(tmp_path: Path) -> None:
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out",
         "cert.pem", "-days", "1", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=IP:127.0.0.1"],
        cwd=tmp_path, capture_output=True,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("no openssl to make a certificate with")
    told = {"tls_certificate": str(tmp_path / "cert.pem"), "tls_key": str(tmp_path / "key.pem")}
    with serving(tmp_path, **told) as site:
        assert site.url.startswith("https://")
        trust = ssl.create_default_context(cafile=told["tls_certificate"])
        told = {"Origin": site.url}
        with httpx.Client(base_url=site.url, verify=trust, headers=told, timeout=SECONDS) as client:
            assert "strict-transport-security" in client.get("/healthz").headers
            answer = client.post("/api/v1/session", json={"token": site.tokens["viewer"]})
            assert "Secure" in answer.headers["set-cookie"]


def test_a_bad_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("rubbish")
    app = rota.Rota(
        f"sqlite:///{tmp_path}/rota.db", tls_certificate=str(tmp_path / "cert.pem"), port=0
    )
    with pytest.raises(Invalid, match=r"tls_certificate '.*cert.pem'"):
        app.serve_web().prepare()


# The command


def test_tokens_are_made_listed_and_revoked_by_the_command(
    cli: Cli,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cli("migrate")
    made = cli("token", "create", "ci", "--role", "operator", "--expires", "90d", "--json").json
    assert made["token"].startswith(f"rota_{made['id']}_")
    (listed,) = cli("token", "list", "--json").json
    assert listed == {name: value for name, value in made.items() if name != "token"}
    assert made["token"] not in cli("token", "list").out
    assert "ci" in cli("token", "list").out
    assert "expires" in cli("token", "list").out.splitlines()[0]
    plain = cli("token", "create", "other")
    assert plain.out.strip().startswith("rota_")
    assert cli("token", "revoke", "ci").code == 0
    states = {one["name"]: one["revoked_by"] for one in cli("token", "list", "--json").json}
    assert states["ci"] is not None
    assert states["other"] is None
    with monkeypatch.context() as patch:
        patch.setattr(token, "PAGE", 2)
        names = [cli("token", "create", f"more-{number}").code for number in range(3)]
        assert names == [0, 0, 0]
        listed = [one["name"] for one in cli("token", "list", "--json").json]
        assert listed == ["ci", "other", "more-0", "more-1", "more-2"]
    for wrong in (
        ["create"], ["create", "x", "--role", "king"], ["list", "x"], ["revoke"], ["burn", "x"],
        ["create", "x", "--expires", "1000000d"], ["create", "no/such name"], ["revoke", "nobody"],
    ):  # fmt: skip
        assert cli("token", *wrong).code == 2
    assert "use 90d or 2027-" in cli("token", "create", "x", "--expires", "soon").err
