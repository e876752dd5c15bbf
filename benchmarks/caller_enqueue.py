"""From the commit of a caller's own transaction to the start of the run it enqueued.

    python benchmarks/caller_enqueue.py [--runs 200] [--engines sqlite,postgres]

The worker is another process; the machine is otherwise idle between two enqueues.
"""

import argparse
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import rota

WORKER = """
import os, sys, time, rota
app = rota.Rota(os.environ["BENCH_DATABASE"])

@app.job(concurrency_key="line")
def keyed(ctx: rota.Context) -> None:
    print(time.time(), flush=True)

@app.job()
def plain(ctx: rota.Context) -> None:
    print(time.time(), flush=True)

app.run()
"""


def connect(database: str) -> Any:
    if database.startswith("sqlite"):
        return sqlite3.connect(database.removeprefix("sqlite:///"), isolation_level=None)
    import psycopg

    return psycopg.connect(database)


def measure(database: str, job: str, runs: int) -> list[float]:
    """Milliseconds, sorted."""
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER],
        env={**os.environ, "BENCH_DATABASE": database},
        stdout=subprocess.PIPE,
        text=True,
    )
    client, caller = rota.Rota(database), connect(database)
    assert worker.stdout is not None
    took = []
    try:
        while not any(found["name"] == job for found in client.control.jobs()):
            time.sleep(0.1)
        for _ in range(runs):
            if database.startswith("sqlite"):
                caller.execute("BEGIN IMMEDIATE")
            client.enqueue(job, connection=caller)
            caller.commit()
            committed = time.time()
            took.append((float(worker.stdout.readline()) - committed) * 1000)
            time.sleep(0.02)
    finally:
        worker.terminate()
        worker.wait(30)
        client.close()
        caller.close()
    return sorted(took[1:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--engines", default="sqlite,postgres")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for engine in options.engines.split(","):
            database = f"sqlite:///{folder}/rota.db"
            if engine == "postgres":
                from tests.support.postgres import Cluster

                cluster = stack.enter_context(Cluster(fsync=True))
                cluster.start()
                database = cluster.create_database()
            for job in ("plain", "keyed"):
                took = measure(database, job, options.runs)
                print(
                    f"{engine:10} {job:6} commit to start: median {statistics.median(took):.1f} ms,"
                    f" p99 {took[int(len(took) * 0.99)]:.1f} ms over {len(took)} runs",
                    flush=True,
                )


if __name__ == "__main__":
    main()
