"""Commands and requests as jobs of a folder: from job.toml to the result, through a real worker."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.jobsd.check import check_folder
from rota.model.run import Run
from rota.storage import operations
from tests.executors.web_server import WebServer, answer
from tests.jobsd.support import Jobs, Served, wait_until

ON = {"shell": True, "http": True}
SHELL = 'executor = "shell"\nschedule = false\n'
HTTP = 'executor = "http"\nschedule = false\n'

Serve = Callable[..., Served]


def refused(serve: Serve, jobs: Jobs, toml: str, **executors: Any) -> str:
    jobs.sql("job", toml, **{"_none": ""})
    served = serve(jobs, executors={**ON, **executors}).load()
    error = served.folder.definitions["job"].error
    assert error is not None
    assert served.error("job") == error  # shown on the job, on every surface
    assert served.names() == []
    return error.removeprefix("jobs.d/job/")


def test_both_are_off_until_somebody_switches_them_on(serve: Serve, jobs: Jobs) -> None:
    told = refused(serve, jobs, SHELL + 'command = ["ls"]', shell=False)
    assert told == (
        "job.toml:1: executor 'shell' is off; if everyone who may write jobs may use it, switch it "
        "on in rota.toml: [executors] shell = true (or ROTA_EXECUTORS_SHELL=true)"
    )
    told = refused(serve, jobs, HTTP + 'url = "https://example.org"', http=False)
    assert told.startswith("job.toml:1: executor 'http' is off; ")


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        (SHELL, "job.toml: command must be a list of texts"),
        (SHELL + 'command = "ls -l"', 'job.toml:3: command is text; write a list, command = ["ls"'),
        (
            SHELL + 'comand = ["ls"]',
            "job.toml:3: option 'comand' is unknown; did you mean 'command'",
        ),
        (SHELL + 'command = ["ls"]\nurl = "x"', "job.toml:4: option 'url' is unknown"),
        (SHELL + 'command = ["ls"]\ntarget = "store"', "job.toml:4: option 'target' is unknown"),
        (SHELL + 'command = ["ls"]\nrestart = true', "job.toml:4: option 'restart' is unknown"),
        (
            SHELL + 'command = ["ls"]\n[params]\nrota_x = 1',
            "job.toml:4: params: 'rota_x' cannot be",
        ),
        (
            HTTP + 'urll = "https://example.org"',
            "job.toml:3: option 'urll' is unknown; did you mean",
        ),
        (HTTP + 'url = "http://127.0.0.1/"', "job.toml:3: url: 127.0.0.1 is this machine itself"),
        (
            HTTP + 'url = "https://e.org"\ncommand = ["x"]',
            "job.toml:4: option 'command' is unknown",
        ),
    ],
)
def test_a_manifest_is_refused_with_its_line(
    serve: Serve, jobs: Jobs, toml: str, message: str
) -> None:
    assert refused(serve, jobs, toml).startswith(message)


def test_check_names_variables_and_secrets(serve: Serve, jobs: Jobs) -> None:
    toml = (
        'command = ["echo", "${TABLE}", "${NAME}", "${NAMES:-x}", "${ROTA_RUN_ID}"]\n'
        '[params]\ntable = "x"\n[env]\nPGPASSWORD = "hunter2"\nAPI_TOKEN = "${API_TOKEN}"\n'
        'DSN = "${ROTA_DATABASE}"\n'
    )
    jobs.sql("job", SHELL + toml, **{"_none": ""})
    jobs.sql("hook", HTTP + 'url = "https://example.org/${PLACE}"', **{"_none": ""})
    app = serve(jobs, executors=ON).app
    report = check_folder(app, {"API_TOKEN": "x"}, datetime(2026, 3, 1, tzinfo=UTC))
    told = [(one.job, one.kind, one.line, one.message[:44]) for one in report.findings]
    assert told == [
        ("hook", "missing", 3, "variable PLACE is not set; set it in the env"),
        ("job", "error", 9, "ROTA_DATABASE cannot be read by a job; only "),
        ("job", "missing", 3, "variable NAME is not set; set it in the envi"),
        ("job", "warning", 7, "env: PGPASSWORD looks like a secret in plain"),
    ]


# At work


@pytest.fixture
def server() -> Iterator[WebServer]:
    made = WebServer()
    yield made
    made.close()


@pytest.fixture
def app(jobs: Jobs, server: WebServer, tmp_path: Path) -> Iterator[rota.Rota]:
    """Not started: a test writes its files first."""
    made = rota.Rota(
        f"sqlite:///{tmp_path / 'rota.db'}",
        jobs_dir=str(jobs.root),
        executors={**ON, "http_allow": [f"127.0.0.1:{server.port}"]},
    )
    yield made
    made.stop(grace="0s")


def manifest(jobs: Jobs, name: str, toml: str) -> Path:
    folder = jobs.root / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.toml").write_text(toml)
    return folder


def ended(app: rota.Rota, run_id: str) -> Run:
    wait_until(lambda: app.control.run(run_id).finished_at is not None, run_id)
    return app.control.run(run_id)


def lines(app: rota.Rota, run: Run) -> list[str]:
    return [line["text"] for line in app.control.logs(run.id, limit=100)]


def test_a_command_runs_with_its_arguments(app: rota.Rota, jobs: Jobs) -> None:
    folder = manifest(
        jobs,
        "backup",
        SHELL + 'command = ["./backup.sh", "--table=${TABLE}"]\n[params]\ntable = "orders"\n'
        '[env]\nWHERE = "to ${TABLE}.bak"',
    )
    script = folder / "backup.sh"
    script.write_text('#!/bin/sh\necho "$1" "$WHERE" "$ROTA_JOB_NAME" "$(basename $PWD)"\n')
    script.chmod(0o755)
    app.start()
    first = ended(app, app.enqueue("backup").id)
    second = ended(app, app.enqueue("backup", {"table": "; rm -rf /"}).id)
    assert first.result is not None
    assert second.result is not None
    assert json.loads(first.result) == {
        "exit_code": 0, "stdout": "--table=orders to orders.bak backup backup",
    }  # fmt: skip
    assert json.loads(second.result)["stdout"].startswith("--table=; rm -rf / to ; rm -rf /.bak")
    with pytest.raises(rota.BadArguments, match="'tabel' is unknown, did you mean 'table'"):
        app.enqueue("backup", {"tabel": "x"})


def test_a_failed_command_is_tried_again_as_its_retries_say(app: rota.Rota, jobs: Jobs) -> None:
    manifest(
        jobs,
        "flaky",
        SHELL + 'max_attempts = 3\nbackoff = "none"\n'
        'command = ["sh", "-c", "echo try $ROTA_ATTEMPT >&2; test $ROTA_ATTEMPT = 3"]',
    )
    app.start()
    run = ended(app, app.enqueue("flaky").id)
    assert (run.state, run.attempt, run.failures) == ("succeeded", 3, 2)
    attempts = app.control.attempts(run.id)
    assert [one["error"] for one in attempts] == [
        "sh exited with code 1: try 1", "sh exited with code 1: try 2", None,
    ]  # fmt: skip


def test_a_command_is_edited_while_it_is_served(app: rota.Rota, jobs: Jobs) -> None:
    manifest(jobs, "greet", SHELL + 'command = ["echo", "one"]')
    app.start()
    assert '"one"' in str(ended(app, app.enqueue("greet").id).result)
    manifest(jobs, "greet", SHELL + 'command = ["echo", "two"]')

    def says(word: str) -> bool:
        return f'"{word}"' in str(ended(app, app.enqueue("greet").id).result)

    wait_until(lambda: says("two"), "the edit")
    before = app.control.run(app.enqueue("greet").id)
    manifest(jobs, "greet", SHELL + 'command = "echo three"')
    wait_until(
        lambda: app.storage.read(operations.jobs_named, ["greet"])["greet"].error, "the error"
    )
    assert says("two")  # the last good version stays
    app.control.redo(ended(app, before.id).id)
    assert '"two"' in str(ended(app, before.id).result)


def test_a_cancel_and_a_timeout_end_a_command(app: rota.Rota, jobs: Jobs) -> None:
    code = "import time; print('up', flush=True); time.sleep(600)"
    told = json.dumps([sys.executable, "-I", "-S", "-c", code])
    manifest(jobs, "long", SHELL + f"command = {told}")
    manifest(jobs, "late", SHELL + f'timeout = "1s"\ncommand = {told}')
    app.start()
    run_id = app.enqueue("long").id
    wait_until(lambda: app.control.logs(run_id, limit=10), "its first line")
    app.control.cancel(run_id)
    assert ended(app, run_id).state == "cancelled"
    late = ended(app, app.enqueue("late").id)
    assert (late.state, late.error) == ("dead", "timed out after 1s")


def test_a_request_and_its_answer(app: rota.Rota, jobs: Jobs, server: WebServer) -> None:
    server.answers["/hook/42"] = answer("201 Created", '{"id": 7}')
    manifest(
        jobs,
        "hook",
        HTTP + f'url = "{server.url}/hook/${{ORDER}}"\njson = {{ order = "${{ORDER}}" }}\n'
        "ok_codes = [201]\n[params]\norder = 1\n[headers]\nX-From = 'rota'",
    )
    app.start()
    run = ended(app, app.enqueue("hook", {"order": 42}).id)
    assert run.result is not None
    assert json.loads(run.result)["body"] == {"id": 7}
    (got,) = server.received
    assert (got.method, got.body, got.headers["x-from"]) == ("POST", b'{"order": 42}', "rota")
    assert got.headers["idempotency-key"] == run.id
    wait_until(lambda: lines(app, run) == [f"POST {server.url}: 201 Created"], "its log line")


def test_an_answer_that_blames_the_request_is_not_tried_again(
    app: rota.Rota, jobs: Jobs, server: WebServer
) -> None:
    told = f'max_attempts = 5\nbackoff = "none"\nurl = "{server.url}'
    manifest(jobs, "wrong", HTTP + f'{told}/gone"')
    manifest(jobs, "busy", HTTP + f'{told}/busy"')
    server.answers["/busy"] = answer("503 Busy")
    app.start()
    wrong, busy = ended(app, app.enqueue("wrong").id), ended(app, app.enqueue("busy").id)
    assert (wrong.state, wrong.attempt) == ("dead", 1)
    assert wrong.error == f"{server.url} answered 404 Not Found: no such page"
    assert (busy.state, busy.attempt) == ("dead", 5)


CANARY = "s3cr3t-canary-0451"


def test_secrets_of_commands_and_requests_are_found_nowhere(
    jobs: Jobs, serve: Serve, server: WebServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The file of the store is all that the views, the command line and anybody else could show."""
    monkeypatch.setenv("HOOK_KEY_OF_US", CANARY)
    monkeypatch.setenv("SHOP_PASSWORD", CANARY[::-1])

    def echo(connection: Any) -> None:
        answer("500 Oops", str(server.received[-1].headers))(connection)

    server.answers["/"] = echo
    manifest(
        jobs, "hook", HTTP + f"url = '{server.url}/'\n[headers]\nX-Key = '${{HOOK_KEY_OF_US}}'"
    )
    manifest(
        jobs,
        "dump",
        SHELL + "command = ['sh', '-c', 'echo $PW; echo $PW >&2; echo $PW | base64; exit 1']\n"
        "[env]\nPW = '${SHOP_PASSWORD}'",
    )
    app = serve(jobs, executors={**ON, "http_allow": ["127.0.0.1"]}).app
    app.start()
    for name in ("hook", "dump"):
        run = ended(app, app.enqueue(name).id)
        assert "[redacted]" in str(run.error)
    assert server.received[0].headers["x-key"] == CANARY
    app.stop()
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("rota.db*"))
    assert b"[redacted]" in stored
    for secret in (CANARY, CANARY[::-1]):
        assert secret.encode() not in stored


