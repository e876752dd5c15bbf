"""Event streams: what is told to whom, to how many, and how they end."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import pytest

import rota
from rota.flow.events import NAMES, RunEvent
from rota.web import streams
from rota.web.feed import CHUNK_BYTES, RING
from tests.api.support import PATIENCE, wait_until
from tests.surface.conftest import environment
from tests.web.support import Site, jobs, serving

Event = tuple[str, str | None, Any]
# Each try may be over between two looks at the store.
SHAKY = """
schedule = "0 3 * * *"
max_attempts = 3
delay = "1s"

def run(ctx):
    if ctx.attempt < 3:
        raise RuntimeError(f"try {ctx.attempt}")
"""
CROWD = 500


class Reader:
    """Reads one stream event by event."""

    def __init__(self, client: httpx.Client, path: str, **headers: str) -> None:
        self._context = client.stream("GET", path, headers=headers)
        self.answer = self._context.__enter__()
        self._lines = self.answer.iter_lines()

    def next(self) -> Event:
        """(name, id, data); comments and the time to wait are passed over."""
        told: dict[str, str] = {}
        for line in self._lines:
            if line and not line.startswith((":", "retry")):
                name, _, value = line.partition(": ")
                told[name] = value
            elif not line and "event" in told:
                return told["event"], told.get("id"), json.loads(told["data"])
        raise EOFError("the stream has ended")

    def until(self, name: str) -> list[Event]:
        found = [self.next()]
        while found[-1][0] != name:
            found.append(self.next())
        return found

    def close(self) -> None:
        self._context.__exit__(None, None, None)


@contextmanager
def reading(client: httpx.Client, path: str, **headers: str) -> Iterator[Reader]:
    reader = Reader(client, path, **headers)
    try:
        yield reader
    finally:
        reader.close()


@pytest.mark.each_engine
def test_what_another_process_does_is_told_in_its_order(tmp_path: Path, database: str) -> None:
    with serving(tmp_path, database) as site, site.client() as client:
        with reading(client, "/events") as stream:
            assert stream.answer.headers["content-type"].startswith("text/event-stream")
            assert stream.next()[0] == "hello"
            other = rota.Rota(database)
            jobs(other)
            other.start(["worker"])
            try:
                run_id = other.enqueue("broken", {"number": 3}).id
                told = stream.until("job.failed")
            finally:
                other.stop(grace="1s")
        about = [(name, said) for name, _, said in told if said.get("run_id") == run_id]
        assert [name for name, _ in about] == [
            "run.created", "job.started", "attempt.started", "attempt.failed", "job.failed",
        ]  # fmt: skip
        failed = about[-1][1]
        assert failed["name"] == "broken"
        assert failed["state"] == "dead"
        assert "no bread, 3 of 7" in failed["error"]
        assert "geheim" not in json.dumps(told)


def test_the_stream_says_of_a_run_what_listeners_are_told(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file job by its schedule, three tries of it, in a process that runs as people run it."""
    monkeypatch.setattr("rota.jobsd.folder.START_SECONDS", PATIENCE)
    folder = tmp_path / "jobs.d"
    folder.mkdir()
    (folder / "shaky.py").write_text(SHAKY)
    other = rota.Rota(database, jobs_dir=str(folder))
    heard: list[tuple[str, RunEvent]] = []
    for name in NAMES:
        other.on(name)(lambda event, name=name: heard.append((name, event)))
    with (
        serving(tmp_path, database) as site,
        site.client() as client,
        reading(client, "/events") as stream,
    ):
        assert stream.next()[0] == "hello"
        other.start()
        try:
            other.control.trigger("shaky")
            told = stream.until("job.completed")
            wait_until(lambda: "job.completed" in [name for name, _ in heard], "the end")
        finally:
            other.stop(grace="1s")
    of_run = [(name, said) for name, _, said in told if said.get("name") == "shaky"]
    assert of_run[0][0] == "run.created"
    of_run = [(name, said) for name, said in of_run if name in NAMES]
    assert [name for name, _ in of_run] == [name for name, _ in heard] == [
        "job.started",
        "attempt.started", "attempt.failed",
        "attempt.started", "attempt.failed",
        "attempt.started", "attempt.succeeded",
        "job.completed",
    ]  # fmt: skip
    same = ("name", "run_id", "attempt", "file_path", "schedule", "schedule_name")
    for (_, said), (_, event) in zip(of_run, heard, strict=True):
        assert [said[one] for one in same] == [getattr(event, one) for one in same]
        assert set(said) >= {one.name for one in fields(RunEvent)}
    failed = of_run[2][1]
    assert failed["file_path"] == str(folder / "shaky.py")
    assert (failed["schedule"], failed["schedule_name"]) == ("0 3 * * *", "shaky")
    assert (failed["attempt"], failed["error"]) == (1, "RuntimeError: try 1")
    assert failed["duration_ms"] >= 0


