"""Run the long campaign of faults and write docs/reliability.md.

The campaign is a plan of parts. What is done is kept in docs/reliability.json, each part with the
commit that it was run at, so that a campaign that was interrupted goes on where it was; the page
says which commits it is of. A part that fails leaves an archive with its seed, its history and the
rows, and the line that runs it again:

    python scripts/faults.py                                   all that is left of the plan
    python scripts/faults.py --fresh                           all of it
    python scripts/faults.py --minutes 20                      as much as fits
    python scripts/faults.py --part kills --engine sqlite --seed 7 --times 100
    python scripts/faults.py --judge build/faults/kills-sqlite-7.tar.gz
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import duckdb  # noqa: E402
import psycopg  # noqa: E402

import rota  # noqa: E402
from rota.version import VERSION  # noqa: E402
from scripts.reliability import SIMULATION, page  # noqa: E402
from tests.fault.bench import ARCHIVES, Bench  # noqa: E402
from tests.fault.campaign import Failed, Impossible, NotReached, Verdict  # noqa: E402
from tests.fault.checker import check  # noqa: E402
from tests.fault.history import History  # noqa: E402
from tests.fault.parts import PARTS, Part  # noqa: E402
from tests.fault.zygote import Zygote  # noqa: E402
from tests.support.archives import unpack  # noqa: E402
from tests.support.postgres import Cluster  # noqa: E402

PAGE = ROOT / "docs" / "reliability.md"
STATE = PAGE.with_suffix(".json")
SEEDS_AT_ONCE = 1_000
# What is on trial, and the trial itself.
TRIED = ("src/rota/", "tests/fault", "tests/simulation", "tests/support")


@dataclass(frozen=True, order=True)
class Task:
    """One run of a part. For the simulation, `times` seeds from `seed` on."""

    part: str
    engine: str
    seed: int
    times: int


# Part, engine, how many seeds, how many faults with each of them.
PLAN = (
    ("crash-points", "sqlite", 3, 1),
    ("crash-points", "postgres", 3, 1),
    ("crash-points", "duckdb", 3, 1),
    ("beginnings", "sqlite", 1, 20),
    ("beginnings", "postgres", 1, 20),
    ("beginnings", "duckdb", 1, 20),
    ("server-crashes", "postgres", 20, 10),
    ("kills", "sqlite", 15, 100),
    ("kills", "postgres", 15, 100),
    ("kills", "duckdb", 3, 100),
    ("zombies", "sqlite", 17, 30),
    ("zombies", "postgres", 17, 30),
    ("sleepers", "sqlite", 5, 20),
    ("sleepers", "postgres", 5, 20),
    ("failing-calls", "sqlite", 2, 7),
    ("failing-calls", "postgres", 2, 7),
    ("failing-calls", "duckdb", 1, 7),
    ("terminations", "postgres", 5, 400),
    ("network", "postgres", 5, 60),
    ("connection-limit", "postgres", 2, 5),
    ("storm", "sqlite", 2, 30),
    ("disk-full", "sqlite", 3, 10),
    ("rolling-restarts", "sqlite", 2, 30),
    ("rolling-restarts", "postgres", 2, 30),
    ("all-asleep", "sqlite", 2, 5),
    ("all-asleep", "postgres", 2, 5),
    ("cancels", "sqlite", 1, 10_000),
    ("cancels", "postgres", 1, 10_000),
    ("deadlocks", "postgres", 2, 20),
    ("strangers", "postgres", 2, 5),
    ("clock-steps", "sqlite", 3, 8),
    ("clock-steps", "postgres", 3, 8),
    ("herd", "sqlite", 2, 40),
    ("herd", "postgres", 2, 40),
    ("backlog", "sqlite", 2, 20),
    ("backlog", "postgres", 2, 20),
    ("past-retention", "sqlite", 2, 10),
    ("past-retention", "postgres", 2, 10),
    ("storm-long", "sqlite", 1, 600),
    ("soak", "sqlite", 1, 600),
    ("soak", "postgres", 1, 600),
    ("held-transaction", "postgres", 1, 600),
)
SIMULATED_SEEDS = 20_000


def plan() -> list[Task]:
    """Turn by turn, so that a campaign that is cut short has met every kind of fault."""
    lines = [
        [Task(part, engine, seed, times) for seed in range(1, seeds + 1)]
        for part, engine, seeds, times in PLAN
    ]
    lines.append(
        [
            Task(SIMULATION, "sqlite", first, SEEDS_AT_ONCE)
            for first in range(0, SIMULATED_SEEDS, SEEDS_AT_ONCE)
        ]
    )
    turns = max(map(len, lines))
    return [line[turn] for turn in range(turns) for line in lines if turn < len(line)]


def is_alone(task: Task) -> bool:
    return task.part != SIMULATION and PARTS[task.part].alone


class State:
    """What has been done, and at which commit."""

    def __init__(self, path: Path, *, fresh: bool) -> None:
        self.path = path
        self._guard = threading.Lock()
        found = {} if fresh or not path.exists() else json.loads(path.read_text())
        self.about: dict[str, str] = found.get("about", {}) | about()
        self.results: list[dict[str, Any]] = found.get("results", [])

    def done(self) -> set[Task]:
        return {Task(**one["task"]) for one in self.results}

    def add(self, task: Task, seconds: float, verdict: Verdict) -> None:
        with self._guard:
            self.results.append(
                {
                    "task": asdict(task),
                    "day": f"{datetime.now(UTC):%Y-%m-%d}",
                    "commit": self.about["commit"],
                    "seconds": round(seconds, 1),
                    "counts": verdict.counts,
                    "figures": verdict.figures,
                    "violations": verdict.violations,
                }
            )
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lines = ",\n".join(json.dumps(one) for one in self.results)
            # Whole or not at all: an interrupted campaign must find it readable.
            new = self.path.with_suffix(".new")
            new.write_text(f'{{"about": {json.dumps(self.about)}, "results": [\n{lines}\n]}}\n')
            new.replace(self.path)


def about() -> dict[str, str]:
    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()

    # A page must not name a commit that is not what was run.
    assert Path(rota.__file__).is_relative_to(ROOT), f"{rota.__file__} is not the Rota of {ROOT}"
    changed = " with changes" if git("status", "--porcelain", "--", *TRIED) else ""
    return {
        "commit": git("rev-parse", "--short=12", "HEAD") + changed,
        "rota": VERSION,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "psycopg": psycopg.__version__,
        "duckdb": duckdb.__version__,
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
    }


class Runner:
    """Benches for tasks: each thread has its own, and servers are started when first needed."""

    def __init__(self, stack: ExitStack, folder: Path, state: State) -> None:
        self.stack, self.folder, self.state = stack, folder, state
        self._guard = threading.Lock()
        self._own = threading.local()
        self._numbers = iter(range(10**6))

    def run(self, task: Task) -> bool:
        """Whether every promise was kept. What could not be tried is not done, and stays in the
        plan."""
        name = f"{task.part} {task.engine} seed {task.seed} x {task.times}"
        started = time.monotonic()
        try:
            verdict = self._simulate(task) if task.part == SIMULATION else self._run(task)
        except Failed as failed:
            verdict = Verdict(counts={}, violations=[str(failed)])
        except NotReached as why:
            print(f"{time.monotonic() - started:7.1f} s  {name}: not done, {why}", flush=True)
            return False
        except Impossible as why:
            print(f"{task.part} {task.engine} is left out: {why}", flush=True)
            verdict = Verdict(counts={"left out": 1})
        seconds = time.monotonic() - started
        self.state.add(task, seconds, verdict)
        told = ", ".join(f"{n} {what}" for what, n in (verdict.counts | verdict.figures).items())
        shown = verdict.violations[0] if verdict.violations else told
        print(f"{seconds:7.1f} s  {name}: {shown}", flush=True)
        return not verdict.violations

    def _run(self, task: Task) -> Verdict:
        bench = self._bench(task.engine, PARTS[task.part])
        return bench.run(task.part, task.engine, seed=task.seed, times=task.times)

    def _simulate(self, task: Task) -> Verdict:
        """In a process of its own: it would keep this one's threads from the processor."""
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation",
             "--seeds", str(task.times), "--from", str(task.seed)],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            raise Failed(done.stdout + done.stderr)
        return Verdict(counts={"simulated seeds": task.times})

    def _bench(self, engine: str, part: Part) -> Bench:
        kept: dict[Any, Bench] = self._own.__dict__.setdefault("benches", {})
        key = (engine, part.durable, part.connections) if engine == "postgres" else (engine,)
        if key not in kept:
            with self._guard:
                number = next(self._numbers)
                folder = self.folder / f"bench-{number}"
                folder.mkdir()
                zygote = self.stack.enter_context(Zygote(folder / "output.log"))
                server = None
                if engine == "postgres":
                    settings = {"max_connections": str(part.connections)}
                    cluster = Cluster(fsync=part.durable, settings=settings)
                    server = self.stack.enter_context(cluster)
                    self.state.about["postgresql"] = server_version(server)
                kept[key] = Bench(zygote, folder, server)
        return kept[key]


