"""The door of a process that has a DuckDB store: what passes, who may ask, and what harms nobody.

That commands work the same through it is tested where they are: `database` in conftest.py.
"""

from __future__ import annotations

import ast
import errno
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.door import address, client, messages, server
from rota.door.address import ListeningSocket, socket_path
from rota.door.client import RemoteControl, connect, remote_control
from rota.errors import Conflict, Invalid, RotaError, Unavailable, Unknown
from rota.flow.control import Control
from rota.flow.enqueue import Options
from rota.life import open_local_socket
from rota.model.schedule import Schedule
from rota.sql.execute import Statements
from rota.storage.operations.audit import Actor
from tests.api.support import wait_until
from tests.surface.conftest import Cli, environment, shop
from tests.surface.test_up import Up

pytest.importorskip("duckdb")

ADA = Actor(by="ada", via="test")
SHOP = """
import rota

app = rota.Rota()

@app.job(every="3650d", first_run="2020-01-01T00:00:00Z")
def tick(ctx: rota.Context) -> None:
    ctx.logger.info("tick says %s", "hello")
"""


@pytest.fixture
def app(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Iterator[rota.Rota]:
    """An app on shop.duckdb in this folder; its door is shut."""
    monkeypatch.setenv("ROTA_DATABASE", "duckdb:///shop.duckdb")
    made = shop()
    yield made
    made.stop()


@pytest.fixture
def place(app: rota.Rota) -> Path:
    return socket_path("shop.duckdb", "rota")


@pytest.fixture
def door(app: rota.Rota) -> Iterator[server.SocketServer]:
    made = open_local_socket(app)
    assert isinstance(made, server.SocketServer)
    assert made.error is None
    yield made
    made.stop()


@pytest.fixture
def remote(place: Path, door: server.SocketServer) -> Iterator[RemoteControl]:
    made = remote_control(place, ADA)
    assert made is not None
    yield made
    made.close()


class Raw:
    """Somebody at the door who may say anything."""

    def __init__(self, place: Path) -> None:
        found = address.open_socket(place, 20)
        assert found is not None
        self.socket = found
        self.answers = found.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> Any:
        line = self.answers.readline()
        return json.loads(line) if line else None

    def ask(self, data: bytes) -> Any:
        self.send(data + b"\n")
        return self.read()

    def close(self) -> None:
        self.answers.close()
        self.socket.close()


HELLO = b'{"call": "hello"}'


@pytest.fixture
def raw(place: Path, door: server.SocketServer) -> Iterator[Raw]:
    with closing(Raw(place)) as made:
        yield made


# What passes


def test_the_command_line_asks_nothing_that_does_not_pass() -> None:
    used = set()
    for room in ("cli", "sql"):
        for path in (Path(rota.__file__).parent / room).glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute):
                    whose = getattr(node.value, "id", "") or getattr(node.value, "attr", "")
                    used |= {node.attr} if whose == "control" else set()
    assert {"run", "cancel_runs"} <= used
    # Rows of control are done by the process that has the store.
    own = {"within", "changed", "ended"}
    assert used - messages.CALLS - own - {"close", "as_actor", "actor", "dialect"} == set()


@pytest.mark.parametrize("call", sorted(messages.CALLS))
def test_every_call_is_one_of_control_with_types_that_can_be_checked(call: str) -> None:
    signature, hints = messages._signature(call)
    assert set(signature.parameters) <= set(hints)
    assert call in messages.READS or call in messages.WRITES


