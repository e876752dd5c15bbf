"""Run the tests phase by phase and print what each phase cost.

Every phase runs, also after a failure: one run shows everything that is wrong. The exit code is 1
if any phase failed. A phase without tests is not listed. The last line is the sum over all phases.

Phases whose tests wait for processes, leases and pages run beside those that compute; the output of
each is printed when it ends. So the seconds of the phases add up to more than the total, and the
column `cpu` shows which of them keep the processors busy.
"""

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "build" / "tests"  # what each test took, as JUnit; the output of each phase
INSTALL_BUDGET_MINUTES = 3
CHECK_BUDGET_MINUTES = 2
TOTAL_BUDGET_MINUTES = 9  # without the install, on two processors
# Each worker of pytest may start its own PostgreSQL; more of them than this is no faster.
MAX_WORKERS = 4
NO_TESTS_COLLECTED = 5
# A test that its own timeout cannot end, and that holds its whole process, is ended with it after
# this; longer than any timeout of a test that is not a long one.
HUNG_SECONDS = 660


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Folders of tests that share a time budget. The first begins first: what has long files goes
    before what has short ones, so that no file is left alone at the end."""

    name: str
    folders: tuple[str, ...]
    budget_minutes: int
    # How xdist spreads the tests; None runs them one after the other.
    spread: str | None = "loadfile"
    # Its tests wait for processes, leases and pages: so many more at a time than there are cores.
    more: int = 0
    # It waits for most of its time, and runs beside the phases that do not.
    waits: bool = False


PHASES = (
    Phase(
        name="unit and simulation",
        folders=("unit", "simulation"),
        budget_minutes=3,
        spread="worksteal",
    ),
    Phase(name="conformance", folders=("conformance",), budget_minutes=4),
    Phase(
        name="surfaces",
        folders=("docs", "face", "web", "surface", "api"),
        budget_minutes=5,
        more=1,
    ),
    Phase(name="faults", folders=("fault", "executors"), budget_minutes=6, more=1, waits=True),
    Phase(name="jobs.d", folders=("jobsd",), budget_minutes=2, more=1, waits=True),
    Phase(name="browser", folders=("browser",), budget_minutes=3, more=1, waits=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one phase took and found."""

    name: str
    seconds: float
    budget_minutes: int
    cpu_seconds: float | None = None
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def row(self) -> str:
        """One line of the table."""
        late = "  over budget" if self.seconds > self.budget_minutes * 60 else ""
        bad = "  FAILED" if self.failed else ""
        cpu = "" if self.cpu_seconds is None else f"{self.cpu_seconds:.1f}"
        budget = f"{self.budget_minutes} min"
        return f"{self.name:<21}{self.seconds:>9.1f}{cpu:>9}{budget:>11}{late}{bad}"


def main() -> int:
    """Run what the command line asks for; 0 if all of it passed."""
    arguments = read_arguments()
    check_every_folder_has_a_phase()
    if arguments.install_seconds is not None:
        seconds, budget = arguments.install_seconds, INSTALL_BUDGET_MINUTES
        print(Result(name="install", seconds=seconds, budget_minutes=budget).row())
    started = time.monotonic()
    results = run_lanes(*lanes(arguments))
    print_table(results, time.monotonic() - started)
    if arguments.slowest:
        print_slowest(arguments.slowest, [result.name for result in results])
    return 1 if any(result.failed for result in results) else 0


Step = Callable[["Output"], list["Result"]]


def lanes(arguments: argparse.Namespace) -> tuple[list[Step], list[Step]]:
    """What computes, and what waits for most of its time or leaves a processor free."""
    computes: list[Step] = []
    waits: list[Step] = [run_check] if arguments.check else []
    for phase in PHASES:
        if folders := chosen_folders(phase, arguments.folders):
            lane = waits if phase.waits else computes
            lane.append(partial(run_phase, phase, folders, long=arguments.long))
    return computes, waits


def run_lanes(*lanes: Sequence[Step]) -> list[Result]:
    """Each lane one step after the other, the lanes at the same time."""
    busy = [lane for lane in lanes if lane]
    output = Output(straight=len(busy) == 1)

    def run_lane(lane: Sequence[Step]) -> list[Result]:
        return [result for step in lane for result in step(output)]

    with ThreadPoolExecutor(max(1, len(busy))) as pool:
        return [result for results in pool.map(run_lane, busy) for result in results]


class Output:
    """What steps print: straight to the terminal, or whole when a step has ended, so that steps at
    the same time do not mix their lines."""

    def __init__(self, *, straight: bool) -> None:
        self._straight = straight
        self._lock = threading.Lock()

    def run(self, name: str, command: Sequence[str], **options: Any) -> tuple[int, float, float]:
        """The exit code, the seconds, and those of processors, with all processes it waited for."""
        REPORTS.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        if self._straight:
            announce(name)
            code, cpu = wait(subprocess.Popen(command, cwd=ROOT, **options))
            return code, time.monotonic() - started, cpu
        print(f"... {name}", flush=True)
        path = REPORTS / f"{file_name(name)}.log"
        with path.open("wb") as log:
            process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, **options)
            code, cpu = wait(process)
        with self._lock:
            announce(name)
            print(path.read_text(errors="replace"), flush=True)
        return code, time.monotonic() - started, cpu


