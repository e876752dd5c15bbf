"""Compare what two folders of sources install, load and hold: packages, times, memory, lines.

    python benchmarks/parts.py BEFORE AFTER [--rounds 40] [--python /usr/bin/python3]

Each folder is built and installed into empty environments with the versions of its own lock. Needs
the package index. Times are processor time, which other programs on the machine change least; they
are medians over rounds, and in each round both sides and bare Python run one after the other.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

IDLE_SECONDS = 10.0
LONGEST_SECONDS = 60.0
# What is measured as a multiple of `python -c pass`.
COMMANDS = {
    "import rota": ("python", "-c", "import rota"),
    "rota --version": ("rota", "--version"),
    "rota --help": ("rota", "--help"),
    "rota jobs --help": ("rota", "jobs", "--help"),
    "rota next '0 3 * * *'": ("rota", "next", "0 3 * * *"),
    "rota jobs": ("rota", "jobs"),
    "rota runs --limit=5": ("rota", "runs", "--limit=5"),
}
BARE = ("python", "-c", "pass")
ROOMS = ("cli", "web")
JOBS = 10
MEASURE = """
import importlib.metadata, json, pathlib, rota
def size(distribution):
    files = {str(file.locate()) for file in distribution.files or () if file.suffix != ".pyc"}
    return sum(pathlib.Path(file).stat().st_size for file in files if pathlib.Path(file).exists())
print(json.dumps({
    "sizes": {one.name: size(one) for one in importlib.metadata.distributions()},
    "folder": str(pathlib.Path(rota.__file__).parent),
}))
"""
JOB = "schedule = False\n\n\ndef run(ctx):\n    return 1\n"


@dataclass(frozen=True, kw_only=True)
class Installation:
    """The environments of one folder of sources: the core alone, and with the extra `web`."""

    core: Path
    web: Path
    folder: Path

    def command(self, line: tuple[str, ...]) -> list[str]:
        return [str(self.web / "bin" / line[0]), *line[1:]]


@dataclass(frozen=True)
class Memory:
    """MB that the process shares with no other, and the processor time until then."""

    idle: float
    after_pages: float
    start_seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--memory-rounds", type=int, default=5)
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sides = [
            install(source.resolve(), Path(folder, name), options.python)
            for name, source in (("before", options.before), ("after", options.after))
        ]
        rows = [*sizes(sides), *memory(sides, options.memory_rounds)]
        rows += times(sides, options.rounds)
    print("| | before | after | after / before |\n|---|---|---|---|")
    for row in rows:
        print("|", " | ".join(row), "|")


def install(source: Path, folder: Path, python: str) -> Installation:
    folder.mkdir()
    wheels = folder / "wheels"
    run([*pip(), "wheel", "--no-deps", "--wheel-dir", str(wheels), str(source)])
    (wheel,) = wheels.glob("*.whl")
    for extra in ("core", "web"):
        environment = folder / extra
        run([python, "-m", "venv", "--without-pip", str(environment)])
        requirement = str(wheel) if extra == "core" else f"{wheel}[{extra}]"
        lock = str(source / "requirements-dev.lock")
        to = ("--python", str(environment / "bin" / "python"))
        run([*pip(), *to, "install", "--constraint", lock, requirement])
    project = folder / "project"
    (project / "jobs.d").mkdir(parents=True)
    for number in range(JOBS):
        (project / "jobs.d" / f"job_{number}.py").write_text(JOB)
    return Installation(core=folder / "core", web=folder / "web", folder=project)


def sizes(sides: list[Installation]) -> Iterator[list[str]]:
    """Packages besides Rota, their MB, and lines of Rota's own Python."""
    core = [measured(side.core) for side in sides]
    with_web = [measured(side.web) for side in sides]
    for title, parts in (("the core", core), ("with `[web]`", with_web)):
        others = [
            {name: size for name, size in part["sizes"].items() if name != "rota"} for part in parts
        ]
        yield row(f"packages of {title}, besides Rota", *map(len, others), form="{:.0f}")
        yield row(
            f"MB of {title}, with Rota", *(sum(part["sizes"].values()) / 1e6 for part in parts)
        )
        yield row(f"MB of {title}, besides Rota", *(sum(part.values()) / 1e6 for part in others))
    folders = [Path(part["folder"]) for part in with_web]
    for room in ROOMS:
        yield row(f"lines of `{room}/`", *(lines(folder / room) for folder in folders), form="{:,}")
    yield row("lines of Python in all", *map(lines, folders), form="{:,}")


def measured(environment: Path) -> dict[str, Any]:
    done: dict[str, Any] = json.loads(run([str(environment / "bin" / "python"), "-c", MEASURE]))
    return done


def lines(folder: Path) -> int:
    return sum(len(path.read_text("utf-8").splitlines()) for path in folder.rglob("*.py"))


