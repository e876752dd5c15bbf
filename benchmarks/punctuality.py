"""How late a run starts against its due time, and what an idle process costs.

    python benchmarks/punctuality.py [--seconds 60] [--postgres URL]

Prints, per engine: start of a once-per-second run against its due time (median, p99, worst), and
the CPU of an idle process that has 10,000 schedules of which none is due.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

CHILD = """
import os, sys, time, rota
app = rota.Rota(os.environ["BENCH_DATABASE"])

@app.job()
def tick(ctx: rota.Context) -> None:
    print((time.time() - ctx.scheduled_at.timestamp()) * 1000, flush=True)

@app.job()
async def nothing() -> None: ...

if sys.argv[1] == "tick":
    app.schedule("tick", job="tick", every="1s", overlap="allow")
app.run()
"""


def lateness(database: str, seconds: float) -> list[float]:
    child = _start(database, "tick")
    try:
        assert child.stdout is not None
        end = time.monotonic() + seconds
        late = []
        while time.monotonic() < end:
            late.append(float(child.stdout.readline()))
        return late[1:]  # the first one pays for the start of its thread
    finally:
        _stop(child)


def idle_cpu(database: str, schedules: int, seconds: float) -> tuple[float, float]:
    """(per cent of one core, MB resident)."""
    import rota

    app = rota.Rota(database)

    @app.job()
    async def nothing() -> None: ...

    for number in range(schedules):
        app.schedule(f"yearly-{number}", job="nothing", cron="0 0 1 1 *")
    app.load()
    app.close()
    child = _start(database, "idle")
    try:
        time.sleep(5)
        before, began = _cpu_seconds(child.pid), time.monotonic()
        time.sleep(seconds)
        used = _cpu_seconds(child.pid) - before
        return 100 * used / (time.monotonic() - began), _resident_mb(child.pid)
    finally:
        _stop(child)


def _start(database: str, what: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, what],
        env={**os.environ, "BENCH_DATABASE": database},
        stdout=subprocess.PIPE,
        text=True,
    )


def _stop(child: subprocess.Popen[str]) -> None:
    child.terminate()
    child.wait(30)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--engines", default="sqlite,postgres")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for engine in options.engines.split(","):
            if engine == "sqlite":
                databases = [f"sqlite:///{folder}/late.db", f"sqlite:///{folder}/idle.db"]
            else:
                from tests.support.postgres import Cluster

                cluster = stack.enter_context(Cluster(fsync=True))
                cluster.start()
                databases = [cluster.create_database(), cluster.create_database()]
            late = sorted(lateness(databases[0], options.seconds))
            p99 = late[min(len(late) - 1, int(len(late) * 0.99))]
            print(
                f"{engine:10} start after due: median {statistics.median(late):.1f} ms, "
                f"p99 {p99:.1f} ms, worst {late[-1]:.1f} ms over {len(late)} runs",
                flush=True,
            )
            cpu, memory = idle_cpu(databases[1], options.schedules, options.seconds)
            print(
                f"{engine:10} idle with {options.schedules:,} schedules: {cpu:.2f} % of a core, "
                f"{memory:.0f} MB",
                flush=True,
            )


if __name__ == "__main__":
    main()