def test_the_same_nouns_come_back(app: rota.Rota, remote: RemoteControl) -> None:
    local = app.control_as(ADA)
    run_id = remote.enqueue(
        "greet", {"name": "Ada", "api_token": "t0p"}, Options(delay="1h", priority=3)
    ).id
    asks: list[Callable[[Control], Any]] = [
        lambda control: control.jobs(),
        lambda control: control.job("greet"),
        lambda control: control.jobs_named(["greet", "nope"]),
        lambda control: control.schedule_name(1),
        lambda control: control.running_by_schedule(),
        lambda control: control.dialect,
        lambda control: control.runs(),
        lambda control: control.run(run_id),
        lambda control: control.runs_beginning(run_id[:8]),
        lambda control: control.attempts(run_id),
        lambda control: control.steps(run_id),
        lambda control: control.logs(run_id),
        lambda control: control.schedules(job="nightly"),
        lambda control: control.schedule("nightly"),
        lambda control: control.changes("nightly"),
        lambda control: control.occurrences("nightly"),
        lambda control: control.explain("nightly", count=3),
        lambda control: control.why("nightly", "2020-01-01T03:00:00Z"),
        lambda control: control.audit(),
        lambda control: control.events(),
        lambda control: control.queues(),
        lambda control: control.workers(),
        lambda control: control.locks(),
        lambda control: control.select("SELECT run_id, job_name, status FROM job_runs"),
    ]
    for number, ask in enumerate(asks):
        assert ask(remote) == ask(local), number
    assert type(remote.run(run_id)) is type(local.run(run_id))
    assert remote.run(run_id).args == '{"name": "Ada", "api_token": "[redacted]"}'
    assert remote.now().utcoffset() is not None
    assert (local.audit()[0]["by"], local.audit()[0]["via"]) == ("ada", "test")
    assert local.run(run_id).created_by == "ada"


def test_errors_come_back_as_they_are(remote: RemoteControl) -> None:
    with pytest.raises(Unknown, match="run 'x' does not exist"):
        remote.run("x")
    with pytest.raises(rota.BadArguments, match="'name' is missing"):
        remote.enqueue("greet", {}, Options())
    with pytest.raises(Conflict):
        remote.redo(remote.trigger("nightly").id)
    with pytest.raises(Invalid, match="a object cannot pass"):
        remote.enqueue("greet", {"name": object()}, Options())


