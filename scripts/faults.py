"""Run the long campaign of faults and write docs/reliability.md.

The campaign is a plan of parts. What is done is remembered in build/faults/state.json, so that an
interrupted campaign goes on where it was; a new commit begins anew. A part that fails leaves an
archive with its seed, its history and the rows, and the line that runs it again:

    python scripts/faults.py                                   all that is left of the plan
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
import tarfile
import tempfile
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import psycopg  # noqa: E402

import rota  # noqa: E402
from rota.version import VERSION  # noqa: E402
from tests.fault.bench import ARCHIVES, Bench  # noqa: E402
from tests.fault.campaign import Failed  # noqa: E402
from tests.fault.checker import check  # noqa: E402
from tests.fault.history import History  # noqa: E402
from tests.fault.parts import PARTS  # noqa: E402
from tests.fault.zygote import Zygote  # noqa: E402
from tests.support.postgres import Cluster  # noqa: E402

STATE = ARCHIVES / "state.json"
PAGE = ROOT / "docs" / "reliability.md"
SIMULATION = "simulation"
SEEDS_AT_ONCE = 1_000


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
    ("beginnings", "sqlite", 1, 20),
    ("beginnings", "postgres", 1, 20),
    ("server-crashes", "postgres", 20, 10),
    ("kills", "sqlite", 15, 100),
    ("kills", "postgres", 15, 100),
    ("zombies", "sqlite", 17, 30),
    ("zombies", "postgres", 17, 30),
    ("sleepers", "sqlite", 5, 20),
    ("sleepers", "postgres", 5, 20),
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


class State:
    """What has been done with this commit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._guard = threading.Lock()
        self.about = about()
        found = json.loads(path.read_text()) if path.exists() else {}
        same = found.get("about", {}).get("commit") == self.about["commit"]
        self.results: list[dict[str, Any]] = found["results"] if same else []

    def done(self) -> set[Task]:
        return {Task(**one["task"]) for one in self.results}

    def add(
        self, task: Task, seconds: float, counts: dict[str, int], violations: list[str]
    ) -> None:
        with self._guard:
            self.results.append(
                {
                    "task": asdict(task),
                    "seconds": round(seconds, 1),
                    "counts": counts,
                    "violations": violations,
                }
            )
            self.path.parent.mkdir(parents=True, exist_ok=True)
            told = {"about": self.about, "results": self.results}
            # Whole or not at all: an interrupted campaign must find it readable.
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps(told, indent=1))
            new.replace(self.path)


