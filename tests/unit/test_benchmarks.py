"""Programs of the benchmark know Rota by names that may change, and few people run them all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"
IMPORTS = """
import importlib, sys
sys.path.insert(0, sys.argv.pop(1))
names, sys.argv[1:] = sys.argv[1:], ["minimal"]
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as fault:
        assert fault.name == "uvloop", fault  # of the benchmark's own environment
print("loaded")
"""


def test_every_program_of_the_benchmark_can_be_loaded() -> None:
    names = sorted(one.stem for one in BENCHMARKS.glob("*.py"))
    assert "growth" in names
    told = subprocess.run(
        [sys.executable, "-c", IMPORTS, str(BENCHMARKS), *names], capture_output=True, text=True
    )
    assert told.stdout.strip() == "loaded", told.stderr