def test_a_broken_schedule_is_shown_and_not_taken(
    remote: RemoteControl, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Schedule(name="bad", job="greet", kind="cron", expr="* * * * *")
    broken = Schedule.from_unreadable_row(
        {**vars(whole), "expr": "61 * * * *"}, "cron '61 * * * *' …"
    )

    def schedule(self: Control, name: str) -> Schedule:
        return broken

    monkeypatch.setattr(Control, "schedule", schedule)
    told = remote.schedule("bad")
    assert (told.expr, told.status, told.error) == ("61 * * * *", "BROKEN", broken.error)
    with pytest.raises(Invalid, match="has minute 61"):
        remote.put_schedule(broken)


def test_what_is_not_on_the_list_cannot_be_asked(remote: RemoteControl) -> None:
    with pytest.raises(RotaError, match="cancel_retired cannot be asked of another process"):
        remote.cancel_retired("jobs.d")


def test_one_select_and_nothing_else(remote: RemoteControl) -> None:
    found = remote.select("SELECT name FROM jobs ORDER BY name", limit=2)
    assert (found.names, found.rows, found.more) == (("name",), (("broken",), ("chatty",)), True)
    for sql in ("DROP TABLE _rota_data.runs", "SELECT 1; SELECT 2", "FROM _rota_data.runs"):
        with pytest.raises(Invalid):
            remote.select(sql)


def test_statements_pass_too(app: rota.Rota, remote: RemoteControl) -> None:
    text = """
        CREATE SCHEDULE sums AS $$ SELECT 1 $$ EVERY '5m'; PAUSE SCHEDULE sums REASON 'later';
        EXECUTE SCHEDULE nightly; CANCEL JOBS FOR SCHEDULE nightly; RUN JOB broken;
        SHOW SCHEDULES; SHOW CREATE SCHEDULE sums; SHOW RUNS; SELECT job_name, state FROM runs
    """
    *_, rows = Statements(remote).run(text)
    assert sorted(rows.rows) == [("broken", "queued"), ("nightly", "cancelled")]
    for statement in ("SHOW SCHEDULES", "SHOW CREATE SCHEDULE sums", "SHOW JOBS"):
        (there,), (here,) = (
            Statements(remote).run(statement),
            Statements(app.control).run(statement),
        )
        assert there == here
    assert app.control.schedule("sums").paused_by == "ada"


# Who may ask


def test_the_socket_is_for_its_owner_and_goes_with_the_process(app: rota.Rota, place: Path) -> None:
    app.start([])
    assert stat.S_IMODE(place.lstat().st_mode) == 0o600
    assert app.health["door"] is None
    app.stop()
    assert not place.exists()
    assert sorted(os.listdir()) == ["shop.duckdb"]


def test_another_user_is_sent_away(place: Path, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "ok" in raw.ask(HELLO)
    monkeypatch.setattr(server, "peer", lambda sock: (1, os.geteuid() + 1))
    with closing(Raw(place)) as other:
        assert other.read() == {"error": "Conflict", "message": server.NOT_YOURS}
        assert other.read() is None


def test_the_process_of_another_user_is_not_asked(
    place: Path, door: server.SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "peer", lambda sock: (77, os.geteuid() + 1))
    with pytest.raises(Conflict, match="belongs to process 77 of another user"):
        connect(place)


def test_who_gives_no_name_is_the_user_at_the_other_end(app: rota.Rota, raw: Raw) -> None:
    assert raw.ask(b'{"call": "pause", "args": {"name": "nightly", "reason": "r"}}')["ok"]
    entry = app.control.audit(limit=1)[0]
    assert entry["via"] == "socket"
    assert entry["by"] == server._user_of(raw.socket)


def test_another_version_is_refused(
    place: Path, door: server.SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "VERSION", "99.0")
    with pytest.raises(Conflict, match=r"is Rota .* and this is 99.0; start that process again"):
        remote_control(place, ADA)


# Bad input


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"hello", "this line is no request"),
        (b"", "this line is no request"),
        (b"\0\0", "this line is no request"),
        (b"\xff\xfe", "this line is no request"),
        (b"[]", "this line is no request"),
        (b"{}", "this line is no request"),
        (b'{"call": 5}', "this line is no request"),
        (b'{"call": "runs", "args": []}', "this line is no request"),
        (b'{"call": "runs", "more": 1}', "this line is no request"),
        (b'{"call": "runs", "args": {"job": "\\u0000"}}', None),
        (b'{"call": "nope"}', "call 'nope' is unknown; known are adopt, "),
        (b'{"call": "as_actor"}', "call 'as_actor' is unknown"),
        (b'{"call": "__init__"}', "call '__init__' is unknown"),
        (b'{"call": "storage"}', "call 'storage' is unknown"),
        (b'{"call": "run"}', "run: missing a required argument: 'run_id'"),
        (b'{"call": "run", "args": {"id": "x"}}', "run: missing a required argument: 'run_id'"),
        (b'{"call": "now", "args": {"x": 1}}', "now: got an unexpected keyword argument 'x'"),
        (b'{"call": "run", "args": {"run_id": 5}}', "run: run_id: Expected `str`, got `int`"),
        (b'{"call": "runs", "args": {"limit": "5"}}', "runs: limit: Expected `int`, got `str`"),
        (b'{"call": "runs", "args": {"limit": {"$date": "x"}}}', "is not what passes between"),
        (b'{"call": "put_schedule", "args": {"schedule": {"name": 1}}}', "put_schedule: schedule:"),
        (
            b'{"call": "enqueue", "args": {"job": "x", "args": {}, "options": 1}}',
            "enqueue: options",
        ),
        (b'{"call": "select", "args": {"sql": "SELECT"}}', "DuckDB: "),
        (b'{"call": "now", "args": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001, None),
    ],
)
def test_a_line_that_is_no_request_gets_an_answer_and_the_next_one_too(
    raw: Raw, line: bytes, message: str | None
) -> None:
    answer = raw.ask(line)
    if message is not None:
        assert answer["error"] == "Invalid"
        assert message in answer["message"]
    assert raw.ask(HELLO)["ok"]["process"] == os.getpid()


def test_a_line_of_a_hundred_megabytes_is_not_read(place: Path, raw: Raw) -> None:
    with closing(Raw(place)) as long:
        with pytest.raises(OSError, match=r"pipe|reset"):
            long.send(b"x" * 100_000_000)
        assert long.read() == {"error": "Invalid", "message": server.TOO_LONG}
    assert "ok" in raw.ask(HELLO)


def test_a_request_that_is_too_long_is_not_sent(remote: RemoteControl) -> None:
    with pytest.raises(Invalid, match=r"the request takes 600,303 bytes; the limit is 524,288"):
        remote.enqueue("greet", {"name": "x" * 600_000}, Options())
    assert remote.runs() == []


def test_an_answer_that_is_too_long_is_not_sent(
    remote: RemoteControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "REPLY_BYTES", 300)
    with pytest.raises(Invalid, match=r"the limit is 300: ask for fewer with --limit"):
        remote.jobs()
    assert remote.now()


