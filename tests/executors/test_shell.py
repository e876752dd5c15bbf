"""Commands: what they are given, what they write, and how they end with all they started."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import Invalid
from rota.executors.shell import ShellExecutor
from rota.executors.shell.output import LONGEST, TAIL_BYTES, Budget, Stream
from rota.model.job import Job
from rota.model.limits import LOG_LINE_LENGTH, LOG_LINES
from rota.model.redact import SHAPE_LENGTH
from rota.model.secrets import NO_SECRETS, Secrets
from tests.executors.conftest import Attempt, Port, is_gone, wait_until
from tests.executors.shell_support import error, python, result, shell_context, shell_job
from tests.support import family

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

TELL = 'print("pids", os.getpid(), *pids.decode().split(), flush=True)\n'
FAMILY = family.FAMILY + TELL
AND_STAY = FAMILY + "\nwhile True: time.sleep(60)"


def pids_of(lines: list[str]) -> list[int]:
    told = next((line for line in lines if line.startswith("pids ")), None)
    return [] if told is None else [int(word) for word in told.split()[1:]]


Begin = Callable[..., Attempt]


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> Iterator[ShellExecutor]:
    # A busy machine may keep a supervisor waiting that does what it is told.
    monkeypatch.setattr("rota.executors.shell.executor.LATE_SECONDS", 60.0)
    made = ShellExecutor(kill_after=0.5)
    yield made
    made.close()


@pytest.fixture
def begin(executor: ShellExecutor) -> Iterator[Begin]:
    with ThreadPoolExecutor(8) as threads:

        def run(command: Any, args: dict[str, Any] | None = None, **spec: Any) -> Attempt:
            job = shell_job(command, **spec)
            executor.check(job)
            port = Port()
            context = shell_context(job, port, args)
            return Attempt(context, port, threads.submit(executor.run, context))

        yield run
        executor.close()


# What it is given


def test_a_command_runs_and_its_output_is_kept(begin: Begin) -> None:
    attempt = begin(["echo", "two words", "*", "$HOME", "; ls"])
    assert result(attempt) == {"exit_code": 0, "stdout": "two words * $HOME ; ls"}
    assert attempt.port.lines == ["two words * $HOME ; ls"]


def test_the_environment_is_made_not_inherited(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_DATABASE", "postgresql://u:hush-hush@h/d")
    monkeypatch.setenv("UNRELATED", "x")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("REGION", "north")
    attempt = begin(
        python("import os, json; print(json.dumps(dict(os.environ)))"),
        {"table": "orders"},
        env={"PLACE": "${REGION} of ${TABLE}", "N": 3, "ON": True},
    )
    assert attempt.outcome.kind == "succeeded"
    (line,) = attempt.port.lines
    told = json.loads(line)
    own = {name: told.pop(name) for name in ("PLACE", "N", "ON", "LC_TIME")}
    assert own == {"PLACE": "north of orders", "N": "3", "ON": "true", "LC_TIME": "C"}
    rota = {name: told.pop(name) for name in list(told) if name.startswith("ROTA_")}
    assert rota == {
        "ROTA_JOB_NAME": "job",
        "ROTA_RUN_ID": "run-1",
        "ROTA_ATTEMPT": "2",
        "ROTA_SCHEDULED_AT": "2026-03-01T12:00:00+00:00",
        "ROTA_ARGS": '{"table": "orders"}',
    }
    allowed = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"}
    assert {name for name in told if not name.startswith("LC_")} <= allowed


def test_a_traced_attempt_passes_its_trace_on(executor: ShellExecutor) -> None:
    job, port = shell_job(["sh", "-c", "echo $TRACEPARENT"]), Port()
    context = shell_context(job, port)
    context.trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert executor.run(context).kind == "succeeded"
    assert port.lines == [context.trace]


def test_settings_of_rota_cannot_be_asked_for(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_DATABASE", "postgresql://u:hush-hush@h/d")
    told = error(begin(["echo"], env={"DSN": "${ROTA_DATABASE}"}))
    assert told.startswith("ROTA_DATABASE cannot be read by a job; only ROTA_JOB_NAME")


HOSTILE = [
    "'; DROP TABLE x; --", '"', "$(touch /tmp/x)", "`id`", "a\nb", "../../etc", "\x1b[31mred",
    "\N{RIGHT-TO-LEFT OVERRIDE}abc", "x" * 10_000, "", " ", "*", "${HOME}", "$${X}", "\\", "😀",
]  # fmt: skip


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_an_argument_stays_one_argument_whatever_it_holds(begin: Begin, value: str) -> None:
    code = (
        "import sys, os\n"
        "print(ascii(sys.argv[1:]), ascii(os.environ['V']), ascii(sys.stdin.read()))"
    )
    attempt = begin(
        python(code, "--name=${VALUE}", "last"),
        {"value": value},
        env={"V": "${VALUE}"},
        stdin="${VALUE}",
    )
    assert attempt.outcome.kind == "succeeded", attempt.outcome.error
    told = " ".join([ascii([f"--name={value}", "last"]), ascii(value), ascii(value)])
    (line,) = attempt.port.lines
    shown = slice(1_500) if len(told) > LOG_LINE_LENGTH else slice(None)
    assert line[shown] == told[shown]


def test_a_value_is_never_taken_for_an_option(begin: Begin) -> None:
    told = begin(["rm", "${FILE}"], {"file": "-rf"}).outcome
    assert told.error == (
        "command[1]: the value of FILE begins with - and would be taken for an option; "
        'put "--" before it, or write "--name=${FILE}"'
    )
    assert told.final
    assert result(begin(["echo", "--", "${FILE}"], {"file": "-rf"}))["stdout"] == "-- -rf"
    assert result(begin(["echo", "--f=${FILE}"], {"file": "-rf"}))["stdout"] == "--f=-rf"


def test_a_value_never_reaches_a_shell_elsewhere(begin: Begin) -> None:
    told = error(begin(["ssh", "host", "cat", "${FILE}"], {"file": "$(id)"}))
    assert told == (
        "command[3]: ssh may read ${FILE} as a command or script, here or on the other side; read "
        "it from ROTA_ARGS in the environment, or from stdin"
    )


def test_a_nul_is_refused_before_anything_starts(begin: Begin) -> None:
    told = error(begin(["echo", "${V}"], {"v": "a\0b"}))
    assert told == "command would hold a NUL character, which no program can be given"


def test_every_missing_variable_is_named_at_once(begin: Begin) -> None:
    outcome = begin(["echo", "${ONE_X}", "${OK:-fine}"], env={"A": "${TWO_X}"}).outcome
    assert outcome.error == (
        "variables ONE_X, TWO_X are not set; set them in the environment, or give a default: "
        "${ONE_X:-…}"
    )
    assert outcome.final


def test_stdin_is_text_and_empty_by_default(begin: Begin) -> None:
    assert result(begin(["cat"], {"a": 1}, stdin="${ROTA_ARGS}"))["stdout"] == '{"a": 1}'
    assert result(begin(["cat"]))["stdout"] == ""
    large = "x" * 300_000 + "\n"
    told = result(begin(["wc", "-c"], {"big": large}, stdin="${BIG}"))
    assert told["stdout"] == "300001"


def test_large_arguments_go_by_stdin(begin: Begin) -> None:
    attempt = begin(python("import os; print('ROTA_ARGS' in os.environ)"), {"a": "x" * 200_000})
    assert result(attempt)["stdout"] == "False"
    assert 'take them by stdin = "${ROTA_ARGS}"' in attempt.port.lines[0]


def test_the_folder(begin: Begin, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    script = tmp_path / "here.sh"
    script.write_text("#!/bin/sh\npwd\n")
    script.chmod(0o755)
    folder = str(tmp_path)
    assert result(begin(["./here.sh"], folder=folder))["stdout"] == folder
    assert result(begin(["pwd"], folder=folder, cwd="sub"))["stdout"] == f"{folder}/sub"
    assert result(begin(["pwd"], cwd=folder))["stdout"] == folder


# What cannot start


def test_what_cannot_start_says_the_way_out(begin: Begin, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("echo hi\n")
    assert error(begin(["no-such-program"])) == (
        "the program no-such-program is not there; install it, name it by its path, or add its "
        "folder to PATH"
    )
    assert error(begin([str(plain)])) == f"the program {plain} cannot be executed; `chmod +x` it"
    plain.chmod(0o755)
    assert error(begin([str(plain)])) == (
        f"the program {plain} is no program; begin it with a line such as #!/bin/sh"
    )
    assert error(begin([str(tmp_path)])).endswith("cannot be executed; `chmod +x` it")
    assert error(begin(["ls"], cwd="/no/such/folder")) == (
        "the folder /no/such/folder is not there; make it, or correct cwd"
    )
    assert error(begin(["ls"], cwd=str(plain))).endswith("is not a folder; correct cwd")


def test_a_huge_command_is_refused_by_name(begin: Begin) -> None:
    words = ["echo", *(["x" * 90_000] * 40)]
    assert error(begin(words)) == (
        "the program echo has too long arguments or environment; pass large data by stdin"
    )


REFUSED = [
    ({"command": "pg_dump -f 'a b' shop"},
     'command is text; write a list, command = ["pg_dump", "-f", "a b", "shop"]'),
    ({"command": "ls | wc"}, 'command is text; write a list, command = ["sh", "-c", "ls | wc"]'),
    ({"command": []}, "command must be a list of texts"),
    ({"command": None}, "command must be a list of texts"),
    ({"command": [""]}, "command[0] '' must be text"),
    ({"command": ["sleep", 5]}, "command[1] 5 must be text; write numbers in quotes"),
    ({"command": ["x"] * 1_001}, "command has 1,001 elements; the limit is 1,000"),
    ({"command": ["x", "y" * 100_001]}, "command[1] has 100,001 characters; the limit is 100,000"),
    ({"command": ["x\0"]}, "command[0]"),
    ({"command": ["x", "${lower}"]}, "'${lower}' is not a variable; write ${NAME} in capitals"),
    ({"command": ["x", "${A:raw}"]}, "${A:raw} is not a variable; write ${A} or ${A:-default}"),
    ({"command": ["x", "${API_TOKEN}"]},
     "command[1]: ${API_TOKEN} would be seen by everybody who lists processes"),
    ({"command": ["sh", "-c", "echo ${NAME}"]},
     "command[2]: the value of ${NAME} would become part of a script"),
    ({"command": ["nice", "bash", "-lc", "echo ${NAME}"]}, "command[3]: the value of ${NAME}"),
    ({"command": ["/usr/bin/python3.11", "-c", "print('${NAME}')"]}, "command[2]: the value of"),
    ({"command": ["perl", "-eprint ${NAME}"]}, "command[1]: the value of ${NAME}"),
    ({"command": ["env", "-S", "echo ${NAME}"]}, "command[2]: the value of ${NAME}"),
    ({"command": ["nice", "/usr/bin/ssh", "host", "cat", "--", "${FILE}"], "params": {"file": "x"}},
     "command[5]: ssh may read ${FILE} as a command or script, here or on the other side"),
    *(({"command": command, "params": {"name": "x"}}, f"command[{place}]: the value of ${{NAME}}")
      for place, command in [
          (3, ["sh", "-c", "--", "echo ${NAME}"]), (3, ["sh", "-c", "-e", "echo ${NAME}"]),
          (2, ["su", "me", "--command=echo ${NAME}"]), (3, ["su", "me", "--command", "${NAME}"]),
          (1, ["env", "--split-string=echo ${NAME}"]), (3, ["xargs", "sh", "-c", "echo ${NAME}"]),
          (5, ["find", ".", "-exec", "sh", "-ec", "echo ${NAME}", ";"]),
          (2, ["node", "--eval", "x(${NAME})"]), (2, ["pwsh", "-Command", "${NAME}"]),
      ]),
    *(({"command": command, "params": {"name": "x"}},
       f"command[{place}]: {command[0]} may read ${{NAME}} as a command or script")
      for place, command in [
          (1, ["awk", "${NAME}"]), (2, ["gawk", "-f", "${NAME}"]), (2, ["rsync", "-e", "${NAME}"]),
          (1, ["scp", "host:${NAME}", "."]), (1, ["sed", "${NAME}", "file"]),
      ]),
    *(({"command": [*before, "${NAME}"], "params": {"name": "x"}},
       f"command[{len(before)}]: ${{NAME}} is an argument of the run")
      for before in [["find", ".", "-exec"], ["/usr/bin/xargs"], ["sudo"]]),
    ({"command": ["${PROGRAM}"], "params": {"program": "ls"}},
     "command[0]: ${PROGRAM} is an argument of the run"),
    ({"command": ["ls"], "cwd": "/data/${WHO}", "params": {"who": "x"}},
     "cwd: ${WHO} is an argument of the run"),
    ({"command": ["ls"], "cwd": ""}, "cwd '' is not a folder"),
    ({"command": ["ls"], "cwd": 5}, "cwd 5 must be text"),
    ({"command": ["ls"], "stdin": ["x"]}, "stdin ['x'] must be text"),
    ({"command": ["ls"], "env": ["A=1"]}, "env is a table: [env]"),
    ({"command": ["ls"], "env": {"A B": "1"}}, "env: 'A B' is not a name"),
    ({"command": ["ls"], "env": {"ROTA_X": "1"}}, "env: ROTA_X begins with ROTA_"),
    ({"command": ["ls"], "env": {"A": [1]}}, "env: A must be text, a number, true or false"),
    ({"command": ["ls"], "env": {"A": "\0"}}, "env: A holds a NUL character"),
    ({"command": ["ls"], "env": {f"A{n}": "" for n in range(201)}}, "env has 201 names"),
    ({"command": ["ls"], "ok_codes": []}, "ok_codes [] must be a list of exit codes"),
    ({"command": ["ls"], "ok_codes": [256]}, "ok_codes [256] must be a list of exit codes"),
    ({"command": ["ls"], "ok_codes": [True]}, "ok_codes [True] must be a list"),
    ({"command": ["ls"], "ok_codes": 0}, "ok_codes 0 must be a list"),
    ({"comand": ["ls"]}, "option 'comand' is unknown; did you mean 'command'?"),
]  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [
        ["rsync", "-e", "ssh -p ${PORT}", "a", "b"],
        ["awk", "-f", "${SCRIPT}"],
        ["sh", "-c", 'echo "$1"', "sh", "${NAME}"],
        ["pg_dump", "-c", "${NAME}"],
        ["env", "WHO=${NAME}", "id"],
        ["kubectl", "set", "env", "${NAME}"],
        ["echo", "${NAME}"],
    ],
    ids=[
        "remote-of-the-owner",
        "script-of-the-owner",
        "argument-of-a-script",
        "no-shell",
        "env",
        "word",
        "plain",
    ],
)
def test_a_value_that_stays_one_may_be_given(command: list[str]) -> None:
    spec = {"command": command, "params": {"name": "x"}}
    ShellExecutor().check(Job(name="job", executor="shell", spec=spec))


@pytest.mark.parametrize(("spec", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_no_worker_could_run_is_refused(spec: dict[str, object], message: str) -> None:
    job = Job(name="job", executor="shell", spec=spec)
    with pytest.raises(Invalid) as caught:
        ShellExecutor().check(job)
    assert str(caught.value).startswith(f"job 'job': {message}")


# What it writes


def test_both_streams_are_kept_line_by_line(begin: Begin) -> None:
    attempt = begin(["sh", "-c", "echo out; sleep 0.1; echo err >&2; sleep 0.1; printf 'no end'"])
    assert attempt.outcome.kind == "succeeded"
    told = [(p["level"], p["text"]) for request, p in attempt.port.told if request == "log"]
    assert told == [("INFO", "out"), ("WARNING", "err"), ("INFO", "no end")]


@given(st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"\xff", b"\0", "ä".encode()])), st.data())
def test_lines_are_the_same_however_they_arrive(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=4).map(sorted))
    told = []
    for ends in ([len(whole)], [*cuts, len(whole)]):
        port, start = Port(), 0
        logger = shell_context(shell_job(["x"]), port).logger
        stream = Stream(logger, logging.INFO, NO_SECRETS, Budget())
        for end in ends:
            stream.feed(whole[start:end])
            start = end
        stream.end()
        told.append((port.lines, stream.tail()))
    assert told[0] == told[1]
    assert len(told[0][0]) == len(whole.split(b"\n")) - whole.endswith(b"\n") - (not whole)


def test_a_failure_tells_its_last_lines(begin: Begin) -> None:
    attempt = begin(["sh", "-c", "for i in $(seq 30); do echo line $i >&2; done; exit 7"])
    lines = error(attempt).splitlines()
    assert lines[0] == "sh exited with code 7: line 30"
    assert lines[2:] == [f"line {n}" for n in range(11, 31)]


def test_a_failure_without_words(begin: Begin) -> None:
    assert error(begin(["false"])) == "false exited with code 1"
    assert error(begin(["sh", "-c", "kill -SEGV $$"])) == "sh was killed by SIGSEGV"


def test_ok_codes(begin: Begin) -> None:
    assert result(begin(["sh", "-c", "exit 3"], ok_codes=[0, 3]))["exit_code"] == 3
    assert error(begin(["true"], ok_codes=[3])) == "true exited with code 0"


def test_a_flood_is_cut_and_costs_no_memory(begin: Begin) -> None:
    attempt = begin(["sh", "-c", "yes abcdefgh | head -n 2000000; echo the end >&2; exit 1"])
    assert error(attempt) == "sh exited with code 1: the end"
    assert len(attempt.port.lines) == LOG_LINES + 1
    cut = re.fullmatch(r"\[([0-9,]+) more lines were cut\]", attempt.port.lines[-1])
    assert cut is not None
    assert int(cut[1].replace(",", "")) in (2_000_001 - LOG_LINES, 2_000_000 - LOG_LINES)


def test_a_line_without_an_end_is_cut(begin: Begin) -> None:
    attempt = begin(["sh", "-c", "head -c 5000000 /dev/zero | tr '\\0' x"])
    assert attempt.outcome.kind == "succeeded"
    (line,) = attempt.port.lines
    assert len(line) < LOG_LINE_LENGTH + 100
    assert line.endswith("more bytes were cut]")


LONG_SECRET = "".join(f"{number:03d}X" for number in range(80))
AFTER = "_" * (SHAPE_LENGTH + 60) + "\n"
PAD = "_" * (TAIL_BYTES - (SHAPE_LENGTH - 160) - 86 * 321 - 6) + "\n"
CUTS = {
    "before the joint": ["_" * (LONGEST - 300) + LONG_SECRET + "_", AFTER],
    "after the joint": ["_" * (LONGEST + 10) + LONG_SECRET[:4], LONG_SECRET[4:] + AFTER],
    "where slack ends": ["_" * (LONGEST - SHAPE_LENGTH - 160) + LONG_SECRET + "_" * LONGEST, "\n"],
    "where the tail begins": [
        "_" * 1_000 + "_" * (SHAPE_LENGTH - 160),
        f"{LONG_SECRET}," * 86,
        PAD,
    ],
}


@pytest.mark.parametrize("pieces", CUTS.values(), ids=CUTS)
def test_no_part_of_a_secret_is_left_where_output_is_cut(pieces: list[str]) -> None:
    port = Port()
    logger = shell_context(shell_job(["x"]), port).logger
    stream = Stream(logger, logging.INFO, Secrets([LONG_SECRET]), Budget())
    for piece in [*pieces, "next\n"]:
        stream.feed(piece.encode())
    assert port.lines[-1] == "next"
    assert not re.search("[0-9]X", "".join([*port.lines, stream.tail()]))


def test_a_joint_of_a_cut_line_is_no_text() -> None:
    port = Port()
    logger = shell_context(shell_job(["x"]), port).logger
    stream = Stream(logger, logging.INFO, NO_SECRETS, Budget())
    for piece in (b"a" * (LONGEST + 10), b"b" * 5_000, b"b\nwhole\nend"):
        stream.feed(piece)
    stream.end()
    assert port.lines[0].endswith("[5,011 more bytes were cut]")
    assert port.lines[0].count("b") == "more bytes".count("b")
    assert port.lines[1:] == ["whole", "end"]


def test_binary_output_and_closed_streams_harm_nobody(begin: Begin) -> None:
    attempt = begin(["sh", "-c", r"printf 'a\377\000b\n'; exec >&- 2>&-; exit 0"])
    assert attempt.outcome.kind == "succeeded"
    assert attempt.port.lines == ["a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}b"]
    silent = begin(python("import os; os.close(1); os.close(2); os._exit(4)"))
    assert error(silent).endswith("exited with code 4")


def test_a_pipe_that_nobody_reads_ends_a_program_quietly(begin: Begin) -> None:
    assert result(begin(["sh", "-c", "yes | head -n 1"]))["stdout"] == "y"


SECRET = "s3cr3t-canary-0451"


def test_secrets_are_found_nowhere(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", SECRET)
    monkeypatch.setenv("SIGNING_SECRET", "first line of key\nsecond line of key")
    code = """
        import os, sys
        for name in ("PW", "OPAQUE_TOKEN", "KEY"):
            print(os.environ[name]); print(os.environ[name], file=sys.stderr)
        print(os.environ["ROTA_ARGS"])
        print("x" * 31_990 + os.environ["PW"] + "x" * 9_000)
        print("y" * 40_000 + os.environ["PW"] + "y" * 31_990, file=sys.stderr)
        sys.exit(1)
    """
    attempt = begin(
        python(textwrap.dedent(code)),
        {"db": {"password": "hunter2hunter2"}, "api_key": "key-in-an-argument"},
        env={
            "PW": "${SHOP_PASSWORD}",
            "OPAQUE_TOKEN": "told-literally",
            "KEY": "${SIGNING_SECRET}",
        },
    )
    told = str(attempt.outcome.redacted(attempt.context.secrets).error)
    seen = "\n".join([told, *attempt.port.lines])
    for secret in (SECRET, "told-literally", "line of key", "hunter2", "key-in-an", SECRET[:8]):
        assert secret not in seen, secret
    assert "[redacted]" in seen


def test_what_a_command_is_given_is_in_no_list_of_processes(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", SECRET)
    attempt = begin(
        ["sh", "-c", "echo pids $$ $PPID; exec sleep 60"], env={"PW": "${SHOP_PASSWORD}"}
    )
    assert wait_until(lambda: bool(pids_of(attempt.port.lines)))
    command, supervisor = pids_of(attempt.port.lines)
    for pid in (command, supervisor):
        assert SECRET not in Path(f"/proc/{pid}/cmdline").read_text()
    assert SECRET not in Path(f"/proc/{supervisor}/environ").read_text()
    attempt.stop("cancelled")
    assert attempt.outcome.kind == "cancelled"


# How it ends


@pytest.mark.parametrize(
    ("reason", "kind"),
    [("timed_out", "timed_out"), ("cancelled", "cancelled"), ("stopping", "released"),
     ("lost", "lost")],
)  # fmt: skip
def test_a_stop_ends_all_that_a_command_started(begin: Begin, reason: str, kind: str) -> None:
    attempt = begin(python(AND_STAY))
    assert wait_until(lambda: bool(pids_of(attempt.port.lines)))
    family = pids_of(attempt.port.lines)
    assert len(family) == 4
    assert not any(map(is_gone, family))
    attempt.stop(reason)
    assert attempt.outcome.kind == kind
    assert all(map(is_gone, family))


def test_what_a_command_leaves_behind_is_ended(begin: Begin) -> None:
    attempt = begin(python(FAMILY))
    assert result(attempt)["exit_code"] == 0
    assert all(map(is_gone, pids_of(attempt.port.lines)))
    assert attempt.port.lines[-1] == "[3 processes that it left behind were ended]"


HOPPER = """
import fcntl, os, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)  # held as long as any process has this file
if os.fork() == 0:
    os.setsid()
    print("pids", os.getpid(), flush=True)
    while os.fork() == 0: pass
    os._exit(0)