def test_a_job_whose_executor_was_switched_off_waits(serve: Serve, jobs: Jobs) -> None:
    manifest(jobs, "greet", SHELL + 'command = ["echo", "one"]')
    first = serve(jobs, executors=ON).app
    first.load()
    run_id = first.enqueue("greet").id
    first.close()
    served = serve(jobs, executors={})
    served.app.start()
    assert "is off" in served.error("greet")
    assert served.names() == []
    assert served.app.control.run(run_id).state == "queued"


def test_jobs_of_python_have_the_same_executors(
    serve: Serve, jobs: Jobs, server: WebServer
) -> None:
    from rota.model.job import Job

    server.answers["/"] = answer(body="hello")
    app = serve(jobs, executors={**ON, "http_allow": ["127.0.0.1"]}).app
    app.add_job(Job(name="list", executor="shell", spec={"command": ["echo", "listed"]}))
    app.add_job(Job(name="call", executor="http", spec={"url": server.url}))
    with pytest.raises(rota.Invalid, match="job 'bad': command is text"):
        app.add_job(Job(name="bad", executor="shell", spec={"command": "ls"}))
    app.start()
    assert "listed" in str(ended(app, app.enqueue("list").id).result)
    assert "hello" in str(ended(app, app.enqueue("call").id).result)