def test_what_people_do_is_told_too(site: Site) -> None:
    with site.client("operator") as client, reading(client, "/events") as stream:
        stream.next()
        with site.client("operator") as other:
            other.post("/api/v1/schedules/hourly/pause", json={"reason": "a pause"})
        *_, (_, _, said) = stream.until("action")
        assert (said["action"], said["thing"], said["by"]) == (
            "pause_schedule", "hourly", "the-operator",
        )  # fmt: skip
        assert said["reason"] == "a pause"


def test_who_comes_back_misses_nothing(site: Site) -> None:
    feed = feed_of(site)
    with site.client() as client:
        with reading(client, "/events") as stream:
            _, mark, _ = stream.next()
            assert mark is not None
            keeper = Reader(client, "/events")  # the store is read as long as somebody listens
        for number in range(3):
            feed.tell("note", {"number": number})
        with reading(client, "/events", **{"Last-Event-ID": mark}) as stream:
            told = [stream.next() for _ in range(3)]
            assert [said["number"] for _, _, said in told] == [0, 1, 2]
        with reading(client, "/events", **{"Last-Event-ID": told[0][1] or ""}) as stream:
            assert [stream.next()[2]["number"] for _ in range(2)] == [1, 2]
        keeper.close()


@pytest.mark.parametrize("mark", ["ffffffff-3", "rubbish", "", "x" * 500])
def test_who_comes_from_elsewhere_is_told_to_look_anew(site: Site, mark: str) -> None:
    with site.client() as client, reading(client, "/events", **{"Last-Event-ID": mark}) as stream:
        name, now, _ = stream.next()
        assert name == "resync"
        feed_of(site).tell("note", {"number": 7})
        assert stream.next()[2] == {"number": 7}
        assert now is not None


def test_who_falls_behind_the_ring_is_told_to_look_anew(site: Site) -> None:
    feed = feed_of(site)
    with site.client() as client, reading(client, "/events") as stream:
        _, mark, _ = stream.next()
        for number in range(RING + 1):
            feed.tell("note", {"number": number})
        assert mark is not None
        with reading(client, "/events", **{"Last-Event-ID": mark}) as late:
            assert late.next()[0] == "resync"


