"""The libraries of the dashboard that are kept in this repository: check them, or fetch them anew.

    python scripts/vendor.py             every file is what VENDOR.toml says; needs no network
    python scripts/vendor.py --fetch     fetch the versions that VENDOR.toml names, with npm
    python scripts/vendor.py --newest    the same with the newest versions, and write them down

Files are kept as they are published, byte for byte: no build step touches them, and whoever doubts
them compares.
"""

import argparse
import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "src/rota/web/static/vendor/VENDOR.toml"
HEAD = """\
# What is kept of which package, as it is published. Written by scripts/vendor.py.
# `integrity` is of the package, `sha256` of each file.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """`source` is the name inside the package, `path` where it is kept in this repository."""

    source: str
    path: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    name: str
    version: str
    licence: str
    integrity: str
    files: tuple[File, ...]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fetch", action="store_true", help="fetch the versions that are listed")
    parser.add_argument("--newest", action="store_true", help="fetch the newest, and list them")
    arguments = parser.parse_args()
    packages = read_list()
    if arguments.fetch or arguments.newest:
        packages = [fetch(package, newest=arguments.newest) for package in packages]
        LIST.write_text(as_toml(packages), "utf-8")
    wrong = [problem for package in packages for problem in problems_of(package)]
    for problem in wrong:
        print(problem, file=sys.stderr)
    if not wrong:
        files = sum(len(package.files) for package in packages)
        print(f"{len(packages)} packages, {files} files: all as listed in {LIST.name}")
    return 1 if wrong else 0


def read_list() -> list[Package]:
    told = tomllib.loads(LIST.read_text("utf-8"))
    return [
        Package(
            name=one["name"],
            version=one["version"],
            licence=one["licence"],
            integrity=one["integrity"],
            files=tuple(File(**file) for file in one["files"]),
        )
        for one in told["package"]
    ]


def problems_of(package: Package) -> list[str]:
    found = []
    for file in package.files:
        path = ROOT / file.path
        if not path.is_file():
            found.append(f"{file.path} is missing; run scripts/vendor.py --fetch")
        elif sha256(path.read_bytes()) != file.sha256:
            found.append(f"{file.path} is not what {package.name} {package.version} has")
    return found


def fetch(package: Package, *, newest: bool) -> Package:
    wanted = package.name if newest else f"{package.name}@{package.version}"
    with tempfile.TemporaryDirectory() as scratch:
        command = ["npm", "pack", "--json", "--silent", wanted]
        answer = subprocess.run(command, cwd=scratch, check=True, capture_output=True, text=True)
        told: dict[str, Any] = json.loads(answer.stdout)[0]
        archive = next(Path(scratch).glob("*.tgz"))
        integrity = (
            f"sha512-{base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()}"
        )
        if not newest and integrity != package.integrity and package.integrity:
            sys.exit(f"{wanted} is another package than it was: {integrity}")
        with tarfile.open(archive) as packed:
            described = json.loads(read_member(packed, "package.json"))
            files = tuple(keep(packed, file) for file in package.files)
    return Package(
        name=package.name,
        version=told["version"],
        licence=described["license"],
        integrity=integrity,
        files=files,
    )


def keep(packed: tarfile.TarFile, file: File) -> File:
    content = read_member(packed, file.source)
    path = ROOT / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return File(source=file.source, path=file.path, sha256=sha256(content))


def read_member(packed: tarfile.TarFile, name: str) -> bytes:
    member = packed.extractfile(f"package/{name}")
    if member is None:
        sys.exit(f"there is no {name} in the package")
    return member.read()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def as_toml(packages: list[Package]) -> str:
    lines = [HEAD]
    for package in packages:
        lines += [
            "[[package]]",
            f'name = "{package.name}"',
            f'version = "{package.version}"',
            f'licence = "{package.licence}"',
            f'integrity = "{package.integrity}"',
            "files = [",
            *(
                f'    {{ source = "{file.source}", path = "{file.path}", '
                f'sha256 = "{file.sha256}" }},'
                for file in package.files
            ),
            "]",
            "",
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
