"""What Rota is to reach, row by row, and whether a benchmark reached it.

Goals that compare are ratios within one benchmark on one machine; the others are times and sizes. A
time that was set beside a limit is a multiple of that limit, as the same benchmark measures it.
"""

from __future__ import annotations

from dataclasses import dataclass

from results import SMALL_IS_GOOD, Results, Summary

BEST = "best peer"
LIMIT = "minimal row"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`factor` is the least ratio to `of`, `most` the largest value; a row has one of the two.
    `limit` is what the limit took where `most` was set."""

    thing: str
    engine: str
    measure: str
    key: str = "rate"
    factor: float | None = None
    of: str = BEST
    most: float | None = None
    limit: float | None = None
    stretch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    row: Row
    rota: Summary | None
    rotas: int  # of sync and async handlers, how many were measured
    peer: Summary | None
    limits: list[Summary]
    ratio: float | None
    reached: bool | None  # None: it could not be measured

    @property
    def goal(self) -> str:
        row = self.row
        if row.factor is None:
            assert row.most is not None
            unit = UNITS[row.key]
            if row.limit is None or not self.limits:
                return f"≤ {row.most:g} {unit}"
            times = f"≤ {row.most / row.limit:.3g} x the limit"
            return f"{times} ({row.most:g} {unit} where that takes {row.limit:g})"
        of = "the limit" if row.of == LIMIT else row.of
        return f"≥ {row.factor:g} x {of}" + (" (stretch)" if row.stretch else "")


UNITS = {
    "rate": "/s", "p50": "ms", "p99": "ms", "seconds": "s", "percent": "%", "mb": "MB",
    "import": "s", "help": "s", "cli": "s", "up": "s",
}  # fmt: skip

POSTGRES, SQLITE = "postgres", "sqlite"
GRAPHILE, PGQUEUER, HUEY = "graphile-worker", "pgqueuer", "huey, unsynced"


def _ratio(thing: str, measure: str, factor: float, of: str = BEST, stretch: bool = False) -> Row:
    engine = SQLITE if of == HUEY else POSTGRES
    return Row(thing=thing, engine=engine, measure=measure, factor=factor, of=of, stretch=stretch)


def _most(
    thing: str, engine: str, measure: str, key: str, most: float, limit: float | None = None
) -> Row:
    return Row(thing=thing, engine=engine, measure=measure, key=key, most=most, limit=limit)


ROWS = (
    _ratio("bulk enqueue", "bulk", 1.7),
    _ratio("single enqueue, one producer", "single", 1.15),
    _ratio("single enqueue, 10 producers", "single10", 0.75, LIMIT),
    _ratio("drain, 1 process", "drain", 1.25, GRAPHILE),
    _ratio("drain, 1 process", "drain", 2, PGQUEUER),
    _ratio("drain, 1 process", "drain", 3, PGQUEUER, stretch=True),
    _ratio("drain, 2 processes", "drain2", 1.2, GRAPHILE),
    _ratio("drain, 2 processes", "drain2", 2, PGQUEUER),
    _ratio("storage alone, 1 process", "loop", 1, "pg-boss"),
    _ratio("storage alone, 2 processes", "loop2", 1, "pg-boss"),
    _most("enqueue to start, p50", POSTGRES, "latency", "p50", 2.5, limit=1.7),
    _most("enqueue to start, p99", POSTGRES, "latency", "p99", 5, limit=2.3),
    _most("start against due time, p50", POSTGRES, "due", "p50", 3),
    _most("start against due time, p99", POSTGRES, "due", "p99", 20),
    _most("idle worker, CPU", POSTGRES, "idle", "percent", 0.5),
    _most("idle worker, memory", POSTGRES, "idle", "mb", 60),
    _most("start-up: import rota", POSTGRES, "start", "import", 0.15),
    _most("start-up: rota --help", POSTGRES, "start", "help", 0.3),
    _most("start-up: rota runs", POSTGRES, "start", "cli", 0.3),
    _most("start-up: rota up has begun a run", POSTGRES, "start", "up", 1),
    _most("10,000 schedules due at once", POSTGRES, "herd", "seconds", 0.6, limit=0.2),
    _most("100,000 schedules due at once", POSTGRES, "herd100k", "seconds", 3.5, limit=1.6),
    _ratio("bulk enqueue", "bulk", 4, HUEY),
    _ratio("drain, 1 process", "drain", 3, HUEY),
    _most("enqueue to start, same process, p50", SQLITE, "own", "p50", 1.5, limit=0.8),
    _most("enqueue to start, other process, p50", SQLITE, "latency", "p50", 15),
    _most("idle worker, CPU", SQLITE, "idle", "percent", 1),
    _most("10,000 schedules due at once", SQLITE, "herd", "seconds", 0.4, limit=0.1),
    _most("100,000 schedules due at once", SQLITE, "herd100k", "seconds", 2, limit=0.6),
)

# SQLite's limit of a drain is the loop: a worker there has no round trips to hide.
LIMIT_MEASURE = {(SQLITE, "drain"): "loop"}


def judge(row: Row, results: Results) -> Verdict:
    def found(kind: str, measure: str = row.measure) -> list[Summary]:
        return results.summaries(row.engine, measure, row.key, kind)

    rotas = found("rota")
    rota = next(iter(rotas), None)
    limits = found("limit", LIMIT_MEASURE.get((row.engine, row.measure), row.measure))
    peers = {one.program: one for one in found("peer")}
    best = next(iter(peers.values()), None)
    peer = best if row.of in (BEST, LIMIT) else peers.get(row.of)
    limit = next((one for one in limits if one.program == LIMIT), None)
    against = limit if row.of == LIMIT else peer
    ratio = None
    # An idle process may use less than can be seen.
    if rota and against and rota.median and against.median:
        small = row.key in SMALL_IS_GOOD
        ratio = against.median / rota.median if small else rota.median / against.median
    return Verdict(
        row=row,
        rota=rota,
        rotas=len(rotas),
        peer=peer,
        limits=limits,
        ratio=ratio,
        reached=_reached(row, rota, ratio, limits),
    )


def allowed(row: Row, limits: list[Summary]) -> float:
    """The most that a time may be on the machine that measured these limits: the least counts."""
    assert row.most is not None
    if row.limit is None or not limits:
        return row.most
    return row.most * min(one.median for one in limits) / row.limit


def _reached(
    row: Row, rota: Summary | None, ratio: float | None, limits: list[Summary]
) -> bool | None:
    if rota is None:
        return None
    if row.most is not None:
        return rota.median <= allowed(row, limits)
    return None if ratio is None or row.factor is None else ratio >= row.factor
