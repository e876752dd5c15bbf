"""Requests: where they may go, what they carry, and what becomes of the answer."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import Invalid
from rota.executors.context import Context
from rota.executors.http import HttpExecutor
from rota.executors.http.address import parse_url
from rota.model.job import Job
from rota.model.limits import ANSWER_BYTES, ANSWER_KEPT_LENGTH
from rota.model.outcome import Outcome
from rota.model.signature import ANYTHING
from rota.version import VERSION
from tests.executors.conftest import NOON, Attempt, Port
from tests.executors.web_server import WebServer, answer

Names = dict[str, list[str]]
Begin = Callable[..., Attempt]


def http_job(**spec: Any) -> Job:
    return Job(name="hook", executor="http", spec=spec, signature=ANYTHING)


def http_context(job: Job, args: dict[str, Any] | None = None, **options: Any) -> Context:
    return Context(
        definition=job,
        run_id="run-1",
        attempt=1,
        args=args or {},
        scheduled_at=NOON,
        queue="default",
        port=options.pop("port", None) or Port(),
        **options,
    )


def result(outcome: Outcome) -> Any:
    assert outcome.kind == "succeeded", outcome
    return json.loads(outcome.result or "null")


def error(outcome: Outcome) -> str:
    assert outcome.kind == "failed", outcome
    return str(outcome.error)


@pytest.fixture
def server() -> Iterator[WebServer]:
    made = WebServer()
    yield made
    made.close()


@pytest.fixture
def names() -> Names:
    """What names are at; each question takes the next of several answers."""
    return {}


@pytest.fixture
def resolve(names: Names) -> Callable[[str, int], Sequence[str]]:
    def answers(host: str, port: int) -> Sequence[str]:
        if host not in names:
            raise socket.gaierror(-2, "Name or service not known")
        told = names[host].pop(0) if len(names[host]) > 1 else names[host][0]
        return told.split()

    return answers


@pytest.fixture
def executor(resolve: Any, server: WebServer) -> Iterator[HttpExecutor]:
    """Allowed to talk to the test's server, and to nothing else of this machine."""
    made = HttpExecutor(allow=[f"127.0.0.1:{server.port}"], resolve=resolve, seconds=20.0)
    yield made
    made.close()


@pytest.fixture
def send(executor: HttpExecutor) -> Callable[..., Outcome]:
    def run(url: str, args: dict[str, Any] | None = None, **spec: Any) -> Outcome:
        job = http_job(url=url, **spec)
        executor.check(job)
        return executor.run(http_context(job, args))

    return run


Send = Callable[..., Outcome]


# Where it may go

ELSEWHERE = [
    "http://127.0.0.1/", "http://127.0.0.2:8080/", "http://127.1/", "http://0x7f000001/",
    "http://0x7f.0.0.1/", "http://2130706433/", "http://017700000001/", "http://0177.0.0.1/",
    "http://127.0.0.1./", "http://0.0.0.0/", "http://0/", "http://[::]/", "http://[::1]/",
    "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[::127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/", "http://[64:ff9b:1::7f00:1]/", "http://[2002:7f00:1::]/",
    "http://[fe80::1]/", "http://[fe80::1%25eth0]/", "http://[fc00::1]/", "http://[fec0::1]/",
    "http://[ff02::1]/", "http://10.0.0.1/", "http://172.16.0.1/", "http://192.168.1.1/",
    "http://169.254.169.254/latest/meta-data/", "http://100.64.0.1/", "http://192.0.0.1/",
    "http://198.18.0.1/", "http://192.0.2.1/", "http://224.0.0.1/", "http://240.0.0.1/",
    "http://255.255.255.255/", "http://[2001:db8::1]/", "http://[2001::1]/",
    "http://[::ffff:0:7f00:1]/",
    "file:///etc/passwd", "ftp://example.org/", "gopher://example.org/", "javascript:alert(1)",
    "//example.org/", "example.org", "http:example.org", "http:///path", "https://", "",
    "http://user@example.org/", "http://user:secret-word@example.org/", "http://@example.org/",
    "http://example.org@127.0.0.1/", "http://example.org\\@127.0.0.1/", "http://127。0。0。1/",
    "http://①②⑦.0.0.1/", "http://127%2e0%2e0%2e1/", "http://exa mple.org/",
    "http://example.org/\r\nX: y",
    "http://example.org:0/", "http://example.org:70000/", "http://example.org:x/", "http://[::1/",
    "http://-bad.example.org/", "http://exa$mple.org/", "http://" + "a" * 64 + ".org/",
    "http://8.8.8.8:22/", "http://8.8.8.8:25/",
]  # fmt: skip


