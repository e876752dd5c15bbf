"""What SQLite gives when the statements are written by hand: WAL, and every commit synced.

    python limits_sqlite.py minimal|rota VERB URL [COUNT] [MORE]

As in limits.py, on a minimal row and on Rota's own table with all of its indexes.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

from common import Seen, Timed, gate, main, say
from common import pace as paced
from common import stamp as stamped
from producers import ordered_ids

import rota

HOW = sys.argv[1]
BATCH = 500
BULK = 10_000
POLL_SECONDS = 0.001

MINIMAL = """
CREATE TABLE bench (
    seq INTEGER PRIMARY KEY, state TEXT NOT NULL, args TEXT NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0, lease_until INTEGER, finished_at INTEGER
) STRICT;
CREATE INDEX bench_claim ON bench (seq) WHERE state = 'queued';
CREATE TABLE bench_schedules (id INTEGER PRIMARY KEY, next_at INTEGER NOT NULL) STRICT;
CREATE INDEX bench_due ON bench_schedules (next_at);
"""
TABLE = "bench" if HOW == "minimal" else "_rota_runs"
ORDER = "seq" if HOW == "minimal" else "priority DESC, due_at, seq"
QUEUE = "" if HOW == "minimal" else "AND queue = 'default'"
CLAIMED = "" if HOW == "minimal" else ", worker_id = 'bench', claimed_at = 0, started_at = 0"

CLAIM = f"""
    UPDATE {TABLE} SET state = 'running', attempt = attempt + 1, lease_until = 0 {CLAIMED}
     WHERE seq IN (SELECT seq FROM {TABLE} WHERE state = 'queued' {QUEUE}
                    ORDER BY {ORDER} LIMIT {BATCH})
    RETURNING seq, args"""
SETTLE = f"""
    UPDATE {TABLE} SET state = 'succeeded', finished_at = 0, lease_until = NULL
     WHERE seq IN (SELECT value FROM json_each(?)) AND state = 'running'"""


def connect(url: str) -> sqlite3.Connection:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=10)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def setup(url: str) -> None:
    """For Rota's table: one run that Rota made, ended, to make others like it."""
    if HOW == "minimal":
        connect(url).executescript(MINIMAL)
        return
    app = rota.Rota(url)
    app.job("noop")(lambda: None)
    app.enqueue("noop")
    app.close()
    connect(url).execute(f"UPDATE {TABLE} SET state = 'succeeded', finished_at = 0")


def template(connection: sqlite3.Connection) -> dict[str, object]:
    if HOW == "minimal":
        return {"state": "queued", "args": "{}"}
    found = connection.execute(f"SELECT * FROM {TABLE} ORDER BY seq LIMIT 1")
    names = [column[0] for column in found.description]
    row = dict(zip(names, found.fetchone(), strict=True))
    told = {**row, "seq": None, "state": "queued", "finished_at": None}
    return {name: value for name, value in told.items() if value is not None}


def bulk(url: str, count: int) -> None:
    """What the rows share is said once; what differs comes as one JSON array."""
    connection = connect(url)
    shared = {name: value for name, value in template(connection).items() if name != "id"}
    own = "id" if HOW == "rota" else "args"
    shared.pop(own, None)
    sql = f"""
        INSERT INTO {TABLE} ({", ".join(shared)}, {own})
        SELECT {", ".join("?" * len(shared))}, value FROM json_each(?)"""
    with Timed():
        for begin in range(0, count, BULK):
            size = min(BULK, count - begin)
            values = ordered_ids(size) if HOW == "rota" else ["{}"] * size
            connection.execute(sql, [*shared.values(), json.dumps(list(values))])


def loop(url: str) -> None:
    connection, seen = connect(url), Seen()
    gate()
    seen.begin()
    while claimed := connection.execute(CLAIM).fetchall():
        for _ in claimed:
            seen()
        connection.execute(SETTLE, [json.dumps([row[0] for row in claimed])])


def own(url: str, count: int, gap: float) -> None:
    """Enqueue and start in one process that looks each millisecond."""
    over = threading.Event()

    def poll() -> None:
        connection = connect(url)
        while not over.wait(POLL_SECONDS):
            claimed = connection.execute(CLAIM).fetchall()
            for _, sent in claimed:
                stamped(float(sent))
            if claimed:
                connection.execute(SETTLE, [json.dumps([row[0] for row in claimed])])

    thread = threading.Thread(target=poll)
    thread.start()
    connection = connect(url)
    sql = f"INSERT INTO {TABLE} (state, args) VALUES ('queued', ?)"
    paced(lambda sent: connection.execute(sql, [repr(sent)]), count, gap)
    over.set()
    thread.join()


def herd(url: str, count: int) -> None:
    """All schedules due at one instant become runs, a thousand in a transaction."""
    connection, now = connect(url), int(time.time())
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO bench_schedules VALUES (?, ?)", [(number, now) for number in range(count)]
    )
    connection.execute("COMMIT")
    due = "SELECT id FROM bench_schedules WHERE next_at <= ? ORDER BY next_at LIMIT 1000"
    move = "UPDATE bench_schedules SET next_at = ? WHERE id = ?"
    make = "INSERT INTO bench (state, args) VALUES ('queued', ?)"
    with Timed():
        while ids := [row[0] for row in connection.execute(due, [now])]:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(move, [(now + 60, one) for one in ids])
            connection.executemany(make, [(str(one),) for one in ids])
            connection.execute("COMMIT")


if __name__ == "__main__":
    verbs = (setup, bulk, loop, own, herd)
    main(
        {
            "version": lambda: say("version", f"SQLite {sqlite3.sqlite_version}"),
            **{verb.__name__: verb for verb in verbs},
        },
        sys.argv[2:],
    )