os.wait()
if sys.argv[2] == "stay": os.read(os.pipe()[0], 1)
"""


@pytest.mark.parametrize("then", ["stay", "leave"])
def test_a_process_that_never_stays_the_same_is_ended_too(
    begin: Begin, tmp_path: Path, then: str
) -> None:
    held = tmp_path / "held"
    attempt = begin(python(HOPPER, str(held), then))
    assert wait_until(lambda: bool(pids_of(attempt.port.lines)))
    if then == "stay":
        attempt.stop("timed_out")
    assert attempt.outcome.kind in ("timed_out", "succeeded")
    with held.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


LINGERS = (
    "import sys; sys.path.append({!r}); import rota.executors.supervisor as it; "
    "it.LINGER_SECONDS = 60.0; it.main({})"
)


def test_what_ends_by_itself_in_a_moment_may(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long that moment is on this machine: it begins when the command is gone."""
    monkeypatch.setattr("rota.executors.shell.command.BOOT", LINGERS)
    rest = "while kill -0 $$ 2> /dev/null; do sleep 0.01; done; echo the rest"
    attempt = begin(["sh", "-c", f"({rest}) & echo first"])
    assert attempt.outcome.kind == "succeeded"
    assert attempt.port.lines == ["first", "the rest"]


def test_a_command_may_end_by_itself_when_it_is_asked_to(
    begin: Begin, executor: ShellExecutor
) -> None:
    executor.kill_after = 60.0
    # One short sleep after the other: what a shell has just forked may miss the signal.
    rest = "while :; do sleep 0.05; done"
    attempt = begin(["sh", "-c", f"trap 'echo cleaned up; exit 0' TERM; echo pids $$; {rest}"])
    assert wait_until(lambda: bool(pids_of(attempt.port.lines)))
    attempt.stop("cancelled")
    assert attempt.outcome.kind == "cancelled"
    assert "cleaned up" in attempt.port.lines


