"""The page that a campaign of faults writes: docs/reliability.md.

Everything on it comes from the results it is given; it names the commit and the versions that were
run, each seed, and each violation. It says what is promised in the words that can be defended.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Result = Mapping[str, Any]

ENGINES = ("sqlite", "postgres", "duckdb")
NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "duckdb": "DuckDB"}
SIMULATION = "simulation"
# Counted beside the faults: what the processes did meanwhile, and what was judged.
WORK = ("runs", "attempts", "acknowledged", "occurrences", "late starts", "database is locked")
SHOWN_LINES = 6

BEGINNING = """\
# Reliability

`make faults` kills, freezes, starves, cuts off and crashes real processes and servers under load,
and judges what is left. It wrote this page."""

NOTHING = """\
**No campaign is recorded here.** The next one puts its date, commit and versions, the count of each
fault, every seed and every violation in this place."""

PROMISE = """\
## What is promised, and what is not

**Exactly one run per occurrence, at-least-once execution, at most one terminal transition (per
redo); exactly-once effect for SQL steps on a PostgreSQL, SQLite or DuckDB store itself.**

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
- A handler under `isolation="thread"` shares the process of its worker: one that ends or blocks
  that process costs the others a lease. Under `isolation="process"` it costs them nothing.
- Not promised: any order between runs without a common key, the time of a start while nothing
  is free, and anything at all on a disk that lies about fsync. Kills of processes and crashes
  of the server are tested; a loss of power of the machine is not."""

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
taken away."""

AGAIN = """\
## Run it again

```sh
make faults                                       # what is left of it; rewrites this page
python scripts/faults.py --fresh                  # all of it
python scripts/faults.py --part kills --engine sqlite --seed 7 --times 100     # one part
python scripts/faults.py --judge build/faults/kills-sqlite-7.tar.gz            # what one left
```

The seed decides what the clients ask for, whom faults meet and when. Real processes are not
repeatable to the microsecond: a part that fails leaves an archive of what happened, with the line
that tries it again. `make test` runs a short form of every part."""


def page(about: Mapping[str, str], results: Sequence[Result], *, left: int) -> str:
    """`left` is how many parts of the plan have not been run."""
    sections = [
        BEGINNING,
        summary(about, results, left),
        faults_table(results),
        figures_table(results),
        violations_list(results),
        parts_table(results),
        PROMISE,
        RULES,
        AGAIN,
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def summary(about: Mapping[str, str], results: Sequence[Result], left: int) -> str:
    if not results:
        return NOTHING
    days = sorted({one["day"] for one in results if "day" in one})
    span = " to ".join(dict.fromkeys([days[0], days[-1]])) if days else "no date"
    versions = [f"{NAMES.get(name, name)} {about[name]}" for name in VERSIONS if name in about]
    hours = sum(one["seconds"] for one in results) / 3600
    lines = [
        f"- date: {span}, {commits(results)}",
        f"- {', '.join(versions)}; {about['system']}",
        f"- parts of the plan not run yet: {left}" if left else "- the whole plan was run",
        f"- {len(results):,} parts, {hours:.1f} hours, **violations: {count_broken(results)}**",
    ]
    return "\n".join(lines)


def commits(results: Sequence[Result]) -> str:
    """The commit of all parts; else that of most of them, and which parts are of another."""
    (usual, _), *others = Counter(one["commit"] for one in results).most_common()
    told = [f"commit {usual}"]
    for commit, _ in others:
        names = {
            f"{one['task']['part']} on {NAMES[one['task']['engine']]}"
            for one in results
            if one["commit"] == commit
        }
        told.append(f"and commit {commit} for {', '.join(sorted(names))}")
    return " ".join(told)


VERSIONS = ("rota", "python", "sqlite", "postgresql", "psycopg", "duckdb")
NAMES |= {"rota": "Rota", "python": "Python", "postgresql": "PostgreSQL"}


def count_broken(results: Iterable[Result]) -> int:
    return sum(bool(one["violations"]) for one in results)


def faults_table(results: Sequence[Result]) -> str:
    """How often each fault was brought about, on each engine, and what went on meanwhile."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for one in results:
        for what, number in one["counts"].items():
            counts[what][one["task"]["engine"]] += number
    if not counts:
        return ""
    order = sorted(counts, key=lambda what: (what in WORK, what.lower()))
    rows = [
        [
            what,
            *(f"{counts[what][engine]:,}" if engine in counts[what] else "" for engine in ENGINES),
        ]
        for what in order
        if sum(counts[what].values()) or what in WORK
    ]
    return "## What happened\n\n" + table(["", *(NAMES[engine] for engine in ENGINES)], rows)


def figures_table(results: Sequence[Result]) -> str:
    rows = [
        [
            one["task"]["part"],
            NAMES[one["task"]["engine"]],
            f"{one['task']['times']} s",
            what,
            f"{value:,}",
        ]
        for one in results
        for what, value in one.get("figures", {}).items()
    ]
    if not rows:
        return ""
    return "## What was measured\n\n" + table(["part", "engine", "for", "figure", "value"], rows)


def violations_list(results: Sequence[Result]) -> str:
    broken = [one for one in results if one["violations"]]
    if not broken:
        return ""
    texts = []
    for one in broken:
        task = one["task"]
        lines = "\n".join(one["violations"]).splitlines()[:SHOWN_LINES]
        texts.append(
            f"`{task['part']}`, {NAMES[task['engine']]}, seed {task['seed']}:\n\n```text\n"
            + "\n".join(lines)
            + "\n```"
        )
    return "\n\n".join(["## Violations", *texts])


def parts_table(results: Sequence[Result]) -> str:
    by_part: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for one in results:
        by_part[one["task"]["part"], one["task"]["engine"]].append(one)
    rows = [
        [
            part,
            NAMES[engine],
            seeds([one["task"] for one in found]),
            ", ".join(sorted({f"{one['task']['times']:,}" for one in found})),
            f"{sum(one['seconds'] for one in found) / 60:.0f}",
            str(count_broken(found)),
        ]
        for (part, engine), found in sorted(by_part.items())
    ]
    if not rows:
        return ""
    head = ["part", "engine", "seeds", "times each", "minutes", "violations"]
    return "## Parts and seeds\n\n" + table(head, rows)


def seeds(tasks: Sequence[Mapping[str, Any]]) -> str:
    """1-15, or 1, 3-4: every seed that was tried."""
    tried: set[int] = set()
    for task in tasks:
        many = task["times"] if task["part"] == SIMULATION else 1
        tried |= set(range(task["seed"], task["seed"] + many))
    spans: list[list[int]] = []
    for seed in sorted(tried):
        if spans and spans[-1][1] == seed - 1:
            spans[-1][1] = seed
        else:
            spans.append([seed, seed])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