@pytest.mark.parametrize("url", ELSEWHERE, ids=range(len(ELSEWHERE)))
def test_a_request_to_elsewhere_is_refused_before_it_is_stored(url: str) -> None:
    with pytest.raises(Invalid, match="url") as caught:
        HttpExecutor().check(http_job(url=url))
    assert "secret-word" not in str(caught.value)


@pytest.mark.parametrize("url", ELSEWHERE, ids=range(len(ELSEWHERE)))
def test_the_same_from_the_environment_is_refused_when_it_runs(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", url.replace("\0", ""))

    def never(host: str, port: int) -> list[str]:
        raise AssertionError(f"{host} was resolved")

    job = http_job(url="${HOOK}")
    executor = HttpExecutor(resolve=never)
    executor.check(job)
    outcome = executor.run(http_context(job))
    assert outcome.kind == "failed"
    assert outcome.final
    assert "secret-word" not in str(outcome.error)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.1.2.3", "169.254.169.254", "fe80::1%eth0",
     "0.0.0.0", "93.184.215.14 127.0.0.1", "64:ff9b::a00:1"],
)  # fmt: skip
def test_a_name_that_is_at_a_private_address_is_refused(
    send: Send, names: Names, address: str
) -> None:
    names["innocent.example.org"] = [address]
    outcome = send("https://innocent.example.org/")
    assert "https://innocent.example.org is refused: its address " in error(outcome)
    assert outcome.final


def test_localhost_is_refused(executor: HttpExecutor) -> None:
    from rota.executors.http.wire import resolve

    executor.resolve = resolve
    for host in ("localhost", "LOCALHOST"):
        outcome = executor.run(http_context(http_job(url=f"http://{host}:1/")))
        assert "this machine itself" in error(outcome)


def test_a_name_is_asked_once_and_the_answer_is_used(
    send: Send, names: Names, server: WebServer
) -> None:
    """A name that rebinds: the first answer is looked at, and is where the request goes."""
    names["rebinds.example.org"] = ["127.0.0.1", "10.0.0.1", "10.0.0.1"]
    server.answers["/"] = answer(body="here")
    told = result(send(f"http://rebinds.example.org:{server.port}/"))
    assert told["body"] == "here"
    assert server.received[0].headers["host"] == f"rebinds.example.org:{server.port}"
    assert names["rebinds.example.org"] == ["10.0.0.1", "10.0.0.1"]


def test_a_setting_allows_an_address_at_one_port_only(
    executor: HttpExecutor, server: WebServer
) -> None:
    server.answers["/"] = answer()
    assert executor.run(http_context(http_job(url=server.url))).kind == "succeeded"
    other = f"http://127.0.0.1:{server.port ^ 1}/"
    with pytest.raises(Invalid, match=r"127\.0\.0\.1 is this machine itself; if that is meant"):
        executor.check(http_job(url=other))


def test_the_next_address_is_tried(executor: HttpExecutor, server: WebServer, names: Names) -> None:
    server.answers["/"] = answer(body="second")
    names["two.example.org"] = ["127.0.0.2 127.0.0.1"]
    allowed = HttpExecutor(allow=["127.0.0.0/8"], resolve=executor.resolve)
    job = http_job(url=f"http://two.example.org:{server.port}/")
    assert result(allowed.run(http_context(job)))["body"] == "second"


