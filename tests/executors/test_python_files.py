"""File jobs: which text runs, what lies beside it, and what is left when it has changed."""

from __future__ import annotations

import gc
import hashlib
import json
import linecache
import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from rota.executors.loading import Loader
from rota.executors.python import PythonExecutor
from rota.model.job import Job
from tests.executors.conftest import Begin, make_context


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def job(path: Path, text: str, *, function: str = "run", isolation: str = "process") -> Job:
    version = hashlib.sha256(text.encode()).hexdigest()
    spec = {"file": str(path), "function": function, "version": version}
    return Job(name=f"files/{path.parent.name}.{path.stem}", source="file", spec=spec,
               isolation=isolation)  # fmt: skip


def call(executor: PythonExecutor, definition: Job, **args: Any) -> Any:
    context = make_context(
        args=args, job=definition.name, spec=dict(definition.spec), isolation=definition.isolation
    )
    outcome = executor.run(context)
    assert outcome.kind == "succeeded", outcome.error
    return json.loads(outcome.result or "null")


HANDLERS = {
    "def run(ctx): return ctx.job": "run",
    "async def run(ctx): return ctx.job": "run",
    "def default(ctx): return ctx.job": "default",
    "class C:\n    async def __call__(self, ctx): return ctx.job\ndefault = C()": "default",
}


@pytest.mark.parametrize(("text", "function"), HANDLERS.items())
@pytest.mark.parametrize("isolation", ["process", "thread"])
def test_each_form_of_a_handler_runs(
    executor: PythonExecutor, tmp_path: Path, text: str, function: str, isolation: str
) -> None:
    path = write(tmp_path, "job.py", text)
    made = job(path, text, function=function, isolation=isolation)
    assert call(executor, made) == made.name


def test_a_file_handler_takes_arguments(executor: PythonExecutor, tmp_path: Path) -> None:
    text = "from datetime import date\ndef run(day: date, *, times=2): return [day.year, times]\n"
    made = job(write(tmp_path, "job.py", text), text)
    assert call(executor, made, day="2026-03-01") == [2026, 2]


@pytest.mark.parametrize("isolation", ["process", "thread"])
def test_the_kept_text_runs_whatever_is_in_the_file(
    executor: PythonExecutor, tmp_path: Path, isolation: str
) -> None:
    good = "def run(): return 'good'\n"
    path = write(tmp_path, "job.py", good)
    first = job(path, good, isolation=isolation)
    executor.keep(first, good.encode())
    path.write_text("def run(): retu")  # half of it is written
    assert call(executor, first) == "good"
    better = "def run(): return 'better'\n"
    second = job(path, better, isolation=isolation)
    executor.keep(second, better.encode())
    assert call(executor, second) == "better"
    assert call(executor, first) == "good"  # it was claimed a moment before
    path.unlink()
    assert call(executor, second) == "better"


def test_an_error_shows_the_text_that_ran(executor: PythonExecutor, tmp_path: Path) -> None:
    text = "def run():\n    raise KeyError('of the text')\n"
    path = write(tmp_path, "job.py", text)
    made = job(path, text)
    executor.keep(made, text.encode())
    path.write_text("\n# another text\n")
    outcome = executor.run(make_context(job=made.name, spec=dict(made.spec)))
    assert "    raise KeyError('of the text')" in str(outcome.error)


HELPED = "import os, _helper\ndef run(): return [_helper.VALUE, os.getpid()]\n"


@pytest.mark.usefixtures("alone")
def test_a_module_beside_the_file_is_loaded_again_when_it_has_changed(
    executor: PythonExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    path = write(tmp_path, "job.py", HELPED)
    helper = write(tmp_path, "_helper.py", "VALUE = 1\n")
    stamp = os.stat(helper).st_mtime
    made = job(path, HELPED)
    executor.keep(made, HELPED.encode())
    first = call(executor, made)
    path.write_text("def run(): retu")  # the text that runs is still the kept one
    helper.write_text("VALUE = 2\n")  # the same size,
    os.utime(helper, (stamp, stamp + 0.1))  # and the same second
    second = call(executor, made)
    assert ([first[0], second[0]], first[1]) == ([1, 2], second[1])
    assert not list(tmp_path.rglob("__pycache__"))


@pytest.mark.usefixtures("alone")
def test_two_folders_have_modules_of_the_same_name(
    executor: PythonExecutor, tmp_path: Path
) -> None:
    text = (
        "import os, util.part\n"
        "def run():\n    import _late\n    return [util.part.NAME, _late.NAME, os.getpid()]\n"
    )
    made = []
    for name in ("one", "two"):
        write(tmp_path, f"{name}/util/__init__.py", "")
        write(tmp_path, f"{name}/util/part.py", f"NAME = '{name}'\n")
        write(tmp_path, f"{name}/_late.py", f"NAME = 'late {name}'\n")
        made.append(job(write(tmp_path, f"{name}/job.py", text), text))
    one, two, again = (call(executor, made[number]) for number in (0, 1, 0))
    assert one[:2] == again[:2] == ["one", "late one"]
    assert two[:2] == ["two", "late two"]
    assert one[2] == two[2] == again[2]


def test_a_file_does_not_hide_what_is_installed(executor: PythonExecutor, tmp_path: Path) -> None:
    write(tmp_path, "email.py", "raise RuntimeError\n")
    text = "import email\ndef run(): return email.__name__\n"
    assert call(executor, job(write(tmp_path, "job.py", text), text)) == "email"


def test_a_text_without_its_handler_is_a_failure(begin: Begin, tmp_path: Path) -> None:
    path = write(tmp_path, "job.py", "x = 1\n")
    error = str(begin(job="none", spec={"file": str(path)}).outcome.error)
    assert f"{path} has no 'run'" in error


def test_a_hundred_reloads_leave_nothing_behind(tmp_path: Path) -> None:
    """In one process, as a child does it."""
    loader, modules = Loader(), []

    def reload(number: int) -> None:
        package = write(tmp_path, "package/__init__.py", f"NUMBER = {number}\n")
        text = f"from package import NUMBER\nODD = {number % 2}\n"
        helper = write(tmp_path, "_helper.py", text)
        for path in (package, helper):  # many kernels have one time for all of a few milliseconds
            os.utime(path, ns=(number, number))
        text = f"import _helper\nthis = {number}\ndef run(): return (_helper.NUMBER, this)\n"
        path = write(tmp_path, "job.py", text)
        # Every other time only what lies beside it changes.
        made = job(path, "same" if number % 3 else text)
        handler = loader.load(made, made.version, text.encode())
        with loader.around(made):
            assert handler.function() == (number, number)
            modules.append(sys.modules["_helper"])

    def sizes() -> list[int]:
        gc.collect()
        ours = [one for one in gc.get_objects() if isinstance(one, types.ModuleType)]
        cached = [name for name in linecache.cache if name.startswith(str(tmp_path))]
        return [len(sys.modules), len(sys.path), len(sys.meta_path), len(cached), len(ours),
                len(sys.path_importer_cache)]  # fmt: skip

    reload(0)
    modules.clear()
    before, path = sizes(), list(sys.path)
    for number in range(1, 101):
        reload(number)
        modules.clear()
    assert sizes() == before
    assert sys.path == path
    assert not [name for name in sys.modules if name in ("_helper", "package")]
