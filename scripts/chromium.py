"""Install Debian's chromium if there is none: the tests of the dashboard drive it.

Where that is not possible (no apt-get, or neither root nor sudo without a password), say so: those
tests are then skipped, except on continuous integration, where they fail.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

NAMES = ("chromium", "chromium-browser", "google-chrome")
VARIABLE = "ROTA_TEST_CHROMIUM"


def found() -> str | None:
    """The path of a chromium, if there is one here."""
    told = os.environ.get(VARIABLE)
    return told or next((path for name in NAMES if (path := shutil.which(name))), None)


def main() -> int:
    if found():
        return 0
    if shutil.which("apt-get") is None:
        return tell("there is no apt-get here")
    before: tuple[str, ...] = ()
    if os.geteuid() != 0:
        before = ("sudo", "-n")
        if shutil.which("sudo") is None or not works(*before, "true"):
            return tell("this user is not root, and sudo wants a password")
    print("Installing chromium for the tests of the dashboard, once.", flush=True)
    install = (*before, "apt-get", "install", "--yes", "--no-install-recommends", "chromium")
    # The list of packages may be old, or empty as in a container.
    if works(*install) or (works(*before, "apt-get", "update") and works(*install)):
        return 0
    return tell("apt-get cannot install it")


def works(*command: str) -> bool:
    return run(command).returncode == 0


def run(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, env=environment, capture_output=True)


def tell(why: str) -> int:
    print(
        f"chromium is missing, and {why}: tests of the dashboard are skipped. Install it, or set "
        f"{VARIABLE} to the path of one.",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