# What it carries


def test_a_plain_request(send: Send, server: WebServer) -> None:
    server.answers["/a?b=c"] = answer(body="fine", Content_Type="text/plain", Set_Cookie="x=y")
    told = result(send(f"{server.url}/a?b=c"))
    assert told == {
        "status": 200,
        "headers": {"content-type": "text/plain", "content-length": "4"},
        "body": "fine",
    }
    (got,) = server.received
    assert (got.method, got.target, got.body) == ("GET", "/a?b=c", b"")
    assert got.headers == {
        "host": f"127.0.0.1:{server.port}",
        "accept-encoding": "identity",
        "connection": "close",
        "user-agent": f"rota/{VERSION}",
        "accept": "*/*",
    }


def test_json_keeps_types_and_cannot_be_broken_out_of(send: Send, server: WebServer) -> None:
    server.answers["/"] = answer()
    args = {"name": '","admin":true,"x":"', "count": 3, "tags": ["a"]}
    body = {
        "who": "${NAME}",
        "n": "${COUNT}",
        "tags": "${TAGS}",
        "text": "n=${COUNT}",
        "${NAME}": 1,
    }
    outcome = send(server.url + "/", args, json=body)
    assert outcome.kind == "succeeded"
    (got,) = server.received
    assert got.method == "POST"
    assert got.headers["content-type"] == "application/json"
    assert got.headers["idempotency-key"] == "run-1"
    assert json.loads(got.body) == {
        "who": args["name"], "n": 3, "tags": ["a"], "text": "n=3", args["name"]: 1,
    }  # fmt: skip
    send(server.url + "/", args, json="${ROTA_ARGS}", method="put")
    assert (server.received[1].method, json.loads(server.received[1].body)) == ("PUT", args)


def test_a_text_body_and_headers_of_the_job(
    send: Send, server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "t0ken")
    server.answers["/"] = answer()
    headers = {
        "Authorization": "Bearer ${HOOK_TOKEN}",
        "content-type": "text/csv",
        "Idempotency-Key": "${ROTA_RUN_ID}-own",
    }
    send(server.url + "/", {"day": "ä"}, body="day\n${DAY}\n", headers=headers)
    (got,) = server.received
    assert got.body.decode() == "day\nä\n"
    assert got.headers["authorization"] == "Bearer t0ken"
    assert got.headers["content-type"] == "text/csv"
    assert got.headers["idempotency-key"] == "run-1-own"


def test_values_stay_in_their_place_of_the_address(send: Send, server: WebServer) -> None:
    hostile = "a/../b?c=d#e&f=g@h:80%"
    encoded = "a%2F..%2Fb%3Fc%3Dd%23e%26f%3Dg%40h%3A80%25"
    server.answers[f"/x/{encoded}/y?q={encoded}"] = answer(body="same place")
    outcome = send(server.url + "/x/${V}/y?q=${V}", {"v": hostile})
    assert result(outcome)["body"] == "same place"
    told = error(send(server.url + "/x/${V}/y", {"v": ".."}))
    assert told == "url: the value of V is a step in a path; it cannot stand there"


@pytest.mark.parametrize(
    "url", ["${V}", "http://${V}/", "http://${V}.example.org/", "http://h:${V}"]
)
def test_an_argument_never_chooses_the_server(url: str, executor: HttpExecutor) -> None:
    known = Job(name="hook", executor="http", spec={"url": url, "params": {"v": "x"}})
    with pytest.raises(Invalid, match="an argument of the run, and its caller would choose"):
        executor.check(known)
    told = error(executor.run(http_context(http_job(url=url), {"v": "127.0.0.1"})))
    assert "is an argument of the run" in told


def test_a_traced_attempt_passes_its_trace_on(executor: HttpExecutor, server: WebServer) -> None:
    server.answers["/"] = answer()
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    executor.run(http_context(http_job(url=server.url + "/"), trace=trace))
    own = http_job(url=server.url + "/", headers={"Traceparent": "own"})
    executor.run(http_context(own, trace=trace))
    assert [got.headers["traceparent"] for got in server.received] == [trace, "own"]