def wait(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    """The exit code, and what the process and all that it waited for used of the processors."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime


def file_name(name: str) -> str:
    return name.replace(" ", "-")


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [folder for phase in PHASES for folder in phase.folders]
    parser.add_argument("folders", nargs="*", metavar="folder", help=", ".join(names))
    parser.add_argument("--long", action="store_true", help="run the long tests too")
    parser.add_argument("--check", action="store_true", help="begin with make check")
    parser.add_argument("--slowest", type=int, metavar="N", help="end with the N slowest tests")
    parser.add_argument("--install-seconds", type=float, help="what the install before took")
    arguments = parser.parse_args()
    if unknown := set(arguments.folders) - set(names):
        parser.error(f"no such folder of tests: {', '.join(sorted(unknown))}")
    return arguments


def check_every_folder_has_a_phase() -> None:
    """Tests that no phase runs would be green for ever."""
    known = {folder for phase in PHASES for folder in phase.folders}
    found = {
        path.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").rglob("test_*.py")
    }
    if lost := found - known:
        sys.exit(f"tests that no phase runs: {', '.join(sorted(lost))}; add them in {__file__}")


def chosen_folders(phase: Phase, asked: Sequence[str]) -> list[Path]:
    """The phase's folders that are asked for and hold tests."""
    wanted = [name for name in phase.folders if name in asked or not asked]
    folders = [ROOT / "tests" / name for name in wanted]
    return [folder for folder in folders if any(folder.rglob("test_*.py"))]


def run_check(output: Output) -> list[Result]:
    code, seconds, cpu = output.run("check", ["make", "--no-print-directory", "check"])
    return [
        Result(
            name="check",
            seconds=seconds,
            cpu_seconds=cpu,
            budget_minutes=CHECK_BUDGET_MINUTES,
            failed=1 if code else 0,
        )
    ]


def run_phase(phase: Phase, folders: Sequence[Path], output: Output, *, long: bool) -> list[Result]:
    """Run pytest on the folders; nothing if all their tests are deselected."""
    report = REPORTS / f"{file_name(phase.name)}.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}"]
    if phase.spread is not None:
        workers = min((os.cpu_count() or 1) + phase.more, MAX_WORKERS)
        # Else the files with the fewest tests came last, and those have the longest ones.
        command += ["-n", str(workers), f"--dist={phase.spread}", "--no-loadscope-reorder"]
    if long:
        command += ["-m", "", "--hypothesis-profile=long"]
    else:
        command += ["-o", f"faulthandler_timeout={HUNG_SECONDS}"]
        command += ["-o", "faulthandler_exit_on_timeout=true"]
    # Without bytecode each of a thousand processes compiles Rota again, and pytest all its tests.
    environment = {**os.environ}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    code, seconds, cpu = output.run(phase.name, [*command, *map(str, folders)], env=environment)
    if code == NO_TESTS_COLLECTED:
        return []
    total, failed, skipped = read_report(report)
    # Pytest may end badly without a failed test: a broken conftest, a crash. That is a failure.
    if code and not failed:
        total, failed = total + 1, 1
    return [
        Result(
            name=phase.name,
            seconds=seconds,
            cpu_seconds=cpu,
            budget_minutes=phase.budget_minutes,
            passed=total - failed - skipped,
            failed=failed,
            skipped=skipped,
        )
    ]


def read_report(report: Path) -> tuple[int, int, int]:
    """Tests in total, failed and skipped, from a JUnit file; zeros if pytest wrote none."""
    if not report.exists():
        return 0, 0, 0
    total = failed = skipped = 0
    for case in ElementTree.parse(report).iter("testcase"):
        outcomes = {child.tag for child in case}
        total += 1
        failed += bool(outcomes & {"failure", "error"})
        skipped += bool(outcomes & {"skipped"}) and not outcomes & {"failure", "error"}
    return total, failed, skipped


def announce(name: str) -> None:
    print(f"\n=== {name}", flush=True)


def print_table(results: Sequence[Result], seconds: float) -> None:
    print(f"\n{'phase':<21}{'seconds':>9}{'cpu':>9}{'budget':>11}")
    for result in results:
        print(result.row())
    cpu = sum(result.cpu_seconds or 0 for result in results)
    total = Result(
        name="total", seconds=seconds, cpu_seconds=cpu, budget_minutes=TOTAL_BUDGET_MINUTES
    )
    print(total.row())
    passed, failed, skipped = (
        sum(getattr(result, outcome) for result in results)
        for outcome in ("passed", "failed", "skipped")
    )
    print(f"\n{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))


def print_slowest(number: int, phases: Sequence[str]) -> None:
    """By the reports of the phases, preparation and end of each test included."""
    cases = [
        (float(case.get("time", 0)), f"{case.get('classname')}::{case.get('name')}")
        for phase in phases
        if (report := REPORTS / f"{file_name(phase)}.xml").exists()
        for case in ElementTree.parse(report).iter("testcase")
    ]
    print(f"\nslowest of {len(cases)} tests, {sum(seconds for seconds, _ in cases):.0f} s in all")
    for seconds, name in sorted(cases, reverse=True)[:number]:
        print(f"{seconds:>9.1f}  {name}")


if __name__ == "__main__":
    sys.exit(main())