def times(sides: list[Installation], rounds: int) -> Iterator[list[str]]:
    """As multiples of bare Python of the same environment and the same round."""
    for side in sides:
        register_jobs(side)
        for command in (BARE, *COMMANDS.values()):
            seconds(side, command)
    results: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for number in range(rounds):
        order = (0, 1) if number % 2 else (1, 0)
        bare = {index: seconds(sides[index], BARE) for index in order}
        for name, command in COMMANDS.items():
            for index in order:
                taken = seconds(sides[index], command)
                results.setdefault((name, index), []).append((taken, taken / bare[index]))
    for name in COMMANDS:
        before, after = results[name, 0], results[name, 1]
        pairs = [new / old for (old, _), (new, _) in zip(before, after, strict=True)]
        cells = [
            f"{median(multiple for _, multiple in side):.1f} times "
            f"({median(taken for taken, _ in side) * 1e3:.0f} ms)"
            for side in (before, after)
        ]
        yield [f"`{name}`", *cells, f"{median(pairs):.2f}"]


def register_jobs(side: Installation) -> None:
    with serving(side, str(side.folder)) as (_, url):
        until = time.monotonic() + LONGEST_SECONDS
        while len(json.loads(fetch(f"{url}/api/v1/jobs"))["items"]) < JOBS:
            if time.monotonic() > until:
                raise SystemExit("the folder of jobs is not there")
            time.sleep(0.1)


def seconds(side: Installation, command: tuple[str, ...]) -> float:
    """Processor time of one process: the kernel knows the sum, and only guesses its two parts."""
    process = subprocess.Popen(
        side.command(command), cwd=side.folder, env=clean(), stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def memory(sides: list[Installation], rounds: int) -> Iterator[list[str]]:
    results: list[list[Memory]] = [[], []]
    for _ in range(rounds):
        for side, processes in zip(sides, results, strict=True):
            processes.append(one_process(side))
    kinds: dict[str, Callable[[Memory], float]] = {
        "private memory of an idle `rota up`, MB": lambda process: process.idle,
        "the same after the dashboard and openapi.json, MB": lambda process: process.after_pages,
        "processor time of `rota up` to 10 s after its start, ms": lambda process: (
            process.start_seconds * 1e3
        ),
    }
    for title, value in kinds.items():
        yield row(title, *(median(map(value, processes)) for processes in results))


def one_process(side: Installation) -> Memory:
    """In an empty folder, off a terminal, with scheduler, worker, folder of jobs and web."""
    with tempfile.TemporaryDirectory() as folder, serving(side, folder) as (process, url):
        time.sleep(IDLE_SECONDS)
        idle, started = private_mb(process.pid), processor_seconds(process.pid)
        read_dashboard(url)
        return Memory(idle, private_mb(process.pid), started)


@contextmanager
def serving(side: Installation, folder: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = side.command(("rota", "up", "--json", "--port", "0"))
    process = subprocess.Popen(
        command, cwd=folder, env=clean(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        screen = []
        for line in process.stdout:
            screen.append(line)
            if line == "}\n":
                break
        yield process, json.loads("".join(screen))["web"]["url"]
    finally:
        process.terminate()
        if process.wait(LONGEST_SECONDS) != 0:
            raise SystemExit(f"`rota up` ended with {process.returncode}")


def read_dashboard(url: str) -> None:
    """As a browser does: the page with its files, six at once, and what screens ask for first."""
    page = fetch(url + "/").decode()
    paths = sorted(set(re.findall(r'"(/static/[^"]+\.\w+)"', page)))
    assert len(paths) > 10, page
    asked = ("overview", "timeline", "schedules", "runs", "jobs", "queues", "workers")
    with ThreadPoolExecutor(6) as pool:
        for _ in pool.map(lambda path: fetch(url + path), paths):
            pass
        for _ in pool.map(lambda path: fetch(f"{url}/api/v1/{path}"), asked):
            pass
    fetch(f"{url}/api/v1/openapi.json")


def fetch(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=LONGEST_SECONDS) as answer:
        content: bytes = answer.read()
        return gzip.decompress(content) if answer.headers["Content-Encoding"] else content


def private_mb(process: int) -> float:
    text = Path(f"/proc/{process}/smaps_rollup").read_text()
    return sum(int(kb) for kb in re.findall(r"^Private_\w+:\s+(\d+) kB", text, re.MULTILINE)) / 1024


def processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def row(title: str, before: float, after: float, *, form: str = "{:.1f}") -> list[str]:
    return [title, form.format(before), form.format(after), f"{after / before:.2f}"]


def pip() -> list[str]:
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def clean() -> dict[str, str]:
    """No settings of Rota, and no checkout."""
    return {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONPATH" and not name.startswith("ROTA_")
    }


def run(command: list[str], cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=clean(), capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
