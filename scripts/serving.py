"""A `rota up` for a script that looks at the dashboard, and a client that may do everything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parent.parent


@contextmanager
def serving(folder: Path, app: str) -> Iterator[httpx.Client]:
    """The project in a folder, on a port of its own; its output is in `up.log` there."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{folder}"}
    command = [sys.executable, "-m", "rota.cli", "up", app, "--open-local", "--port", "0"]
    log = folder / "up.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out)
    try:
        while not (url := re.search(r"http://127\.0\.0\.1:\d+", log.read_text("utf-8"))):
            if process.poll() is not None:
                sys.exit(log.read_text("utf-8"))
            time.sleep(0.1)
        token = (folder / ".rota/token").read_text("utf-8").strip()
        with httpx.Client(
            base_url=f"{url[0]}/api/v1",
            headers={"Authorization": f"Bearer {token}"},
            timeout=60,
            transport=httpx.HTTPTransport(retries=10),
        ) as api:
            yield api
    finally:
        process.terminate()
        process.wait()
