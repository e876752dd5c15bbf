"""Run the tests phase by phase and say what each phase cost.

Every phase runs, also after a failure: one run shows everything that is wrong. The exit code is 1
if any phase failed. A phase without tests is not listed. The last line is the sum over all phases.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "build" / "tests"  # what each test took, as JUnit tells it
INSTALL_BUDGET_MINUTES = 3
CHECK_BUDGET_MINUTES = 1
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


PHASES = (
    Phase(
        name="unit and simulation",
        folders=("unit", "simulation"),
        budget_minutes=2,
        spread="worksteal",
    ),
    Phase(name="conformance", folders=("conformance",), budget_minutes=4),
    Phase(name="faults", folders=("fault", "executors"), budget_minutes=5, more=2),
    Phase(name="jobs.d", folders=("jobsd",), budget_minutes=2, more=2),
    Phase(
        name="surfaces",
        folders=("docs", "face", "web", "surface", "api"),
        budget_minutes=3,
        more=2,
    ),
    Phase(name="browser", folders=("browser",), budget_minutes=3, more=1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one phase took and found."""

    name: str
    seconds: float
    budget_minutes: int
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def row(self) -> str:
        """One line of the table."""
        late = "  over budget" if self.seconds > self.budget_minutes * 60 else ""
        bad = "  FAILED" if self.failed else ""
        return f"{self.name:<21}{self.seconds:>9.1f}{self.budget_minutes:>9} min{late}{bad}"


def main() -> int:
    """Run what the command line asks for; 0 if all of it passed."""
    arguments = read_arguments()
    check_every_folder_has_a_phase()
    results = []
    if arguments.install_seconds is not None:
        seconds = arguments.install_seconds
        budget = INSTALL_BUDGET_MINUTES
        results.append(Result(name="install", seconds=seconds, budget_minutes=budget))
    if arguments.check:
        results.append(run_check())
    for phase in PHASES:
        if folders := chosen_folders(phase, arguments.folders):
            results.extend(run_phase(phase, folders, long=arguments.long))
    print_table(results)
    return 1 if any(result.failed for result in results) else 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [folder for phase in PHASES for folder in phase.folders]
    parser.add_argument("folders", nargs="*", metavar="folder", help=", ".join(names))
    parser.add_argument("--long", action="store_true", help="run the long tests too")
    parser.add_argument("--check", action="store_true", help="begin with make check")
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


def run_check() -> Result:
    announce("check")
    started = time.monotonic()
    code = subprocess.run(["make", "--no-print-directory", "check"], cwd=ROOT).returncode
    seconds = time.monotonic() - started
    failed = 1 if code else 0
    budget = CHECK_BUDGET_MINUTES
    return Result(name="check", seconds=seconds, budget_minutes=budget, failed=failed)


def run_phase(phase: Phase, folders: Sequence[Path], *, long: bool) -> list[Result]:
    """Run pytest on the folders; nothing if all their tests are deselected."""
    announce(phase.name)
    report = REPORTS / f"{phase.name.replace(' ', '-')}.xml"
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
    started = time.monotonic()
    code = subprocess.run([*command, *map(str, folders)], cwd=ROOT, env=environment).returncode
    seconds = time.monotonic() - started
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


def print_table(results: Sequence[Result]) -> None:
    print(f"\n{'phase':<21}{'seconds':>9}{'budget':>13}")
    for result in results:
        print(result.row())
    seconds = sum(result.seconds for result in results)
    budget = sum(result.budget_minutes for result in results)
    print(f"{'total':<21}{seconds:>9.1f}{budget:>9} min")
    passed, failed, skipped = (
        sum(getattr(result, outcome) for result in results)
        for outcome in ("passed", "failed", "skipped")
    )
    print(f"\n{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))


if __name__ == "__main__":
    sys.exit(main())