def test_who_goes_away_in_the_middle_harms_nobody(
    app: rota.Rota, place: Path, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go, done = threading.Event(), threading.Event(), threading.Event()
    pause = Control.pause_queue

    def slow(self: Control, name: str, reason: str | None = None) -> None:
        begun.set()
        assert go.wait(20)
        pause(self, name, reason)
        done.set()

    monkeypatch.setattr(Control, "pause_queue", slow)
    with closing(Raw(place)) as half:
        half.send(b'{"call": "now"')
    with closing(Raw(place)) as gone:
        gone.send(b'{"call": "pause_queue", "args": {"name": "talk"}}\n')
        assert begun.wait(20)
    assert "ok" in raw.ask(HELLO)
    go.set()
    assert done.wait(20)
    assert {row["name"]: row["paused"] for row in app.control.queues()}["talk"] is True
    assert "ok" in raw.ask(HELLO)


def test_two_hundred_clients_at_once_are_answered(place: Path, door: server.SocketServer) -> None:
    clients = [Raw(place) for _ in range(200)]
    for one in clients:
        one.send(b'{"call": "queues"}\n')
    assert all("ok" in one.read() for one in clients)
    for one in clients:
        one.close()


def test_one_client_too_many_is_told(
    place: Path, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_CLIENTS", 1)
    assert "ok" in raw.ask(HELLO)
    with closing(Raw(place)) as other:
        assert other.read() == {"error": "Unavailable", "message": server.TOO_MANY}
        assert other.read() is None
    assert "ok" in raw.ask(HELLO)


def test_who_says_nothing_is_sent_away(
    place: Path, door: server.SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "IDLE_SECONDS", 0.01)
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        assert go.wait(20)

    door._loop.call_soon_threadsafe(hold)
    assert held.wait(20)
    with closing(Raw(place)) as silent:
        silent.send(b'{"call":')  # it lies there when the time begins to count
        go.set()
        assert silent.read() is None


def test_who_does_not_take_the_answer_is_sent_away(
    place: Path, door: server.SocketServer, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()

    def large(self: Control) -> dict[str, str]:
        asked.set()
        return {"large": "x" * 10_000_000}

    monkeypatch.setattr(server, "SEND_SECONDS", 0.01)
    monkeypatch.setattr(Control, "overview", large)
    assert "ok" in raw.ask(HELLO)
    with closing(Raw(place)) as lazy:
        lazy.send(b'{"call": "overview"}\n' + HELLO + b"\n")
        assert asked.wait(20)
        # The process lets go of what is left, so the line never ends.
        wait_until(lambda: len(door._clients) == 1, "it is sent away")
        assert "ok" in raw.ask(HELLO)
        with pytest.raises((OSError, ValueError)):
            assert lazy.read() is not None


def test_a_fault_of_our_own_is_told_and_logged(
    remote: RemoteControl, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Control, "overview", lambda self: 1 / 0)
    with pytest.raises(RotaError, match=r"failed to do it \(ZeroDivisionError\); its log has"):
        remote.overview()
    assert "a request on the local socket failed" in caplog.text
    assert remote.now()


# The end


def test_a_call_that_was_begun_is_answered_before_the_door_closes(
    door: server.SocketServer, remote: RemoteControl, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go, told = threading.Event(), threading.Event(), []

    def slow(self: Control) -> dict[str, Any]:
        begun.set()
        assert go.wait(20)
        return {"answer": 42}

    monkeypatch.setattr(Control, "overview", slow)
    monkeypatch.setattr(server, "STOP_SECONDS", 20.0)
    assert "ok" in raw.ask(HELLO)
    asking = threading.Thread(target=lambda: told.append(remote.overview()))
    asking.start()
    assert begun.wait(20)
    stopping = threading.Thread(target=door.stop)
    stopping.start()
    assert raw.read() is None  # who asks nothing is sent away at once
    go.set()
    stopping.join(20)
    asking.join(20)
    assert told == [{"answer": 42}]
    with pytest.raises(Unavailable, match=r"which has .*shop.duckdb open, .*; ask again"):
        remote.now()


def test_a_stop_during_a_call_says_that_nobody_knows(
    door: server.SocketServer, remote: RemoteControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go, told = threading.Event(), threading.Event(), []

    def slow(self: Control) -> int:
        begun.set()
        assert go.wait(20)
        return 0

    def ask() -> None:
        with pytest.raises(Unavailable) as caught:
            remote.prune()
        told.append(caught.value)

    monkeypatch.setattr(Control, "prune", slow)
    monkeypatch.setattr(server, "STOP_SECONDS", 0.01)
    asking = threading.Thread(target=ask)
    asking.start()
    assert begun.wait(20)
    door.stop()
    asking.join(20)
    go.set()
    assert f"process {os.getpid()}, which has" in str(told[0])
    assert "stopped before it answered: whether it did it (prune) is not known" in str(told[0])
    assert told[0].maybe_committed


# Where the door is


def test_a_process_that_can_have_no_door_runs_without_and_says_so(
    app: rota.Rota, place: Path, cli: Cli, caplog: pytest.LogCaptureFixture
) -> None:
    place.write_text("mine")
    app.start([])
    assert "commands cannot reach this process" in str(app.health["door"])
    assert "it runs on without" in caplog.text
    app.stop()
    assert place.read_text() == "mine"
    assert cli("jobs").code == 0


def test_a_folder_that_cannot_be_written_has_no_door(
    app: rota.Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(self: ListeningSocket) -> None:  # what the kernel says to anybody but root
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self.path))

    monkeypatch.setattr(ListeningSocket, "_bind", denied)
    app.start([])
    assert "Permission denied" in str(app.health["door"])
    assert app.control.queues()


def test_a_door_that_somebody_answers_at_is_left_alone(
    app: rota.Rota, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ListeningSocket(place)
    monkeypatch.setattr(client, "HELLO_SECONDS", 20.0)

    def answer() -> None:
        sock, _ = other.socket.accept()
        sock.recv(1000)
        sock.sendall(b'{"ok": {"version": "1", "process": 77}}\n')
        sock.close()

    answering = threading.Thread(target=answer)
    answering.start()
    app.start([])
    answering.join(20)
    assert "process 77 answers there" in str(app.health["door"])
    app.stop()
    assert place.is_socket()
    other.socket.close()
    other.remove()
    assert not place.exists()


def test_a_door_where_nobody_answers_is_replaced(
    app: rota.Rota, place: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was forked from the one that crashed may keep its socket for ever."""
    orphan = ListeningSocket(place)
    monkeypatch.setattr(client, "HELLO_SECONDS", 0.01)
    assert connect(place) is None
    assert cli("jobs").code == 0
    app.start([])
    assert app.health["door"] is None
    monkeypatch.setattr(client, "HELLO_SECONDS", 20.0)
    found = connect(place)
    assert found is not None
    found.close()
    orphan.remove()  # it is not its own any more
    assert place.is_socket()
    orphan.socket.close()


def test_two_apps_of_one_process_have_one_door(app: rota.Rota, place: Path) -> None:
    second = shop()
    app.start([])
    second.start([])
    assert second.health["door"] is None
    second.stop()
    found = connect(place)
    assert found is not None
    found.close()


def test_a_store_in_memory_has_no_door(cli: Cli) -> None:
    app = rota.Rota("duckdb:///:memory:")
    app.start([])
    assert app.health["door"] is None
    app.stop()
    assert os.listdir() == []


def test_a_path_too_long_for_a_socket_gets_a_link(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("deep" * 15) / ("deeper" * 10)
    folder.mkdir(parents=True)
    url = f"duckdb:///{folder / 'w.duckdb'}"
    app = rota.Rota(url)
    app.start([])
    link = folder / "w.duckdb.rota.sock"
    target = Path(os.readlink(link))
    assert stat.S_IMODE(target.lstat().st_mode) == 0o600
    assert stat.S_IMODE(target.parent.lstat().st_mode) == 0o700
    assert cli("queues", "--database", url, "--json").json == []
    found = connect(link)
    assert found is not None
    found.close()
    app.stop()
    assert [path.name for path in folder.iterdir()] == ["w.duckdb"]
    assert not target.parent.exists()
    # What a crash leaves behind is cleared, in both places.
    left = ListeningSocket(link)
    left.socket.close()
    behind = Path(os.readlink(link)).parent
    app.start([])
    assert app.health["door"] is None
    assert not behind.exists()
    app.stop()


def test_a_link_that_is_not_ours_is_replaced_and_not_followed(
    app: rota.Rota, place: Path, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep")
    place.symlink_to(precious)
    app.start([])
    assert app.health["door"] is None
    app.stop()
    assert precious.read_text() == "keep"


def test_a_name_too_long_for_anything_beside_it_has_no_door(tmp_path: Path) -> None:
    app = rota.Rota(f"duckdb:///{tmp_path / ('n' * 240)}.duckdb")
    app.start([])
    assert "commands cannot reach this process" in str(app.health["door"])
    app.stop()


def test_each_installation_in_a_file_has_its_own(tmp_path: Path) -> None:
    assert socket_path(tmp_path / "w.duckdb", "wal").name == "w.duckdb.wal.sock"
    assert address.store_path(socket_path(tmp_path / "w.duckdb", "wal")) == tmp_path / "w.duckdb"


# Processes


@pytest.fixture
def folder(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_DATABASE", "duckdb:///shop.duckdb")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr("rota.cli.store.BUSY_SECONDS", 60.0)  # the door opens after the first run
    Path("shop.py").write_text(SHOP)


@pytest.mark.usefixtures("folder", "clean_logging")
def test_commands_reach_a_process_and_outlive_its_crash(cli: Cli) -> None:
    up = Up("shop:app")
    up.wait_for("tick", "succeeded in")
    process = up.process.pid

    def workers() -> set[int]:
        return {one["pid"] for one in cli("workers", "--json").json}

    wait_until(workers, "its first heartbeat")
    assert workers() == {process}
    done = cli("run", "tick", "--wait", "--json").json
    assert done["state"] == "succeeded"
    wait_until(lambda: cli("logs", done["id"], "--json").json, "its line is written")
    followed = cli("logs", done["id"], "-f", "--json")
    assert json.loads(followed.out)["text"] == "tick says hello"
    assert cli("migrate", "--json").json["applied"] == []
    assert cli("migrate", "--plan", "--json").json == []
    second = cli("up", "--quiet")
    assert second.code == 1
    assert f"shop.duckdb is run by process {process} already" in second.error

    up.process.kill()
    up.process.wait(20)
    socket_left = Path("shop.duckdb.rota.sock")
    assert socket_left.is_socket()
    assert len(cli("runs", "--json").json) == 2
    cli("pause", "tick", "--reason", "after the crash")
    run = cli("run", "tick", "--json").json["id"]

    again = Up("shop:app")
    again.wait_for("tick", "succeeded in", run)
    assert cli("schedules", "--json").json[0]["paused_reason"] == "after the crash"
    wait_until(lambda: again.process.pid in workers(), "its first heartbeat")
    code, _ = again.stop(signal.SIGTERM)
    assert code == 0
    assert not socket_left.exists()


HOLDER = """
import sys, duckdb
connection = duckdb.connect("shop.duckdb")
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.usefixtures("folder", "clean_logging")
def test_a_process_without_a_door_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.cli.store.BUSY_SECONDS", 0.1)
    monkeypatch.setattr("rota.storage.store.BUSY_SECONDS", 0.1)
    assert cli("migrate").code == 0
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"open\n"
    for command in (["jobs"], ["up", "--quiet"], ["pause", "--dispatch"], ["migrate"]):
        answer = cli(*command)
        assert answer.code == 1
        assert f"shop.duckdb is in use by process {holder.pid} (" in answer.error
        assert f"or stop it (kill {holder.pid})" in answer.error
    # One that has the file for a moment is waited for.
    monkeypatch.setattr("rota.cli.store.BUSY_SECONDS", 20.0)
    assert holder.stdin is not None
    threading.Timer(0.1, holder.stdin.close).start()
    assert cli("jobs").code == 0
    holder.wait(20)
    holder.stdout.close()


@pytest.mark.usefixtures("app")
def test_without_a_process_nothing_waits_for_one(cli: Cli, app: rota.Rota) -> None:
    app.close()
    answer = cli("run", "nightly", "--wait")
    assert answer.code == 1
    assert "start `rota up` first, or leave out --wait" in answer.error
    assert cli("enqueue", "broken", "--wait").code == 1
    assert cli("runs", "--json").json == []
    run = cli("run", "nightly", "--json").json["id"]
    followed = cli("logs", run, "-f")
    assert (followed.code, followed.out) == (0, "")
    assert "no process runs on this DuckDB store" in followed.err
