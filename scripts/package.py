"""Build sdist and wheel, install the wheel with each extra into an empty environment, and try it.

Prints a table: how many packages, how large, and what works. Needs the package index. Exits with 1
if anything that should work does not, or if the core has outgrown its limits.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
# Of the core, Rota itself not counted; the size is that of the files of all packages.
MOST_PACKAGES, MOST_MB = 10, 15
# The extra that brings each part beyond SQLite; "" is the core.
EXTRAS = ("", "postgres", "duckdb", "web", "otel", "all")
MEASURE = """
import importlib.metadata, json
files = [file for one in importlib.metadata.distributions() for file in one.files or ()]
sizes = {str(file): file.locate().stat().st_size for file in files if file.locate().exists()}
print(json.dumps({
    "packages": sorted(one.name for one in importlib.metadata.distributions()),
    "bytes": sum(size for name, size in sizes.items() if not name.endswith(".pyc")),
    "bytecode": sum(size for name, size in sizes.items() if name.endswith(".pyc")),
}))
"""
HELLO = """schedule = False


def run(ctx):
    return "hello"
"""
USE = """
import pathlib, rota
assert (pathlib.Path(rota.__file__).parent / "py.typed").exists()
app = rota.Rota()
@app.job
def hello(): pass
assert callable(hello) and [getattr(rota, name) for name in rota.__all__]
"""


@dataclass
class Trial:
    """What one environment holds, and how each check went."""

    extra: str
    packages: list[str]
    megabytes: float
    with_bytecode: float
    checks: dict[str, str] = field(default_factory=dict)

    def has(self, part: str) -> bool:
        return self.extra in (part, "all")


def main() -> int:
    sys.path.insert(0, str(ROOT))
    from tests.support.postgres import open_server

    with ExitStack() as stack:
        wheel = build()
        server = stack.enter_context(open_server())
        url = stack.enter_context(server.database())
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        trials = [try_extra(extra, wheel, place / (extra or "core"), url) for extra in EXTRAS]
    say_table(trials)
    core = trials[0]
    besides = len(core.packages) - 1
    small = besides <= MOST_PACKAGES and core.megabytes <= MOST_MB
    print(
        f"\nThe core: {besides} packages besides Rota (limit: {MOST_PACKAGES}), "
        f"{core.megabytes:.1f} MB (limit: {MOST_MB}; with the bytecode that pip makes "
        f"{core.with_bytecode:.1f} MB){'' if small else ': OVER THE LIMIT'}"
    )
    good = all(told == "ok" for trial in trials for told in trial.checks.values())
    return 0 if good and small else 1


def build() -> Path:
    """The wheel, made from the sdist in a clean environment: so nothing is missing in the sdist."""
    shutil.rmtree(DIST, ignore_errors=True)
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist"]
    run(command, cwd=ROOT)
    (sdist,) = DIST.glob("*.tar.gz")
    run([*pip(), "wheel", "--no-deps", "--wheel-dir", str(DIST), str(sdist)], cwd=ROOT)
    (wheel,) = DIST.glob("*.whl")
    check_reproducible(wheel)
    print(f"{sdist.name} {sdist.stat().st_size / 1e6:.1f} MB")
    print(f"{wheel.name} {wheel.stat().st_size / 1e6:.1f} MB\n")
    return wheel


def check_reproducible(wheel: Path) -> None:
    """A wheel that is built again, from the folder and later, is the same file."""
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
        run([*command, "--directory", place], cwd=ROOT)
        (again,) = Path(place).glob("*.whl")
        if again.read_bytes() != wheel.read_bytes():
            raise SystemExit(f"two builds of {wheel.name} differ")


def try_extra(extra: str, wheel: Path, place: Path, postgres: str) -> Trial:
    environment = place / "environment"
    # Without pip: what is in it is what Rota brought along.
    run([sys.executable, "-m", "venv", "--without-pip", str(environment)])
    python = environment / "bin" / "python"
    asked = f"{wheel}[{extra}]" if extra else str(wheel)
    run([*pip(), "--python", str(python), "install", asked])
    told = json.loads(run([str(python), "-c", MEASURE], cwd=place))
    trial = Trial(
        extra=extra,
        packages=told["packages"],
        megabytes=told["bytes"] / 1e6,
        with_bytecode=(told["bytes"] + told["bytecode"]) / 1e6,
    )
    rota = str(environment / "bin" / "rota")
    checks: dict[str, Callable[[], None]] = {
        "help": lambda: check(run([rota, "--help"], cwd=place).startswith("Usage: rota")),
        "import": lambda: check(run([str(python), "-c", USE], cwd=place) == ""),
        "journey": lambda: journey(rota, place / "project", trial),
        "sqlite": lambda: start(rota, place, "sqlite:///rota.db", web=trial.has("web")),
        "postgres": lambda: store(trial, rota, place, "postgres", postgres),
        "duckdb": lambda: store(trial, rota, place, "duckdb", "duckdb:///rota.duckdb"),
        "web": lambda: None if trial.has("web") else refused(rota, place, "web", "--only", "web"),
    }
    for name, one in checks.items():
        try:
            one()
        except (Exception, SystemExit) as fault:  # the table shows all that is wrong
            trial.checks[name] = "FAILED"
            print(f"{extra or 'core'}, {name}: {fault}", file=sys.stderr)
        else:
            trial.checks[name] = "ok"
    return trial


def journey(rota: str, place: Path, trial: Trial) -> None:
    """The first five minutes: init, check, up, run, sql."""
    run([rota, "init", str(place)])
    (place / "jobs.d" / "hello.py").write_text(HELLO)
    output = run_both([rota, "check"], cwd=place)
    check("0 errors" in output, output)
    # What the jobs of `rota init` need is asked for where it is missing, and only there.
    check(("needs duckdb" in output) is not trial.has("duckdb"), output)
    with running(rota, place, "sqlite:///rota.db"):
        told = run_both([rota, "run", "hello", "--wait"], cwd=place)
        check("succeeded" in told, told)
        if trial.has("duckdb"):
            told = run_both([rota, "run", "visits", "--wait"], cwd=place)
            check("succeeded" in told, told)
        told = run(
            [rota, "sql", "-c", "SELECT state FROM runs WHERE job_name = 'hello'"], cwd=place
        )
        check("succeeded" in told, told)


def store(trial: Trial, rota: str, place: Path, part: str, url: str) -> None:
    """With its extra the store works; without, the way to it is told."""
    if trial.has(part):
        start(rota, place, url, web=trial.has("web"))
    else:
        refused(rota, place, part, "--database", url)


def start(rota: str, place: Path, url: str, *, web: bool) -> None:
    """`rota up` says what it runs, answers where it has a dashboard, and leaves at Ctrl-C."""
    with running(rota, place, url) as screen:
        if web:
            # The listening socket is there; who answers starts a moment later.
            with urllib.request.urlopen(f"{screen['web']['url']}/", timeout=20) as page:
                check(b"<html" in page.read())
        else:
            check(f"{wheel_of()}[web]'" in screen["web"]["note"], screen["web"]["note"])


@contextmanager
def running(rota: str, place: Path, url: str) -> Iterator[dict[str, Any]]:
    """A `rota up`, with what its screen says."""
    command = [rota, "up", "--json", "--port", "0", "--database", url]
    with subprocess.Popen(
        command, cwd=place, env=clean(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            lines = []
            for line in process.stdout:
                lines.append(line)
                if line == "}\n":
                    break
            else:
                raise AssertionError(process.stderr.read())
            yield json.loads("".join(lines))
        finally:
            process.send_signal(signal.SIGINT)
        check(process.wait(60) == 0)


def refused(rota: str, place: Path, part: str, *args: str) -> None:
    """Exit code 2 and one line that says what to install."""
    done = subprocess.run(
        [rota, "up", *args], cwd=place, env=clean(), capture_output=True, text=True, timeout=60
    )
    check(done.returncode == 2, done.stderr)
    check(f"pip install '{wheel_of()}[{part}]'" in done.stderr, done.stderr)
    check(done.stderr.count("\n") == 1, done.stderr)


def wheel_of() -> Path:
    (wheel,) = DIST.glob("*.whl")
    return wheel


def check(good: bool, told: str = "not as it should be") -> None:
    if not good:
        raise AssertionError(told)


def pip() -> list[str]:
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def clean() -> dict[str, str]:
    """Nothing of this checkout, and no settings of Rota."""
    return {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONPATH" and not name.startswith("ROTA_")
    }


def run(command: Sequence[str], cwd: Path | None = None) -> str:
    return _done(command, cwd).stdout


def run_both(command: Sequence[str], cwd: Path | None = None) -> str:
    """The answer and the notes beside it."""
    done = _done(command, cwd)
    return done.stdout + done.stderr


def _done(command: Sequence[str], cwd: Path | None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=cwd, env=clean(), capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done


def say_table(trials: Sequence[Trial]) -> None:
    """Beside the figures: `ok` where the part works, or where its absence is told as it should."""
    names = list(trials[0].checks)
    heads = ["extra", "packages", "MB", "on disk", *names]
    print("  ".join(f"{head:>8}" for head in heads))
    for trial in trials:
        cells = [
            trial.extra or "core",
            str(len(trial.packages)),
            f"{trial.megabytes:.1f}",
            f"{trial.with_bytecode:.1f}",
            *(trial.checks[name] for name in names),
        ]
        print("  ".join(f"{cell:>8}" for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