def server_version(server: Cluster) -> str:
    with server.database() as url, psycopg.connect(url) as connection:
        found = connection.execute("SHOW server_version").fetchone()
    return str(found[0]).partition(" ")[0] if found else "unknown"


def main() -> int:
    """0 if every promise was kept."""
    arguments = read_arguments()
    logging.disable(logging.CRITICAL)
    if arguments.judge:
        return judge(arguments.judge)
    if arguments.part:
        part = PARTS[arguments.part]
        engine = arguments.engine or part.engines[0]
        tasks = [Task(arguments.part, engine, arguments.seed, arguments.times)]
        state = State(ARCHIVES / "single.json", fresh=False)
    else:
        state = State(STATE, fresh=arguments.fresh)
        tasks = [task for task in plan() if task not in state.done()]
    print(f"{len(tasks)} parts to run at {state.about['commit']}; state: {state.path}", flush=True)
    deadline = time.monotonic() + arguments.minutes * 60

    def run(task: Task) -> bool:
        return runner.run(task) if time.monotonic() < deadline else True

    with tempfile.TemporaryDirectory(prefix="rota-faults-") as folder, ExitStack() as stack:
        runner = Runner(stack, Path(folder), state)
        # What is measured is measured alone.
        measured = [run(task) for task in tasks if is_alone(task)]
        with ThreadPoolExecutor(arguments.jobs) as pool:
            others = list(pool.map(run, [task for task in tasks if not is_alone(task)]))
        good = all(measured + others)
    if not arguments.part:
        left = len(set(plan()) - state.done())
        PAGE.write_text(page(state.about, state.results, left=left))
        print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0 if good else 1


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=PARTS, help="run this part only")
    parser.add_argument("--engine", choices=("sqlite", "postgres", "duckdb"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--times", type=int, default=20, help="how many faults")
    parser.add_argument("--fresh", action="store_true", help="forget what has been run")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no part after this")
    parser.add_argument("--jobs", type=int, default=2, help="parts at the same time")
    parser.add_argument("--judge", type=Path, help="judge the history in an archive again")
    return parser.parse_args()


def judge(archive: Path) -> int:
    with tempfile.TemporaryDirectory() as folder:
        unpack(archive, Path(folder))
        violations = check(History.load(Path(folder)))
    print("\n".join(map(str, violations)) or "no violation")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
