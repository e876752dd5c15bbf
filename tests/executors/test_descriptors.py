"""What could not start leaves no descriptor behind, least of all when there are few."""

from __future__ import annotations

import subprocess
import sys

import pytest

STARTS = {
    "child": "from rota.executors.child_process import ChildProcess as start",
    "command": """
from rota.executors.shell.command import Command
from rota.executors.shell.plan import Plan

def start():
    plan = Plan(argv=(b"true",), environment={}, folder=None, stdin=b"a text", ok_codes=(0,))
    return Command(plan, kill_after=1.0)
""",
}
# In a process of its own, where nothing else is opened or closed meanwhile.
SCRIPT = """
import os, resource

def opened():
    return {number for number in range(100) if os.path.exists(f"/proc/self/fd/{number}")}

start().reap()  # imports what is needed on the way
before, (soft, hard) = opened(), resource.getrlimit(resource.RLIMIT_NOFILE)
for count, most in enumerate(number for number in range(100) if number not in before):
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))  # so that `count` are free
    try:
        started = start()
    except OSError:
        pass
    else:
        started.reap()
        break
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(count, sorted(opened() - before))
"""


@pytest.mark.parametrize("name", STARTS)
def test_what_cannot_start_leaves_no_descriptor(name: str) -> None:
    """Tried with none free, with one, and so on, until there are enough."""
    told = subprocess.run(
        [sys.executable, "-c", STARTS[name] + SCRIPT], capture_output=True, text=True, timeout=60
    )
    assert told.returncode == 0, told.stderr
    needed, _, left = told.stdout.strip().partition(" ")
    assert int(needed) >= 6
    assert left == "[]"