def about() -> dict[str, str]:
    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()

    # A page must not name a commit that is not what was run.
    assert Path(rota.__file__).is_relative_to(ROOT), f"{rota.__file__} is not the Rota of {ROOT}"
    changed = " with changes" if git("status", "--porcelain", "--", "src", "tests/fault") else ""
    return {
        "commit": git("rev-parse", "--short=12", "HEAD") + changed,
        "rota": VERSION,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "psycopg": psycopg.__version__,
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
        """Whether every promise was kept."""
        started = time.monotonic()
        try:
            counts = self._simulate(task) if task.part == SIMULATION else self._run(task)
            broken = []
        except Failed as failed:
            counts, broken = {}, [str(failed)]
        seconds = time.monotonic() - started
        self.state.add(task, seconds, counts, broken)
        told = ", ".join(f"{number} {what}" for what, number in counts.items())
        name = f"{task.part} {task.engine} seed {task.seed} x {task.times}"
        print(f"{seconds:7.1f} s  {name}: {broken[0] if broken else told}", flush=True)
        return not broken

    def _run(self, task: Task) -> dict[str, int]:
        durable = PARTS[task.part].durable
        bench = self._bench(task.engine, durable=durable)
        return bench.run(task.part, task.engine, seed=task.seed, times=task.times).counts

    def _simulate(self, task: Task) -> dict[str, int]:
        """In a process of its own: it would keep this one's threads from the processor."""
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation",
             "--seeds", str(task.times), "--from", str(task.seed)],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            raise Failed(done.stdout + done.stderr)
        return {"simulated seeds": task.times}

    def _bench(self, engine: str, *, durable: bool) -> Bench:
        kept: dict[Any, Bench] = self._own.__dict__.setdefault("benches", {})
        key = (engine == "postgres", durable)
        if key not in kept:
            with self._guard:
                number = next(self._numbers)
                folder = self.folder / f"bench-{number}"
                folder.mkdir()
                zygote = self.stack.enter_context(Zygote(folder / "output.log"))
                server = None
                if engine == "postgres":
                    server = self.stack.enter_context(Cluster(fsync=durable))
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
        state = State(ARCHIVES / "single.json")
    else:
        state = State(STATE)
        tasks = [task for task in plan() if task not in state.done()]
    print(f"{len(tasks)} parts to run at {state.about['commit']}; state: {state.path}", flush=True)
    deadline = time.monotonic() + arguments.minutes * 60

    def run(task: Task) -> bool:
        return runner.run(task) if time.monotonic() < deadline else True

    with tempfile.TemporaryDirectory(prefix="rota-faults-") as folder, ExitStack() as stack:
        runner = Runner(stack, Path(folder), state)
        with ThreadPoolExecutor(arguments.jobs) as pool:
            good = all(list(pool.map(run, tasks)))
    if not arguments.part:
        PAGE.write_text(page(state))
        print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0 if good else 1


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=PARTS, help="run this part only")
    parser.add_argument("--engine", choices=("sqlite", "postgres"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--times", type=int, default=20, help="how many faults")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no part after this")
    parser.add_argument("--jobs", type=int, default=2, help="parts at the same time")
    parser.add_argument("--judge", type=Path, help="judge the history in an archive again")
    return parser.parse_args()


def judge(archive: Path) -> int:
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        violations = check(History.load(Path(folder)))
    print("\n".join(map(str, violations)) or "no violation")
    return 1 if violations else 0


# The page

PROMISE = """\
## What is promised, and what is not

- **Exactly one run per occurrence.** Cursor, run and ledger row are written in one transaction.
- **At-least-once execution.** A handler whose worker dies, freezes or loses the database before
  its outcome is written runs again. Two attempts of one run can overlap in time when a worker
  that lost its lease goes on: it can change nothing in Rota any more, but nothing can take back
  what its handler does elsewhere. Make handlers safe to repeat, or fence their effects with the
  token of a lock.
- **At most one terminal transition of a run (per redo).** A settle names the attempt; a late
  one matches no row.
- **Exactly-once effect for SQL steps on the store itself** (PostgreSQL, SQLite or DuckDB),
  because step and outcome commit together. Nowhere else.
- An acknowledged enqueue is durable as far as the database is: `synchronous=FULL` on SQLite,
  `synchronous_commit=on` on PostgreSQL. An enqueue without an answer may have happened; with a
  key it can be repeated.
- Not promised: any order between runs without a common key, the time of a start while nothing
  is free, and anything at all on a disk that lies about fsync. Kills of processes and crashes
  of the server are tested; a loss of power of the machine is not.
"""

RULES = """\
## How it is judged

Real Rota processes, forked from a warmed parent, work under a mixed load: schedules of every
overlap policy each second, plain, delayed, keyed, retried, cancelled and transactional
enqueues. Handlers and clients write what they do to a file outside the database. When the
faults are over everything must come to its end; then the file and the rows are judged by
`tests/fault/checker.py`:

| rule | holds |
|---|---|
| I1 | one run per occurrence; from the first to the cursor no instant is missing in the ledger |
| I2 | no acknowledged run is lost; one run per idempotency key; nothing that was rolled back |
| I3 | at most one terminal transition, and it is the stored one, with the result of that attempt |
| I4 | attempts are unique, rise by one, are counted right and keep the limits |
| I5 | nothing is settled after a lost lease, and no lease is taken away before its time |
| I6 | no two at once on a key, or of one run, while leases hold |
| I7 | first in, first out on a key |
| I8 | no cursor ever goes back |
| I9 | everything comes to its end, and no slot stays taken |
| U1 | no error reaches a user but "unavailable" |

The judge has its own test with planted violations of each kind, and the campaign one with rules
taken away. `make faults` runs it all again and rewrites this page.
"""


def page(state: State) -> str:
    told = state.about
    by_part: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for one in state.results:
        by_part[one["task"]["part"], one["task"]["engine"]].append(one)
    faults: Counter[str] = Counter()
    rows = []
    for (part, engine), results in sorted(by_part.items()):
        counts: Counter[str] = Counter()
        for one in results:
            counts.update(one["counts"])
        faults.update(counts)
        seeds = sorted(one["task"]["seed"] for one in results)
        last = seeds[-1] + (results[0]["task"]["times"] - 1 if part == SIMULATION else 0)
        shown = ", ".join(f"{number:,} {what}" for what, number in counts.items())
        broken = sum(len(one["violations"]) for one in results)
        minutes = sum(one["seconds"] for one in results) / 60
        rows.append(
            f"| {part} | {engine} | {seeds[0]}-{last} | {shown} | {minutes:.0f} | {broken} |"
        )
    total = sum(len(one["violations"]) for one in state.results)
    left = len(set(plan()) - state.done())
    versions = [f"Rota {told['rota']}", f"Python {told['python']}", f"SQLite {told['sqlite']}"]
    if "postgresql" in told:
        versions.append(f"PostgreSQL {told['postgresql']}")
    versions += [f"psycopg {told['psycopg']}", told["system"]]
    lines = [
        "# Reliability",
        "",
        "This page is written by `make faults`, which kills, freezes and crashes real processes",
        "and servers under load and judges what is left.",
        "",
        f"- date: {datetime.now(UTC):%Y-%m-%d}, commit {told['commit']}",
        f"- {', '.join(versions)}",
        f"- parts of the plan not run yet: {left}" if left else "- the whole plan was run",
        f"- **violations: {total}**",
        "",
        "| part | engine | seeds | what happened | minutes | violations |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
    ]
    return "\n".join(lines) + "\n" + PROMISE + "\n" + RULES


if __name__ == "__main__":
    sys.exit(main())
