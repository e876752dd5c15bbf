"""What type checkers see of jobs and enqueues, and that their options are those of the code."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

import rota
from rota import option_types
from rota.flow.enqueue import Options
from rota.model import policies
from rota.model.options import RETRY_OPTIONS, SCHEDULE_OPTIONS, make_schedule
from rota.model.retry import BACKOFFS
from rota.option_types import EnqueueOptions, JobOptions, ScheduleOptions
from rota.task import DIRECT_OPTIONS
from rota.testing import TestApp
from tests.api import typed_program
from tests.docs.story import blocks
from tests.executors.conftest import make_context

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
PROGRAM = Path(typed_program.__file__)
MARKED = {
    number
    for number, line in enumerate(PROGRAM.read_text("utf-8").splitlines(), 1)
    if line.endswith("# refused")
}
# Pages whose blocks are one program each; those of the guide name their files.
PAGES = ("README.md", "docs/python.md", "docs/typing.md", "docs/migration.md")
GUIDE = ROOT / "docs" / "guide" / "celery-team.md"


def write_pages(folder: Path) -> list[str]:
    """The Python of each page as a module; the guide's files by their names."""
    written = {}
    for page in PAGES:
        told = [block.body for block in blocks(ROOT / page) if block.kind == "python"]
        assert told, page
        written[f"page_{Path(page).stem.lower()}.py"] = "\n\n".join(told)
    for block in blocks(GUIDE):
        if block.kind == "python" and block.path is not None:
            written[block.path] = block.body
    for name, text in written.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return list(written)


def test_mypy_takes_what_is_right_and_refuses_what_is_wrong(tmp_path: Path) -> None:
    shutil.copy(PROGRAM, tmp_path)
    pages = write_pages(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=cache",
         "--explicit-package-bases", "--no-error-summary", PROGRAM.name, *pages],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stderr == ""
    found = re.findall(r"^(\S+):(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    assert [line for line in found if line[0] != PROGRAM.name] == []
    assert {int(number) for _, number, _ in found} == MARKED, done.stdout
    assert len(MARKED) >= 20


@pytest.mark.long
def test_pyright_takes_what_is_right_and_refuses_what_is_wrong(tmp_path: Path) -> None:
    shutil.copy(PROGRAM, tmp_path)
    pages = write_pages(tmp_path)
    settings = {"typeCheckingMode": "standard", "pythonVersion": "3.11"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson",
         PROGRAM.name, *pages],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    found = [
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1, one["message"])
        for one in json.loads(done.stdout)["generalDiagnostics"]
        if one["severity"] == "error"
    ]
    assert [line for line in found if line[0] != PROGRAM.name] == []
    assert {number for _, number, _ in found} == MARKED, found


async def test_what_is_right_runs() -> None:
    context = make_context()
    typed_program.right(context)
    await typed_program.right_in_a_loop()
    runs = typed_program.app.drain()
    assert {run.state for run in runs} == {"succeeded"}
    results: dict[str, list[Any]] = {}
    for run in runs:
        results.setdefault(run.job, []).append(json.loads(run.result or "null"))
    assert results["add"].count(3) == 4
    assert sorted(results["rollup"]) == [
        "rollup monday False", "rollup monday True", "rollup today False",
    ]  # fmt: skip
    assert results["relabel"] == [5]
    assert sorted(results["label"]) == ["a False", "a True"]
    assert results["opened"] == ["a {'b': 1, 'c': []}"]


# Options, as checkers have them and as the code has them


def names(options: Any) -> set[str]:
    return set(get_type_hints(options))


def test_the_options_of_checkers_are_those_of_the_code() -> None:
    of_job = set(inspect.signature(rota.Rota.job).parameters) - {"self", "name", "when"}
    of_schedule = {*SCHEDULE_OPTIONS, *RETRY_OPTIONS}
    assert names(EnqueueOptions) == {*Options.__dataclass_fields__, "connection", "notify"}
    assert names(ScheduleOptions) == of_schedule
    assert names(JobOptions) == of_job | SCHEDULE_OPTIONS
    assert names(EnqueueOptions) > DIRECT_OPTIONS


@pytest.mark.parametrize(
    ("hint", "values"),
    [
        (option_types.Overlap, policies.OVERLAP),
        (option_types.OnError, policies.ON_ERROR),
        (option_types.CatchUp, policies.CATCH_UP),
        (option_types.Dst, policies.DST),
        (option_types.Anchor, policies.ANCHOR),
        (option_types.Isolation, policies.ISOLATION),
        (option_types.Backoff, BACKOFFS),
    ],
)
def test_the_values_of_checkers_are_those_of_the_code(hint: Any, values: Any) -> None:
    assert get_origin(hint) is Literal
    assert set(get_args(hint)) == set(values)


def nullable(options: Any) -> Mapping[str, bool]:
    return {name: type(None) in get_args(hint) for name, hint in get_type_hints(options).items()}


def takes(call: Callable[..., object], *args: object, **options: Any) -> bool:
    try:
        call(*args, **options)
    except rota.Invalid:
        return False
    return True


def test_checkers_take_none_where_the_code_does() -> None:
    def define(**options: Any) -> None:
        TestApp().job("work", **options)(do_nothing)

    every = {"every": "1h"}
    assert nullable(ScheduleOptions) == {
        name: takes(make_schedule, "nightly", "work", every, {name: None})
        for name in names(ScheduleOptions)
    }
    assert nullable(JobOptions) == {
        name: takes(define, **{"schedule": "@hourly", name: None}) for name in names(JobOptions)
    }
    work = TestApp().job("work")(do_nothing)
    assert nullable(EnqueueOptions) == {
        name: takes(lambda **none: work.using(**none).enqueue(), **{name: None})
        for name in names(EnqueueOptions)
    }


def do_nothing() -> None: ...
