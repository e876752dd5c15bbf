"""The programs that are measured: what starts each one, and how its database shows an end.

`unfinished` is SQL that tells whether any job is not finished yet. `count` bounds the drain of a
program that would take minutes for the usual number.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = Path(sys.executable)
# oban needs Python 3.12; where the benchmark's is older it has an environment inside of this one.
NEWER = Path(sys.prefix) / "oban" / "bin" / "python"
OBAN_PYTHON = NEWER if sys.version_info < (3, 12) and NEWER.exists() else PYTHON
# Most jobs of a slow program in one drain or bulk.
FEW = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    name: str
    engine: str
    command: tuple[str, ...]
    unfinished: str
    measures: frozenset[str]
    kind: str = "peer"  # peer, limit or rota
    count: int | None = None

    def call(self, verb: str, *arguments: object) -> list[str]:
        return [*self.command, verb, *map(str, arguments)]


def _python(file: str, *more: str, python: Path = PYTHON) -> tuple[str, ...]:
    return (str(python), str(HERE / file), *more)


def _node(file: str) -> tuple[str, ...]:
    return ("node", str(HERE / "peers" / "node" / file))


def _exists(table: str, condition: str = "true") -> str:
    return f"SELECT EXISTS (SELECT 1 FROM {table} WHERE {condition})"


ROTA_MEASURES = "bulk single single10 drain drain2 drain4 latency idle"
LIMIT_MEASURES = "bulk single single10 drain drain2 drain4 loop loop2 latency"
# On PostgreSQL the tables are in a schema of their own; on SQLite their names begin with it.
UNFINISHED = "finished_at IS NULL"
LIMITS = {"postgres": "limits.py", "sqlite": "limits_sqlite.py"}


def _rota(how: str, engine: str, measures: str) -> Program:
    table = "rota_data.runs" if engine == "postgres" else "_rota_runs"
    return Program(
        name=f"Rota ({how})",
        engine=engine,
        kind="rota",
        command=_python("rota_bench.py", how),
        unfinished=_exists(table, UNFINISHED),
        measures=frozenset(measures.split()),
    )


def _limit(name: str, engine: str, how: str, table: str, measures: str) -> Program:
    return Program(
        name=name,
        engine=engine,
        kind="limit",
        command=_python(LIMITS[engine], how),
        unfinished=_exists(table, UNFINISHED),
        measures=frozenset(measures.split()),
    )


def _peer(
    name: str, command: tuple[str, ...], unfinished: str, measures: str, **more: object
) -> Program:
    told = {"engine": "postgres", **more}
    return Program(
        name=name,
        command=command,
        unfinished=unfinished,
        measures=frozenset(measures.split()),
        **told,  # type: ignore[arg-type]
    )


PROGRAMS = (
    _rota("async", "postgres", ROTA_MEASURES),
    _rota(
        "thread", "postgres", "drain drain2 drain4 latency idle loop loop2 due start herd herd100k"
    ),
    _rota("async", "sqlite", "bulk drain latency own idle"),
    _rota("thread", "sqlite", "drain latency own idle loop due herd herd100k"),
    _limit("minimal row", "postgres", "minimal", "bench", LIMIT_MEASURES + " unnest herd herd100k"),
    _limit("Rota's table", "postgres", "rota", "rota_data.runs", LIMIT_MEASURES + " unnest"),
    _limit("minimal row", "sqlite", "minimal", "bench", "bulk loop own herd herd100k"),
    _limit("Rota's table", "sqlite", "rota", "_rota_runs", "bulk loop"),
    _peer(
        "pgqueuer",
        _python("peers/peer_pgqueuer.py"),
        _exists("pgqueuer"),
        "bulk single drain drain2 latency idle",
    ),
    _peer(
        "graphile-worker",
        _node("graphile_worker.mjs"),
        _exists("graphile_worker._private_jobs"),
        "bulk single drain drain2 drain4 latency idle",
    ),
    _peer(
        "pg-boss",
        _node("pg_boss.mjs"),
        _exists("pgboss.job", "state < 'completed'"),
        "bulk single loop loop2",
    ),
    _peer(
        "procrastinate",
        _python("peers/peer_procrastinate.py"),
        _exists("procrastinate_jobs", "status IN ('todo', 'doing')"),
        "bulk single drain drain2 latency idle",
        count=FEW,
    ),
    _peer(
        "oban",
        _python("peers/peer_oban.py", python=OBAN_PYTHON),
        _exists("oban_jobs", "state NOT IN ('completed', 'cancelled', 'discarded')"),
        "bulk single drain drain2 latency idle",
        count=FEW,
    ),
    _peer(
        "dbos",
        _python("peers/peer_dbos.py"),
        _exists("dbos.workflow_status", "status IN ('ENQUEUED', 'PENDING')"),
        "single drain drain2 latency due idle",
        count=FEW // 3,
    ),
    _peer(
        "celery",
        _python("peers/peer_celery.py"),
        "LLEN celery;HLEN unacked",
        "bulk single drain drain2 latency idle",
        engine="redis",
        count=FEW,
    ),
    _peer(
        "apscheduler",
        _python("peers/peer_apscheduler.py"),
        _exists("apscheduler_jobs"),
        "due herd",
    ),
    _peer(
        "apscheduler",
        _python("peers/peer_apscheduler.py"),
        _exists("apscheduler_jobs"),
        "herd",
        engine="sqlite",
    ),
    _peer(
        "huey, unsynced",
        _python("peers/peer_huey.py", "unsynced"),
        _exists("task"),
        "bulk drain latency own idle",
        engine="sqlite",
    ),
    _peer(
        "huey, synced",
        _python("peers/peer_huey.py", "synced"),
        _exists("task"),
        "bulk drain",
        engine="sqlite",
        count=FEW * 3,
    ),
)
