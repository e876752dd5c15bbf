"""Make an environment with the lowest or the newest versions that pyproject.toml allows.

    python scripts/environment.py lowest .venv-lowest python3.11
    python scripts/environment.py newest .venv-newest python3.13

Only what Rota itself asks for differs; the tools of the tests are those of the lock.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESOLUTION = {"lowest": "lowest-direct", "newest": "highest"}
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)


def main(kind: str, folder: str, python: str) -> None:
    place = Path(folder)
    run(python, "-m", "venv", "--clear", str(place))
    own = place / "rota.txt"
    uv(
        "pip", "compile", "--no-header", "--no-annotate", "--extra", "all",
        "--python", str(place / "bin" / "python"), "--resolution", RESOLUTION[kind],
        "pyproject.toml", "--output-file", str(own),
    )  # fmt: skip
    tools = place / "tools.txt"
    tools.write_text(without(Path("requirements-dev.lock").read_text("utf-8"), names(own)))
    # Without dependencies: both files name everything, and the lock may ask for a newer package.
    install = ("pip", "install", "--python", str(place / "bin" / "python"), "--no-deps")
    uv(*install, "--requirement", str(own), "--requirement", str(tools))
    uv(*install, "--no-build-isolation", "--editable", ".")
    print(own.read_text("utf-8"), end="")


def names(pins: Path) -> set[str]:
    return {name.lower() for name in _PIN.findall(pins.read_text("utf-8"))}


def without(lock: str, taken: set[str]) -> str:
    """The pins of the lock but for packages that are pinned already."""
    lines = [line for line in lock.splitlines() if _PIN.match(line)]
    return "".join(f"{line}\n" for line in lines if line.partition("==")[0].lower() not in taken)


def uv(*words: str) -> None:
    run(str(Path(sys.executable).with_name("uv")), *words, "--quiet", "--system-certs")


def run(*words: str) -> None:
    subprocess.run(words, cwd=ROOT, check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