def test_what_is_not_utf8_in_the_environment_harms_nobody(
    send: Send, server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODD", "a\udcffb")
    server.answers["/a%3Fb"] = answer()
    assert send(server.url + "/${ODD}", json={"x": "${ODD}"}).kind == "succeeded"
    assert json.loads(server.received[0].body) == {"x": "a?b"}
    assert "beyond Latin-1" in error(send(server.url, headers={"X": "${ODD}"}))


def test_a_header_cannot_be_split(send: Send, server: WebServer) -> None:
    for value in ("a\r\nX-Evil: 1", "a\nb", "a\0b", "\x7f"):
        outcome = send(server.url + "/", {"v": value}, headers={"X-V": "${V}"})
        assert error(outcome) == "headers: X-V would hold a line break or a control character"
        assert outcome.final
    assert "beyond Latin-1" in error(send(server.url, {"v": "😀"}, headers={"X-V": "${V}"}))
    assert server.received == []


REFUSED = [
    ({}, "url must be text, such as url ="),
    ({"url": 5}, "url must be text"),
    ({"url": "https://e.org/" + "a" * 8_192}, "url has 8,206 characters; the limit is 8,192"),
    ({"url": "${BASE}.example.org/x"}, "url: write a / after ${BASE}"),
    ({"url": "https://e.org/${lower}"}, "'${lower}' is not a variable"),
    ({"method": "FETCH"}, "method 'FETCH' is unknown; use GET, HEAD, POST"),
    ({"method": "GET", "body": "x"}, "method GET has no body; use POST, or remove it"),
    ({"body": "x", "json": {}}, "body and json are two bodies; keep one"),
    ({"body": {"a": 1}}, "body must be text; for a table use json"),
    ({"headers": ["a"]}, "headers is a table: [headers]"),
    ({"headers": {"a b": "x"}}, "headers: 'a b' is not the name of a header"),
    ({"headers": {"X": 1}}, "headers: X must be text"),
    ({"headers": {"Host": "x"}}, "headers: Host is set by Rota; remove it"),
    ({"headers": {"transfer-encoding": "x"}}, "headers: transfer-encoding is set by Rota"),
    ({"headers": {"Proxy-Authorization": "x"}}, "headers: Proxy-Authorization is set by Rota"),
    ({"headers": {"X": "a\nb"}}, "headers: X would hold a line break"),
    ({"headers": {"Authorization": "Bearer abc"}},
     "headers: Authorization holds a secret in plain text, which would be stored"),
    ({"headers": {f"X-{n}": "" for n in range(51)}}, "headers has 51 names; the limit is 50"),
    ({"ok_codes": []}, "ok_codes [] must be a list of statuses"),
    ({"ok_codes": [99]}, "ok_codes [99] must be a list of statuses"),
    ({"ok_codes": ["6xx"]}, "ok_codes ['6xx'] must be a list of statuses"),
    ({"ok_codes": 200}, "ok_codes 200 must be a list"),
    ({"redirects": 11}, "redirects 11 must be a whole number from 0 to 10"),
    ({"redirect": 1}, "option 'redirect' is unknown; did you mean 'redirects'?"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_no_worker_could_send_is_refused(spec: dict[str, Any], message: str) -> None:
    told = {"url": "https://example.org/", **spec} if spec else {}
    with pytest.raises(Invalid) as caught:
        HttpExecutor().check(http_job(**told))
    assert str(caught.value).startswith(f"job 'hook': {message}")


# What becomes of the answer


@pytest.mark.parametrize(
    ("status", "final"),
    [("400 Bad Request", True), ("401 Unauthorized", True), ("404 Not Found", True),
     ("409 Conflict", True), ("408 Request Timeout", False), ("425 Too Early", False),
     ("429 Too Many Requests", False), ("500 Oops", False), ("503 Busy", False),
     ("302 Found", True), ("304 Not Modified", True)],
)  # fmt: skip
def test_which_answers_are_tried_again(
    send: Send, server: WebServer, status: str, final: bool
) -> None:
    server.answers["/"] = answer(status, "because\n\nof this")
    outcome = send(server.url + "/")
    body = "" if status.startswith("304") else ": because of this"
    assert error(outcome) == f"{server.url} answered {status}{body}"
    assert outcome.final is final


def test_ok_codes(send: Send, server: WebServer) -> None:
    server.answers["/"] = answer("404 Not Found")
    assert result(send(server.url + "/", ok_codes=[200, 404]))["status"] == 404
    assert result(send(server.url + "/", ok_codes=["2xx", "4xx"]))["status"] == 404
    server.answers["/"] = answer("204 No Content")
    assert error(send(server.url + "/", ok_codes=[200])).endswith("answered 204 No Content")


def test_a_server_may_say_when_to_come_back(send: Send, server: WebServer) -> None:
    for asked, after in (
        ("7", timedelta(seconds=7)),
        ("99999999999", timedelta(days=1)),
        ("Sun, 01 Mar 2026 12:00:30 GMT", timedelta(seconds=30)),
        ("Sun, 01 Mar 2026 11:00:00 GMT", timedelta(0)),
        ("soon", None),
        ("-5", None),
    ):
        date = "Sun, 01 Mar 2026 12:00:00 GMT"
        server.answers["/"] = answer("503 Busy", Retry_After=asked, Date=date)
        assert send(server.url + "/").after == after, asked


def test_redirects_are_followed_only_when_asked_to(send: Send, server: WebServer) -> None:
    server.answers["/a"] = answer("302 Found", Location="/b?c")
    server.answers["/b?c"] = answer("301 Moved", Location=f"{server.url}/end")
    server.answers["/end"] = answer(body="arrived")
    outcome = send(f"{server.url}/a")
    assert error(outcome).endswith("answered 302 Found; redirects = 3 would follow it")
    assert result(send(f"{server.url}/a", redirects=2))["body"] == "arrived"
    assert "answered 301 Moved" in error(send(f"{server.url}/a", redirects=1))


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("http://127.0.0.1:{other}/", "is refused: 127.0.0.1 is this machine itself"),
        ("http://localtest.example.org:{port}/", "is refused: its address 10.0.0.1 is not public"),
        ("http://0x7f000001/", "host '0x7f000001' is not an address"),
        ("http://[::ffff:127.0.0.1]/", "is this machine itself"),
        ("file:///etc/passwd", "url begins with file:"),
        ("gopher://x/", "url begins with gopher:"),
        ("http://u:p@example.org/", "url holds a user name or password"),
        ("http://exa mple.org/", "url holds a blank"),
        ("http://[bad/", "its address cannot be read"),
        ("//169.254.169.254/", "is refused: 169.254.169.254 is link-local"),
    ],
)
def test_every_redirect_is_looked_at(
    send: Send, server: WebServer, names: Names, location: str, message: str
) -> None:
    names["localtest.example.org"] = ["10.0.0.1"]
    told = location.format(port=server.port, other=server.port ^ 1)
    server.answers["/"] = answer("302 Found", Location=told)
    outcome = send(server.url + "/", redirects=3)
    assert message in error(outcome)
    assert outcome.final
    assert len(server.received) == 1


def test_another_server_gets_neither_secrets_nor_bodies(
    send: Send, server: WebServer, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "t0ken")
    names["other.example.org"] = ["127.0.0.1"]
    other = f"http://other.example.org:{server.port}"
    headers = {"Authorization": "Bearer ${HOOK_TOKEN}", "X-Own": "1", "Accept": "text/plain"}
    server.answers["/end"] = answer()
    server.answers["/"] = answer("302 Found", Location=f"{other}/end")
    assert send(server.url + "/", json={"a": 1}, headers=headers, redirects=1).kind == "succeeded"
    first, second = server.received
    assert (first.headers["authorization"], first.headers["x-own"]) == ("Bearer t0ken", "1")
    assert (second.method, second.body) == ("GET", b"")
    assert not {"authorization", "x-own", "idempotency-key", "content-type"} & set(second.headers)
    assert second.headers["accept"] == "text/plain"
    server.answers["/"] = answer("307 Again", Location=f"{other}/end")
    told = error(send(server.url + "/", json={"a": 1}, redirects=1))
    assert told.endswith(f"it would carry the body to another server, {other}")
    server.answers["/"] = answer("308 Again", Location="/end")
    assert send(server.url + "/", json={"a": 1}, headers=headers, redirects=1).kind == "succeeded"
    assert (server.received[-1].method, server.received[-1].body) == ("POST", b'{"a": 1}')
    assert server.received[-1].headers["authorization"] == "Bearer t0ken"


def test_a_large_answer_is_cut(send: Send, server: WebServer) -> None:
    server.answers["/"] = answer(body=b"x" * (ANSWER_BYTES + 5))
    told = result(send(server.url + "/"))
    assert (told["body"], told["cut"]) == ("x" * ANSWER_KEPT_LENGTH, True)

    def endless(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[")
        while True:
            connection.sendall(b"1," * 50_000)

    server.answers["/"] = endless
    told = result(send(server.url + "/"))
    assert (told["body"], told["cut"]) == (None, True)


def test_odd_answers(send: Send, server: WebServer) -> None:
    server.answers["/"] = answer(body=b"\xff\xfe\x00", Content_Type="text/plain; charset=zlib")
    assert result(send(server.url + "/"))["body"] == "\N{REPLACEMENT CHARACTER}" * 3
    server.answers["/"] = lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
    assert "did not answer as a web server does" in error(send(server.url + "/"))
    server.answers["/"] = lambda connection: connection.sendall(
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"
    )
    assert error(send(server.url + "/")) == f"{server.url}: its answer ended early"
    server.answers["/"] = lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    assert error(send(server.url + "/")) == f"{server.url}: its answer ended early"
    server.answers["/"] = lambda connection: None
    assert "did not answer as a web server does" in error(send(server.url + "/"))
    server.answers["/"] = answer("500 " + "long " * 100)
    assert len(error(send(server.url + "/"))) < 200
    many = b"".join(b"X-%d: y\r\n" % n for n in range(200))
    server.answers["/"] = lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\n" + many)
    assert "did not answer as a web server does" in error(send(server.url + "/"))


@pytest.mark.parametrize(
    "told",
    [
        b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n+5\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n1_0\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n123456789\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n5;" + b"x" * 2_000 + b"\r\n",
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"Content-Length: 5, 6\r\n\r\n",
    ],
    ids=["negative", "sign", "underscore", "huge", "extension", "length", "lengths", "list"],
)
def test_a_length_that_is_none_is_refused_before_anything_is_read(
    send: Send, server: WebServer, told: bytes
) -> None:
    seen: list[int] = []

    def lie(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + told)
        with suppress(OSError):  # whoever asked has hung up
            while sum(seen) < 32 * ANSWER_BYTES:
                seen.append(connection.send(b"x" * 65_536))

    server.answers["/"] = lie
    assert error(send(server.url + "/")).endswith("as a web server does (BadLength)")
    assert sum(seen) < 32 * ANSWER_BYTES


def test_an_answer_in_chunks(send: Send, server: WebServer) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"5\r\nabcde\r\n00A ; name=x\r\n0123456789\r\n0\r\nLast: y\r\n\r\n"
    server.answers["/"] = lambda connection: connection.sendall(head + body)
    assert result(send(server.url + "/"))["body"] == "abcde0123456789"
    server.answers["/"] = lambda connection: connection.sendall(head + b"5\r\nabcde\r\n")
    assert error(send(server.url + "/")).endswith("its answer ended early")


@pytest.mark.parametrize(
    ("charset", "body", "text"),
    [
        ("punycode", b"bcher-kva", "bcher-kva"),
        ("idna", b"xn--bcher-kva", "xn--bcher-kva"),
        ("unicode_escape", rb"\x41", r"\x41"),
        ("ISO-8859-1", b"\xfc", "ü"),
        ("windows1252", b"abc", "abc"),  # a spelling that Python does not know
        ("Windows-1252", b"\x80", "€"),
        ("utf-16", "ü".encode("utf-16"), "ü"),
        ("UTF8", "ü".encode(), "ü"),
    ],
)
def test_an_answer_is_read_by_a_charset_of_the_web_only(
    send: Send, server: WebServer, charset: str, body: bytes, text: str
) -> None:
    server.answers["/"] = answer(body=body, Content_Type=f"text/plain; charset={charset}")
    assert result(send(server.url + "/"))["body"] == text


def test_no_part_of_a_secret_is_left_where_an_answer_is_cut(
    monkeypatch: pytest.MonkeyPatch, send: Send, server: WebServer
) -> None:
    secret = "abcdefghijklmnopqrstuvwxyz" * 100
    monkeypatch.setenv("TOKEN", secret)
    # With what was hidden, what is kept reaches as far as the text was looked at.
    server.answers["/"] = answer(body=f"{secret}," * 100)
    told = result(send(server.url + "/", headers={"Authorization": "Bearer ${TOKEN}"}))
    assert told["cut"]
    assert "abc" not in told["body"]


def test_nobody_listens(send: Send, server: WebServer, names: Names) -> None:
    server.close()
    outcome = send(server.url + "/")
    assert error(outcome) == f"{server.url}: Connection refused"
    assert not outcome.final
    assert "its name could not be resolved" in error(send("https://nowhere.example.org/"))


def drip(stopped: threading.Event) -> Callable[[socket.socket], None]:
    """A server that never stops and never comes to an end."""

    def send(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        while not stopped.wait(0.02):
            connection.sendall(b"a")

    return send


def test_an_answer_that_drips_is_ended_at_its_time(server: WebServer, resolve: Any) -> None:
    server.answers["/"] = drip(server.stopped)
    executor = HttpExecutor(allow=["127.0.0.1"], resolve=resolve, seconds=0.5)
    outcome = executor.run(http_context(http_job(url=server.url + "/")))
    assert outcome.kind == "timed_out"
    assert outcome.error == (
        "no whole answer within 500ms; a job that may take longer sets a timeout"
    )


@pytest.mark.parametrize(
    ("reason", "kind"),
    [("timed_out", "timed_out"), ("cancelled", "cancelled"), ("stopping", "released"),
     ("lost", "lost")],
)  # fmt: skip
def test_a_stop_cuts_the_connection(
    executor: HttpExecutor, server: WebServer, reason: str, kind: str
) -> None:
    server.answers["/"] = drip(server.stopped)
    context = http_context(http_job(url=server.url + "/"), timeout=timedelta(hours=1))
    with ThreadPoolExecutor(1) as thread:
        attempt = Attempt(context, Port(), thread.submit(executor.run, context))
        assert server.busy.wait(20)
        attempt.stop(reason)
        assert attempt.outcome.kind == kind


def test_a_stop_does_not_wait_for_a_resolver(server: WebServer) -> None:
    asked, released = threading.Event(), threading.Event()

    def slow(host: str, port: int) -> list[str]:
        asked.set()
        released.wait(30)
        return ["127.0.0.1"]

    executor = HttpExecutor(resolve=slow)
    context = http_context(http_job(url="https://slow.example.org/"))
    with ThreadPoolExecutor(1) as thread:
        attempt = Attempt(context, Port(), thread.submit(executor.run, context))
        assert asked.wait(20)
        attempt.stop("cancelled")
        assert attempt.outcome.kind == "cancelled"
        released.set()


SECRET = "s3cr3t-canary-0451"


def test_secrets_are_found_nowhere(
    executor: HttpExecutor, server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAINLY_NAMED", SECRET)
    monkeypatch.setenv("API_TOKEN", 'query-"canary"-0451')

    def echo(status: str) -> Callable[[socket.socket], None]:
        def send(connection: socket.socket) -> None:
            got = server.received[-1]
            told = json.dumps(
                [got.target, got.headers, got.body.decode(), {"access_token": "fresh"}]
            )
            answer(status, told, Content_Type="application/json", ETag=SECRET)(connection)

        return send

    port = Port()
    job = http_job(
        url=server.url + "/?t=${API_TOKEN}",
        headers={"X-Sign": "v1=${PLAINLY_NAMED}"},
        json={"password": "${PW}"},
    )
    executor.check(job)
    for status in ("200 OK", "500 Oops", "302 " + SECRET):
        server.answers.clear()
        server.answers["/?t=query-%22canary%22-0451"] = echo(status)
        context = http_context(job, {"pw": "hunter2hunter2", "db": {"password": "pw"}}, port=port)
        context.args["password"] = "hunter2hunter2"
        outcome = executor.run(context).redacted(context.secrets)
        seen = "\n".join([str(outcome.result), str(outcome.error), *port.lines])
        assert SECRET in str(server.received[-1].headers)
        for secret in (SECRET, "hunter2", "fresh", 'canary"', "canary%22"):
            assert secret not in seen, (status, secret, seen)


HOSTS = st.lists(
    st.sampled_from([*"0123456789abcdefxX.-_:[]@%/\\?#", "0x", "127", "255", "::", "ffff:"]),
    min_size=1,
    max_size=12,
).map("".join)


@given(HOSTS)
def test_no_host_is_a_number_to_anybody_else(host: str) -> None:
    """What is taken for a name is a name to the system too: it asks for it, and looks at what it
    is told. What is taken for an address is that address to everybody."""
    try:
        place = parse_url(f"http://{host}/")
    except Invalid:
        return
    if place.address is not None:
        assert str(place.address) == place.host
        family = socket.AF_INET if place.address.version == 4 else socket.AF_INET6
        assert socket.inet_pton(family, place.host) == place.address.packed
    else:
        with pytest.raises(OSError, match="illegal IP address"):
            socket.inet_aton(place.host)


# TLS


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for tls.example.org, made by itself."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    made = folder / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout",
         folder / "key.pem", "-out", folder / "cert.pem", "-subj", "/CN=tls.example.org",
         "-addext", "subjectAltName=DNS:tls.example.org"],
        check=True, capture_output=True,
    )  # fmt: skip
    made.write_text((folder / "key.pem").read_text() + (folder / "cert.pem").read_text())
    return made


@pytest.fixture
def secure(server: WebServer, certificate: Path) -> WebServer:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.tls = context
    return server


def test_a_certificate_that_nobody_vouches_for_is_refused(
    send: Send, names: Names, secure: WebServer
) -> None:
    names["tls.example.org"] = ["127.0.0.1"]
    outcome = send(f"https://tls.example.org:{secure.port}/")
    assert "its certificate is not valid: self-signed" in error(outcome)
    assert secure.received == []


def test_tls_is_for_the_name_and_goes_to_the_pinned_address(
    send: Send, names: Names, secure: WebServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    names["tls.example.org"] = names["wrong.example.org"] = ["127.0.0.1"]
    secure.answers["/"] = answer(body="private")
    assert result(send(f"https://tls.example.org:{secure.port}/"))["body"] == "private"
    told = error(send(f"https://wrong.example.org:{secure.port}/"))
    assert "its certificate is not valid: Hostname mismatch" in told


def test_a_redirect_never_gives_up_encryption(
    send: Send, names: Names, secure: WebServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    names["tls.example.org"] = ["127.0.0.1"]
    secure.answers["/"] = answer("302 Found", Location=f"{secure.url}/")
    told = error(send(f"https://tls.example.org:{secure.port}/", redirects=1))
    assert told.endswith(f"it leads from https to {secure.url}")
