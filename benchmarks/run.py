"""Rota beside its peers and beside what is possible at all, in one run on one machine.

    python benchmarks/run.py             three rounds; writes docs/benchmarks.md and its plots
    python benchmarks/run.py --quick     one short round of what matters most, in five minutes
    python benchmarks/run.py --check     100 jobs through every program: does it run at all?
    python benchmarks/run.py --report    writes the page again from the last run's figures

A peer that is not installed, or fails, is named with its reason, and the run goes on.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import sqlite3
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import report
from children import Failed, ask
from measures import MEASURES, TIMES, TOGETHER, Size, Values
from programs import PROGRAMS, Program
from results import Figure, Results, load
from servers import Servers

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "build" / "bench.json"
GROWTH = ROOT / "build" / "growth.json"

QUICK = Size(jobs=20_000, singles=1_000, stamps=60, idle_seconds=5, due_seconds=5)
QUICK_PEERS = ("pgqueuer", "graphile-worker", "pg-boss", "huey, unsynced")
QUICK_LEAVES_OUT = frozenset({"herd100k", "single10", "unnest", "drain4"})
CHECK = Size(jobs=100, singles=20, stamps=5, idle_seconds=1, due_seconds=3)
CHECK_MEASURES = frozenset({"bulk", "single", "drain", "loop", "latency", "own", "due"})


def main() -> int:
    options = _options()
    if options.report:
        _finish(load(RAW))
        return 0
    size = CHECK if options.check else QUICK if options.quick else Size()
    if options.jobs:
        size = Size(jobs=options.jobs, stamps=size.stamps, singles=size.singles)
    rounds = options.rounds or (1 if options.quick or options.check else 3)
    with Servers() as servers:
        results = Results(_about(servers, rounds, size))
        programs = _installed(_chosen(options), results)
        for number in range(rounds):
            _round(number, programs, servers, size, results, _wanted(options))
            if not options.check:
                results.save(RAW)
    for name, reason in results.failures.items():
        print(f"not run: {name}: {reason}")
    if sys.argv[1:] == []:
        _grow()
    if options.check:
        return int(any(name.startswith("Rota") for name in results.failures))
    _finish(results)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one short round, the main peers")
    parser.add_argument("--check", action="store_true", help="100 jobs through every program")
    parser.add_argument("--report", action="store_true", help="write the page from the last run")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--jobs", type=int, help="in each bulk enqueue and drain")
    parser.add_argument("--only", help="programs whose name contains one of these, by commas")
    parser.add_argument("--measures", help="only these, by commas")
    return parser.parse_args()


def _chosen(options: argparse.Namespace) -> list[Program]:
    chosen = list(PROGRAMS)
    if options.quick:
        chosen = [one for one in chosen if one.kind != "peer" or one.name in QUICK_PEERS]
    if options.only:
        names = options.only.lower().split(",")
        chosen = [one for one in chosen if any(name in one.name.lower() for name in names)]
    return chosen


def _wanted(options: argparse.Namespace) -> frozenset[str]:
    if options.measures:
        return frozenset(options.measures.split(","))
    if options.check:
        return CHECK_MEASURES
    return frozenset(MEASURES) - (QUICK_LEAVES_OUT if options.quick else frozenset())


def _installed(programs: Iterable[Program], results: Results) -> list[Program]:
    """Those that tell their version; the others are named with their reason."""
    found = []
    for one in programs:
        try:
            said = ask(one.call("version"), 60)
        except (Failed, OSError) as fault:
            results.failures[one.name] = str(fault)
            print(f"{one.name} is left out: {fault}", flush=True)
            continue
        results.versions[_product(one)] = said["version"][0]
        found.append(one)
    return found


def _product(program: Program) -> str:
    if program.kind == "limit":
        return f"limits on {program.engine}"
    return program.name.partition(" (")[0].partition(",")[0]


def _round(
    number: int,
    programs: Sequence[Program],
    servers: Servers,
    size: Size,
    results: Results,
    wanted: frozenset[str],
) -> None:
    tasks = [
        ([one], measure)
        for one in programs
        for measure in one.measures & wanted - TOGETHER
        for _ in range(TIMES.get(measure, 1) if size == Size() else 1)
    ]
    for measure in wanted & TOGETHER:
        if some := [one for one in programs if measure in one.measures]:
            tasks.append((some, measure))
    random.shuffle(tasks)

    def tried(program: Program, measure: str) -> Values | Exception:
        try:
            return MEASURES[measure](program, servers, size)
        except Exception as fault:  # one program's fault is not the others'
            return fault

    for done, (some, measure) in enumerate(tasks, 1):
        began = time.monotonic()
        if len(some) == 1:  # here, where an interrupt ends it at once
            found = [tried(some[0], measure)]
        else:
            with ThreadPoolExecutor(len(some)) as threads:
                found = list(threads.map(tried, some, [measure] * len(some)))
        took = time.monotonic() - began
        for program, values in zip(some, found, strict=True):
            shown = _keep(results, number, program, measure, values)
            print(f"round {number + 1}, {done}/{len(tasks)}: {shown} [{took:.0f} s]", flush=True)


def _keep(
    results: Results, number: int, program: Program, measure: str, values: Values | Exception
) -> str:
    what = f"{program.name}, {program.engine}, {measure}"
    if isinstance(values, Exception):
        results.failures[what] = str(values) or repr(values)
        return f"{what}: failed: {values!r}"
    results.figures.append(
        Figure(
            program=program.name,
            engine=program.engine,
            kind=program.kind,
            measure=measure,
            round=number,
            values=values,
        )
    )
    shown = ", ".join(f"{key} {value:,.6g}" for key, value in list(values.items())[:2])
    return f"{what}: {shown}"


def _grow() -> None:
    """What the verbs cost as rows pile up; its figures become a plot of the page."""
    command = [sys.executable, str(ROOT / "benchmarks" / "growth.py"), "--parts=runs"]
    if subprocess.run([*command, f"--json={GROWTH}"], cwd=ROOT).returncode:
        print("not run: growth")


def _finish(results: Results) -> None:
    verdicts = report.write(results, GROWTH)
    for one in verdicts:
        word = {True: "reached    ", False: "NOT REACHED", None: "not measured"}[one.reached]
        print(f"{word} {report.named(one)}")
    print(f"written: {report.PAGE.relative_to(ROOT)}")


def _about(servers: Servers, rounds: int, size: Size) -> dict[str, str]:
    optimised = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    # A distribution may build with a profile of its own and say nothing of it here.
    python = platform.python_version() + (", built with PGO" if optimised else "")
    return {
        "command": _command(),
        "when": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {_commit()}",
        "size": f"{rounds} round{'s' * (rounds > 1)}, {size.jobs:,} jobs in a bulk or a drain",
        "machine": f"{os.cpu_count()} cores, {_cpu()}, {_memory()}, {platform.system()}",
        "Python": python,
        "PostgreSQL": f"{servers.postgres_version()}, default settings, fsync on",
        "SQLite": sqlite3.sqlite_version,
    }


def _command() -> str:
    told = [one for one in sys.argv[1:] if one != "--quick"]
    if told:
        return " ".join(["python benchmarks/run.py", *sys.argv[1:]])
    return "make bench-quick" if "--quick" in sys.argv else "make bench"


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    )
    return done.stdout.strip() or "unknown"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown CPU"
    return next((line.partition(":")[2].strip() for line in lines if "model name" in line), "?")


def _memory() -> str:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{total / 2**30:.0f} GB"


if __name__ == "__main__":
    sys.exit(main())
