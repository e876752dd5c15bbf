"""A web server that ends by itself: clients are refused at once, and it comes back on its port."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import httpx
import pytest

from rota.web import server
from tests.surface.conftest import environment
from tests.web.support import SECONDS, Site, eventually


def loop_of_server() -> asyncio.AbstractEventLoop:
    (thread,) = (one for one in threading.enumerate() if one.name == "rota-web")
    loops = (one for one in gc.get_objects() if isinstance(one, asyncio.BaseEventLoop))
    (found,) = (one for one in loops if getattr(one, "_thread_id", None) == thread.ident)
    return found


def leave() -> None:
    raise SystemExit("a callback of the loop left")


def end_server(fault: Callable[[], object] = leave) -> None:
    loop_of_server().call_soon_threadsafe(fault)


def open_stream(site: Site) -> socket.socket:
    """A client that holds its connection; it sees the end of the server."""
    made = socket.create_connection(("127.0.0.1", site.web.port), timeout=SECONDS)
    made.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    answer = b""
    while not answer.endswith(b"}"):
        answer += made.recv(4096)
    assert answer.startswith(b"HTTP/1.1 200")
    return made


def wait_for_end(client: socket.socket) -> None:
    with client:
        try:
            assert client.recv(4096) == b""
        except ConnectionResetError:
            return


def test_clients_are_refused_at_once_and_the_next_server_has_the_same_port(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    url, client = site.url, open_stream(site)
    assert site.app.health["web"] is None
    for seconds in (1, 2):
        end_server()
        wait_for_end(client)
        ended_at = time.monotonic()
        with pytest.raises(httpx.ConnectError, match="refused"):
            httpx.get(f"{url}/healthz")
        eventually(lambda: site.app.health["web"])
        assert site.app.health["web"] == (
            "the web server has ended: SystemExit: a callback of the loop left"
        )
        assert f"port {site.web.port} is served again in {seconds} s" in caplog.text
        eventually(lambda: site.app.health["web"] is None)
        assert time.monotonic() - ended_at > seconds - 0.5
        assert f"the web server answers again on port {site.web.port}" in caplog.text
        assert site.url == url
        client = open_stream(site)
    client.close()


def test_a_loop_that_is_stopped_is_an_end_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FIRST_PAUSE", 0.01)
    with site.client("admin") as client, client.stream("GET", "/api/v1/events") as stream:
        assert stream.status_code == 200
        end_server(loop_of_server().stop)
        with suppress(httpx.TransportError):  # it ends, whole or not; it does not hang
            list(stream.iter_raw())
    eventually(lambda: up(site))
    assert httpx.get(f"{site.url}/healthz").is_success


def up(site: Site) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", site.web.port)) == 0


def test_a_port_that_another_program_takes_meanwhile_is_tried_again(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "FIRST_PAUSE", 0.2)
    client = open_stream(site)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        end_server()
        wait_for_end(client)
        other.bind(("127.0.0.1", site.web.port))
        other.listen()
        taken = f"could not start: Conflict: port {site.web.port} is in use by another program"
        eventually(lambda: taken in (site.app.health["web"] or ""))
    assert taken in caplog.text
    eventually(lambda: site.app.health["web"] is None)
    assert httpx.get(f"{site.url}/healthz").is_success


def test_a_stop_does_not_wait_for_the_next_server(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "FIRST_PAUSE", 60.0)
    (thread,) = (one for one in threading.enumerate() if one.name == "rota-web")
    end_server()
    eventually(lambda: site.app.health["web"])
    began = time.monotonic()
    site.app.stop(grace="0s")
    assert not thread.is_alive()
    assert time.monotonic() - began < 5


def test_pauses_double_up_to_a_minute() -> None:
    assert [server.pause_after(ends) for ends in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert server.pause_after(10_000) == 60


def test_a_server_that_worked_for_long_begins_with_the_first_pause(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(server, "LONGEST_PAUSE", 0.01)  # each server works for longer than that
    pauses: list[int] = []
    pause_after = server.pause_after
    monkeypatch.setattr(server, "pause_after", lambda n: pauses.append(n) or pause_after(n))
    for _ in range(3):
        client = open_stream(site)
        time.sleep(0.02)
        end_server()
        wait_for_end(client)
        eventually(lambda: up(site))
        eventually(lambda: site.app.health["web"] is None)
    assert set(pauses) == {1}


def test_uvloop_is_not_used_unless_asked_for(tmp_path: Path) -> None:
    """uvicorn takes it where it is installed. A program asks for it by asyncio's policy, for the
    web server and for asynchronous jobs."""
    (tmp_path / "uvloop.py").write_text("raise SystemExit('uvloop was imported')\n")
    program = """
        import asyncio, rota, sys, threading, urllib.request

        class Policy(asyncio.DefaultEventLoopPolicy):
            def new_event_loop(self):
                print("a loop of the policy")
                return super().new_event_loop()

        if "asked" in sys.argv:
            asyncio.set_event_loop_policy(Policy())
        app = rota.Rota("sqlite:///rota.db", port=0)

        @app.job
        async def hello() -> None:
            ended.set()

        ended = threading.Event()
        app.start(["worker", "web"])
        app.serve_web().wait_ready()
        hello.enqueue()
        assert ended.wait(20)
        print(urllib.request.urlopen(app.serve_web().url + "/healthz").status)
        app.stop()
    """
    for asked, lines in (("", "200\n"), ("asked", "a loop of the policy\n" * 2 + "200\n")):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", dedent(program), asked],
            cwd=tmp_path, env={**environment(), "PYTHONPATH": str(tmp_path)},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout == lines