def test_a_revoked_token_ends_its_streams(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BEAT_SECONDS", 0.1)
    forwarded = {"X-Forwarded-For": "198.51.100.7"}  # else this machine may look without it
    with site.client("viewer", **forwarded) as client, reading(client, "/events") as stream:
        stream.next()
        site.app.control.revoke_token("the-viewer")
        with pytest.raises(EOFError):
            stream.until("never")


def test_a_log_is_followed_to_its_end(working: Site) -> None:
    run_id = working.app.enqueue("chatty", {"lines": 30}).id
    path = f"/api/v1/runs/{run_id}/logs/stream"
    with working.client() as client:
        with reading(client, path) as stream:
            told = stream.until("end")
        assert [said["text"] for name, _, said in told if name == "log"] == [
            f"line {number}" for number in range(30)
        ]
        assert told[-1][2] == {"state": "succeeded"}
        with reading(client, path + "?tail=2") as stream:
            assert [said["text"] for _, _, said in stream.until("end")[:-1]] == [
                "line 28",
                "line 29",
            ]
        with reading(client, path, **{"Last-Event-ID": told[27][1] or ""}) as stream:
            assert [said["text"] for _, _, said in stream.until("end")[:-1]] == [
                "line 28",
                "line 29",
            ]
        assert client.get(path.replace(run_id, "0" * 8 + run_id[8:])).status_code == 404


def test_a_crowd_is_served_while_one_takes_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five hundred read; one has asked and never reads. It is sent away, and costs no more memory
    than one who reads."""
    monkeypatch.setattr(streams, "SEND_SECONDS", 1.0)
    feed, server = feed_of(site), site.web._server
    assert server is not None
    asleep = socket.socket()
    asleep.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    # Else the kernel would take megabytes for it, before anybody notices.
    door = site.web._socket
    assert door is not None
    usual = door.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2
    door.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    asleep.connect(("127.0.0.1", site.web.port))
    asleep.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert asleep.recv(10)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, usual)
    most, told = 0, threading.Event()

    async def listen() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.web.port)
        writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"event: hello")
        here.release()
        count = 0
        while True:
            line = await reader.readline()
            assert line, "the stream has ended"
            count += line.startswith(b"event: note")
            if line.startswith(b"event: last"):
                writer.close()
                return count

    async def crowd() -> list[int]:
        return await asyncio.gather(*(listen() for _ in range(CROWD)))

    async def all_here() -> None:
        for _ in range(CROWD):
            await here.acquire()

    async def meet() -> list[int]:
        listening = asyncio.ensure_future(crowd())
        await all_here()
        threading.Thread(target=speak, daemon=True).start()
        return await listening

    def speak() -> None:
        nonlocal most
        filler = "x" * 2_000
        number = 0
        # Until the one that sleeps is gone: then everybody else is still there.
        while feed.clients > CROWD:
            feed.tell("note", {"number": number, "filler": filler})
            number += 1
            buffers = [
                one.transport.get_write_buffer_size()
                for one in list(server.server_state.connections)
            ]
            most = max(most, *buffers)
            threading.Event().wait(0.05)
        feed.tell("last", {})
        told.set()

    here = asyncio.Semaphore(0)
    counts = asyncio.run(meet())
    assert told.wait(60)
    assert len(counts) == CROWD
    assert len(set(counts)) == 1, "everybody heard the same"
    assert 0 < most < 10 * CHUNK_BYTES
    asleep.close()


def test_it_stops_within_its_grace_while_streams_are_open(tmp_path: Path) -> None:
    (tmp_path / "rota.toml").write_text('grace = "5s"\nport = 0\n')
    up = subprocess.Popen(
        [sys.executable, "-m", "rota.cli", "up", "--json"],
        cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert up.stdout is not None
    told, text = None, ""
    while told is None:
        text += up.stdout.readline()
        try:
            told = json.loads(text)
        except json.JSONDecodeError:
            assert up.poll() is None, text
    port = int(told["web"]["url"].rpartition(":")[2])
    lines = []
    for _ in range(50):
        line = socket.create_connection(("127.0.0.1", port), timeout=30)
        line.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        lines.append(line)
    for line in lines:
        while b"event: hello" not in line.recv(4096):
            pass
    up.send_signal(signal.SIGTERM)
    assert up.wait(20) == 0
    for line in lines:
        while line.recv(4096):  # to its end, which is ours and no broken connection
            pass
        line.close()


def feed_of(site: Site) -> Any:
    assert site.web._feed is not None
    return site.web._feed


def test_all_that_happens_after_hello_is_told(tmp_path: Path) -> None:
    """Also to the first listener after a while, whose reader has yet to find where the rows end."""
    with serving(tmp_path) as site, site.client("operator") as client:
        for _ in range(3):
            with reading(client, "/events") as stream:
                assert stream.next()[0] == "hello"
                made = client.post("/api/v1/jobs/greet/runs", json={"delay": "1h"}).json()["id"]
                *_, (_, _, said) = stream.until("run.created")
                assert said["run_id"] == made
