"""How soon Rota is there: its import, its command line, and a worker that has begun a run.

    python startup.py URL

Speaks as peers/common.py tells: import S, help S (`rota --help`), cli S (`rota runs`), up S.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

from common import say

import rota

ROTA = str(Path(sys.executable).with_name("rota"))
IMPORT = "import time; began = time.perf_counter(); import rota; print(time.perf_counter() - began)"
APP = """
import rota
app = rota.Rota({url!r})

@app.job()
def noop() -> None:
    print("begun", flush=True)
"""
LONGEST_SECONDS = 30.0


def importing() -> float:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def command_line(*args: str) -> float:
    began = time.perf_counter()
    subprocess.run([ROTA, *args], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def up(url: str) -> float:
    """From the start of the command to the start of a run that waits for it."""
    app = rota.Rota(url)
    app.job("noop")(lambda: None)
    app.enqueue("noop")
    app.close()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "bench_app.py").write_text(APP.format(url=url))
        began = time.perf_counter()
        worker = subprocess.Popen(
            [ROTA, "up", "bench_app:app"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert worker.stdout is not None
            for line in worker.stdout:
                if "begun" in line or time.perf_counter() - began > LONGEST_SECONDS:
                    break
            return time.perf_counter() - began
        finally:
            worker.kill()
            worker.wait()


def second(measure: Callable[..., float], *args: str) -> float:
    """The first time fills the caches of the disk."""
    measure(*args)
    return measure(*args)


if __name__ == "__main__":
    url = sys.argv[1]
    say("import", second(importing))
    say("up", second(up, url))
    say("help", second(command_line, "--help"))
    say("cli", second(command_line, "runs", "--database", url))
