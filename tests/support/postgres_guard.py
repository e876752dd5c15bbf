"""Remove a test cluster whose owner is gone.

The owner holds the other end of standard input and nothing else does: end of file means that it
ended, also by SIGKILL or `os._exit`, when no fixture can clean up. After an orderly end the folders
are gone already and nothing is left to do. Standard library only, to start in an instant.
"""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

# PostgreSQL kills what ignores an immediate stop after 5 seconds.
STOP_SECONDS = 10.0


def main(data: Path, folder: Path) -> None:
    """Wait for the owner's end, then stop the server and remove its folders."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    sys.stdin.buffer.read()
    lock = data / "postmaster.pid"
    try:
        os.kill(int(lock.read_text().split("\n")[0]), signal.SIGQUIT)
    except (FileNotFoundError, ProcessLookupError, ValueError):
        pass
    else:
        # The file, not the process: nobody may be there to reap an orphan.
        deadline = time.monotonic() + STOP_SECONDS
        while lock.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
    shutil.rmtree(data, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