def test_a_killed_supervisor_takes_its_command_along(begin: Begin) -> None:
    attempt = begin(["sh", "-c", "sleep 60 & echo pids $$ $! $PPID; wait"])
    assert wait_until(lambda: bool(pids_of(attempt.port.lines)))
    command, child, supervisor = pids_of(attempt.port.lines)
    os.kill(supervisor, signal.SIGKILL)
    assert "the process that watches over it was killed" in error(attempt)
    assert wait_until(lambda: is_gone(command) and is_gone(child))


def test_a_supervisor_that_hangs_keeps_nobody(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.executors.shell.executor.LATE_SECONDS", 0.1)
    attempt = begin(["sh", "-c", "echo pids $$ $PPID; sleep 60"])
    assert wait_until(lambda: bool(pids_of(attempt.port.lines)))
    command, supervisor = pids_of(attempt.port.lines)
    os.kill(supervisor, signal.SIGSTOP)
    attempt.stop("timed_out")
    assert attempt.outcome.kind == "timed_out"
    assert wait_until(lambda: is_gone(command) and is_gone(supervisor))


def test_a_stop_before_it_begins_starts_nothing(executor: ShellExecutor, tmp_path: Path) -> None:
    job = shell_job(["touch", str(tmp_path / "made")])
    context = shell_context(job, Port())
    context.stop("cancelled")
    assert executor.run(context).kind == "cancelled"
    assert not (tmp_path / "made").exists()


def test_close_ends_what_runs(begin: Begin, executor: ShellExecutor) -> None:
    attempt = begin(python(AND_STAY))
    assert wait_until(lambda: bool(pids_of(attempt.port.lines)))
    executor.close()
    assert attempt.outcome.kind == "released"
    assert all(map(is_gone, pids_of(attempt.port.lines)))


ELSEWHERE = (
    "import sys; sys.path.append({!r}); import rota.executors.supervisor as it; it.LINUX = False; "
    "it.descendants = lambda pid: []; it.adopt_orphans = it.die_with_parent = lambda: None; "
    "it.main({})"
)


def test_without_proc_and_subreapers_the_group_is_ended(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as it can be done on other systems than Linux."""
    monkeypatch.setattr("rota.executors.shell.command.BOOT", ELSEWHERE)
    stubborn = "trap '' TERM; sleep 60 & echo pids $$ $!; wait; sleep 60"
    attempt = begin(["sh", "-c", stubborn])
    assert wait_until(lambda: bool(pids_of(attempt.port.lines)))
    attempt.stop("timed_out")
    assert attempt.outcome.kind == "timed_out"
    assert wait_until(lambda: all(map(is_gone, pids_of(attempt.port.lines))))
    left = begin(["sh", "-c", "trap '' TERM; sleep 60 & echo pids $!"])
    assert left.outcome.kind == "succeeded"
    assert wait_until(lambda: all(map(is_gone, pids_of(left.port.lines))))
    assert left.port.lines[-1] == "[a process that it left behind was ended]"
    assert begin(["true"]).outcome.kind == "succeeded"


WORKER = """
import sys
from rota.executors.shell import ShellExecutor
from tests.executors.shell_support import shell_context, shell_job

def port(request, params):
    print(params["text"], flush=True)

job = shell_job([sys.executable, "-I", "-S", "-c", sys.argv[1]])
ShellExecutor().run(shell_context(job, port))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_all_are_gone_after_their_worker_was_killed(number: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, AND_STAY], stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        line = worker.stdout.readline()
        family = pids_of([line])
        assert len(family) == 4
        worker.send_signal(number)
        assert worker.wait(20) == -number
    assert wait_until(lambda: all(map(is_gone, family)))
