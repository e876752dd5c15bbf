"""Python files as jobs: what they say of themselves, and what they cannot do to others."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from rota.executors.inspection import OPTIONS, FileError, FileFacts, inspect_files
from rota.model.limits import PYTHON_FILE_BYTES
from rota.model.schedule import DEFINITION
from rota.model.signature import Parameter

HANDLER = "def run(ctx): ...\n"


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def facts(folder: Path, text: str | bytes, name: str = "cleanup.py") -> FileFacts:
    path = write(folder, name, text)
    found = inspect_files([path])[path]
    assert isinstance(found, FileFacts), found.error
    return found


def error(folder: Path, text: str | bytes, *, timeout: float = 10.0) -> FileError:
    path = write(folder, "cleanup.py", text)
    found = inspect_files([path], timeout)[path]
    assert isinstance(found, FileError)
    assert found.error.startswith(str(path))
    return found


# What a file says


def test_a_file_says_when_and_how_it_runs(tmp_path: Path) -> None:
    text = '''"""Clean up.

More of it."""
from datetime import datetime, timedelta, UTC
from zoneinfo import ZoneInfo

schedule = "0 3 * * *"
timezone = ZoneInfo("Europe/Berlin")
timeout: timedelta = timedelta(minutes=10)
starts_at = datetime(2026, 3, 1, tzinfo=UTC)
tags = ("nightly", "rows")
enabled, max_attempts = False, 5
if True:
    params = {"days": 7}

async def run(ctx, days: int = 3): ...
'''
    found = facts(tmp_path, text)
    assert (found.function, found.is_async, found.description) == ("run", True, "Clean up.")
    assert found.signature.parameters == (
        Parameter(name="days", types=("integer",), required=False),
    )
    assert found.options == {
        "schedule": "0 3 * * *",
        "timezone": "Europe/Berlin",
        "timeout": "10m",
        "starts_at": "2026-03-01T00:00:00+00:00",
        "tags": ["nightly", "rows"],
        "enabled": False,
        "max_attempts": 5,
        "params": {"days": 7},
    }
    assert (found.lines["schedule"], found.lines["params"]) == (7, 14)
    assert found.hash == hashlib.sha256(text.encode()).hexdigest()
    assert found.source == text.encode()
    assert found.warnings == ()


def test_the_options_of_a_schedule_are_options_of_a_file() -> None:
    made_by_rota = {"name", "job", "kind", "expr", "overlap_key", "retry", "args"}
    assert set(DEFINITION) - made_by_rota <= set(OPTIONS)


def test_a_default_handler_is_as_good_as_run(tmp_path: Path) -> None:
    found = facts(tmp_path, 'from subprocess import run\ndef default():\n    "Says hello."\n')
    assert (found.function, found.description) == ("default", "Says hello.")


def test_a_handler_may_come_from_a_module_beside_it(tmp_path: Path) -> None:
    write(tmp_path, "_work.py", HANDLER)
    assert facts(tmp_path, "from _work import run\n").function == "run"


def test_an_option_may_be_imported(tmp_path: Path) -> None:
    write(tmp_path, "_common.py", "owner = 'us'\nqueue = 'slow'\n")
    assert facts(tmp_path, f"from _common import owner\n{HANDLER}").options == {"owner": "us"}


def test_no_schedule_is_said_as_false(tmp_path: Path) -> None:
    assert facts(tmp_path, f"schedule = False\n{HANDLER}").options == {"schedule": False}


def test_a_module_of_an_options_name_is_not_an_option(tmp_path: Path) -> None:
    found = facts(tmp_path, f"import queue\nfrom time import *\nevery = len\n{HANDLER}")
    assert found.options == {}


def test_a_misspelt_option_is_told(tmp_path: Path) -> None:
    text = f"SCHEDULE = ''\nshedule = '@daily'\n\ntimout = 3\nTIMEOUT = 5\n{HANDLER}"
    assert facts(tmp_path, text).warnings == (
        "line 1: 'SCHEDULE' is not an option; did you mean 'schedule'?",
        "line 2: 'shedule' is not an option; did you mean 'schedule'?",
        "line 4: 'timout' is not an option; did you mean 'timeout'?",
    )


def test_ordinary_names_are_not_misspelt_options(tmp_path: Path) -> None:
    text = "timeouts = 3\ntargets = [1]\n_delays = 1\ndays = 2\ndef run(): return timeouts\n"
    assert facts(tmp_path, text).warnings == ()


def test_a_context_by_another_name_is_told(tmp_path: Path) -> None:
    (told,) = facts(tmp_path, "def run(context): ...\n").warnings
    assert told.startswith("line 1: 'context' is an argument of the job; call it ctx")


def test_a_file_may_declare_its_encoding(tmp_path: Path) -> None:
    found = facts(tmp_path, b"# coding: latin-1\nowner = 'J\xf6rg'\ndef run(): ...\n")
    assert found.options == {"owner": "J\u00f6rg"}


# What is wrong with it


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("schedule = '@daily'\ndef run(ctx):\n    x = (\n", 3, "'(' was never closed"),
        ("schedule = '@daily'\nimport nowhere_at_all\n", 2, "No module named 'nowhere_at_all'"),
        ("\nimport cleanup\nprint(cleanup.missing)\n", 3, "has no attribute 'missing'"),
        ("import sys\nsys.exit('no')\n", 2, "it ends the process when it is imported"),
        ("raise KeyboardInterrupt\n", 1, "KeyboardInterrupt"),
        ("class Odd(Exception):\n    def __str__(self): 1/0\nraise Odd\n", 3, "Odd: its text"),
        ("x = 1\n", None, "it has no handler; write `def run(ctx):`, or begin"),
        ("run = 5\n", 1, "run is not a function"),
        ("from subprocess import run\n", None, "it has no handler"),
        ("def run(): ...\n\ndef default(): ...\n", 3, "it has both run and default"),
        ("\ndef run(*args): ...\n", 2, "takes *args by position"),
        ("def run(ctx, /): ...\n", 1, "takes ctx by position"),
        ("def run():\n    yield\n", 1, "is a generator"),
        (f"{HANDLER}timeout = object()\n", 2, "timeout is a object, but timeout is an option"),
        (f"{HANDLER}delay = float('nan')\n", 2, "delay is nan, but delay is an option"),
        (f"{HANDLER}params = {{'a': 'x' * 300_000}}\n", 2, "the limit is 262,144"),
        (b"# fine\n# fine\n\nname = '\xff'\n", 4, "byte 0xff is not utf-8; save the file as UTF-8"),
        (b"name = '\xff'\n", 1, "byte 0xff is not utf-8; save the file as UTF-8"),
        (b"# coding: nonsense\n", 1, "unknown encoding"),
        ("x = 1\0\n", None, "null bytes"),
        ("x = " + "(" * 5_000 + ")" * 5_000 + "\n", None, ""),
    ],
)
def test_what_is_wrong_names_the_file_and_the_line(
    tmp_path: Path, text: str | bytes, line: int | None, told: str
) -> None:
    found = error(tmp_path, text)
    assert told in found.error
    if line is not None:
        assert found.line == line
        assert found.error.startswith(f"{tmp_path}/cleanup.py:{line}: ")


def test_a_traceback_has_the_users_frames_only(tmp_path: Path) -> None:
    write(tmp_path, "_helper.py", "def work():\n    return 1 / 0\n")
    found = error(tmp_path, "import _helper\n_helper.work()\n")
    assert (found.line, found.error.rpartition(": ")[2]) == (2, "division by zero")
    assert "_helper.py" in found.traceback
    assert "rota/executors" not in found.traceback
    assert "importlib" not in found.traceback
    syntax = error(tmp_path, "def run(:\n")
    assert "ast.py" not in syntax.traceback


def test_files_that_cannot_be_read_are_told_apart(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    write(tmp_path, "huge.py", b"#" * (PYTHON_FILE_BYTES + 1))
    paths = [tmp_path / name for name in ("pipe.py", "huge.py", "gone.py")]
    pipe, huge, gone = inspect_files(paths).values()
    assert isinstance(pipe, FileError)
    assert isinstance(huge, FileError)
    assert isinstance(gone, FileError)
    assert pipe.error == f"{tmp_path}/pipe.py: it is not a regular file"
    assert "it has 1,048,577 bytes; a job's Python file may have 1,048,576" in huge.error
    assert gone.error == f"{tmp_path}/gone.py: No such file or directory"


# What it does to others

HARM = {
    "exit": ("import os\nos._exit(3)\n", "exited with code 3"),
    "crash": ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", "SIGSEGV"),
    "loop": ("x = 1\nwhile True: pass\n", ":2: its import does not end"),
    "stubborn": (
        "while True:\n    try:\n        while True: print('x')\n    except BaseException: pass\n",
        "its import did not end within 2s",
    ),
    "channel": ("import os\nos.closerange(3, 64)\n", ""),
}


def test_a_harmful_file_harms_itself_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.executors.inspection.STOP_SECONDS", 3.0)
    paths = []
    for name, (text, _) in HARM.items():
        paths.append(write(tmp_path, f"{name}.py", text))
        paths.append(write(tmp_path, f"after_{name}.py", HANDLER))
    found = inspect_files(paths, timeout=2.0)
    for name, (_, told) in HARM.items():
        harmful = found[tmp_path / f"{name}.py"]
        assert isinstance(harmful, FileError), name
        assert told in harmful.error
        assert isinstance(found[tmp_path / f"after_{name}.py"], FileFacts), name


def test_what_a_file_changes_is_put_back_for_the_next(tmp_path: Path) -> None:
    write(tmp_path, "changes/_util.py", "WHERE = 'changes'\n")
    write(tmp_path, "looks/_util.py", "WHERE = 'looks'\n")
    changes = write(
        tmp_path,
        "changes/job.py",
        "import os, sys, json, _util\n"
        "sys.stdout = None\nsys.stderr = 5\nos.chdir('/')\nos.environ['ODD'] = '1'\n"
        "sys.path.insert(0, '/odd')\nsys.modules['json'] = None\nsys.meta_path.reverse()\n"
        "threaded = __import__('threading').Thread(target=__import__('time').sleep, args=(60,))\n"
        "owner = _util.WHERE\n" + HANDLER,
    )
    looks = write(
        tmp_path,
        "looks/job.py",
        "import os, sys, json, _util\nprint('hello')\nassert sys.stdout\n"
        "owner = repr([_util.WHERE, os.getcwd() == '/', 'ODD' in os.environ, '/odd' in sys.path,"
        " any('rota_job' in name for name in sys.modules if name != __name__)])\n" + HANDLER,
    )
    first, second = inspect_files([changes, looks]).values()
    assert isinstance(first, FileFacts)
    assert isinstance(second, FileFacts), second.error
    assert first.options == {"owner": "changes"}
    assert second.options == {"owner": "['looks', False, False, False, False]"}


def test_a_file_that_forks_answers_once(tmp_path: Path) -> None:
    forks = write(tmp_path, "forks.py", f"import os\npid = os.fork()\n{HANDLER}")
    plain = write(tmp_path, "plain.py", f"owner = 'plain'\n{HANDLER}")
    first, second = inspect_files([forks, plain]).values()
    assert isinstance(first, FileFacts)
    assert isinstance(second, FileFacts)
    assert second.options == {"owner": "plain"}


def test_nothing_is_left_beside_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    write(tmp_path, "package/__init__.py", "")
    write(tmp_path, "package/part.py", "NAME = 'part'\n")
    found = facts(tmp_path, f"from package.part import NAME\nowner = NAME\n{HANDLER}")
    assert found.options == {"owner": "part"}
    assert not list(tmp_path.rglob("__pycache__"))
