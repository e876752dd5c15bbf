"""Wheel and sdist: what is in them, what they say of themselves, and that the core stays small.

Installing with each extra into an empty environment needs the index: `make package`.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from itertools import chain
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from trove_classifiers import classifiers

import rota
from tests.support.archives import unpack
from tests.surface.conftest import environment

ROOT = Path(__file__).resolve().parents[2]
NAME = f"rota-{rota.__version__}"
# As an installer calls it: the hooks of PEP 517, in the folder of the project.
BUILD = """
import sys
from hatchling.build import build_sdist, build_wheel
build_sdist(sys.argv[1])
build_wheel(sys.argv[1])
"""
# What people have in a checkout that was used, and nobody wants to publish.
LITTER = (
    "src/rota/__pycache__/app.cpython-311.pyc", "tests/__pycache__/x.pyc", ".venv/secret",
    ".rota/token", "rota.db", "examples/.rota/token", "examples/rota.db", "examples/rota.db-wal",
    "examples/warehouse.duckdb", "build/site/index.html", "dist/rota-0.0.1.tar.gz",
    ".pytest_cache/x", ".mypy_cache/x", ".env", "notes.txt",
)  # fmt: skip
# The core and what it brings along. One more is a decision: CORE_BELOW is a promise.
CORE = {
    "anyio", "idna", "markdown-it-py", "mdurl", "msgspec", "pygments", "rich", "typing-extensions",
    "tzdata", "watchfiles",
}  # fmt: skip
CORE_BELOW, CORE_BYTES_BELOW = 11, 15_000_000


@dataclass(frozen=True)
class Built:
    wheel: Path
    wheel_files: set[str]
    sdist_files: set[str]
    metadata: Message


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def build(project: Path, place: Path) -> Built:
    subprocess.run([sys.executable, "-c", BUILD, str(place)], cwd=project, check=True)
    wheel = place / f"{NAME}-py3-none-any.whl"
    with ZipFile(wheel) as archive:
        files = set(archive.namelist())
        metadata = archive.read(f"{NAME}.dist-info/METADATA").decode()
    with tarfile.open(place / f"{NAME}.tar.gz") as archive:
        sources = {one.name.removeprefix(f"{NAME}/") for one in archive if one.isfile()}
    return Built(wheel, files, sources, Parser().parsestr(metadata))


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(built: Built) -> None:
    source = ROOT / "src"
    package = {
        str(path.relative_to(source))
        for path in (source / "rota").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    about = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
    assert built.wheel_files == package | {f"{NAME}.dist-info/{name}" for name in about}
    assert "rota/storage/common.sql" in built.wheel_files
    assert "rota/storage/postgres/fast_paths.sql" in built.wheel_files
    for engine in ("sqlite", "postgres", "duckdb"):
        assert f"rota/storage/{engine}/queries.sql" in built.wheel_files
        assert f"rota/storage/{engine}/schema.sql" in built.wheel_files
    for name in ("py.typed", "web/static/index.html", "web/static/vendor/preact.mjs"):
        assert f"rota/{name}" in built.wheel_files
    kinds = {Path(name).suffix for name in package}
    assert kinds == {".py", ".typed", ".sql", ".js", ".mjs", ".css", ".html", ".svg", ".md", ".toml", ".LICENSE"}  # fmt: skip  # noqa: E501


def test_the_sdist_is_enough_to_build_and_test_and_takes_no_litter(
    built: Built, tmp_path: Path
) -> None:
    """Also what `make up` leaves in the examples: a token, and a store."""
    tops = {name.partition("/")[0] for name in built.sdist_files}
    assert tops == {
        ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "PKG-INFO",
        "README.md", "benchmarks", "deploy", "docs", "examples", "hatch_build.py",
        "mkdocs.yml", "pyproject.toml",
        "requirements-dev.lock", "scripts", "src", "tests",
    }  # fmt: skip
    unpack(built.wheel.with_name(f"{NAME}.tar.gz"), tmp_path)
    unpacked = tmp_path / NAME
    for name in LITTER:
        (unpacked / name).parent.mkdir(parents=True, exist_ok=True)
        (unpacked / name).write_text("secret")
    again = build(unpacked, tmp_path / "again")
    assert again.wheel_files == built.wheel_files
    assert again.sdist_files == built.sdist_files


def test_it_says_what_it_is(built: Built) -> None:
    told = built.metadata
    assert (told["Name"], told["Version"]) == ("rota", rota.__version__)
    assert told["License-Expression"] == "Apache-2.0"
    assert told.get_all("License-File") == ["LICENSE"]
    assert told["Description-Content-Type"] == "text/markdown"
    assert told["Summary"].startswith("Run SQL and Python on a timetable")
    marks = told.get_all("Classifier", [])
    assert set(marks) <= classifiers, "an index refuses what it does not know"
    versions = [mark.rpartition(" ")[2] for mark in marks if " :: Python :: 3." in mark]
    assert told["Requires-Python"] == f">={versions[0]}"
    assert "Typing :: Typed" in marks
    with ZipFile(built.wheel) as archive:
        entries = archive.read(f"{NAME}.dist-info/entry_points.txt").decode()
    assert entries.split() == ["[console_scripts]", "rota", "=", "rota.cli.main:main"]


def test_an_extra_for_each_part_and_one_for_all(built: Built) -> None:
    extras = set(built.metadata.get_all("Provides-Extra", []))
    assert extras == {"postgres", "duckdb", "web", "otel", "all"}
    parts = {extra: required(built, extra) - required(built) for extra in extras}
    assert parts["all"] == set().union(*(parts[extra] for extra in extras - {"all"}))
    assert parts["postgres"] == {"psycopg"}
    assert parts["duckdb"] == {"duckdb", "pytz"}
    assert parts["web"] == {"anyio", "h11", "prometheus-client", "starlette", "uvicorn"}
    assert parts["otel"] == {"opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"}


def test_packages_whose_inner_parts_are_used_have_an_upper_bound(built: Built) -> None:
    found = [Requirement(one) for one in built.metadata.get_all("Requires-Dist", [])]
    bounded = {one.name for one in found if any(part.operator == "<" for part in one.specifier)}
    assert bounded >= {"duckdb", "msgspec", "psycopg", "uvicorn"}


def test_the_description_has_no_relative_link(built: Built) -> None:
    """On the page of an index they would lead nowhere."""
    text = built.metadata.get_payload()
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(targets) > 10
    assert [one for one in targets if not one.startswith("https://")] == []
    picture = re.search(r"!\[[^\]]+\]\((\S+)\)", text)
    assert picture is not None
    path = picture[1].partition("/blob/")[2].partition("/")[2].partition("?")[0]
    assert (ROOT / path).is_file()
    assert picture[1].endswith("?raw=true")


def test_links_of_the_project_are_there(built: Built) -> None:
    urls = dict(one.split(", ") for one in built.metadata.get_all("Project-URL", []))
    assert set(urls) == {"Source", "Documentation", "Changelog", "Issues"}
    assert built.metadata["Author"]


def test_two_builds_are_equal(built: Built, tmp_path: Path) -> None:
    again = build(ROOT, tmp_path)
    assert again.wheel.read_bytes() == built.wheel.read_bytes()
    name = f"{NAME}.tar.gz"
    assert (tmp_path / name).read_bytes() == built.wheel.with_name(name).read_bytes()


def test_the_core_has_these_packages_and_is_small(built: Built) -> None:
    # anyio needs one of them, by its version.
    varies = {"sniffio", "typing-extensions"}
    assert core(built) - varies == CORE - varies
    assert len(core(built) & varies) == 1
    assert len(CORE) < CORE_BELOW
    assert f"The core brings {len(CORE)} small packages" in (ROOT / "README.md").read_text("utf-8")
    with ZipFile(built.wheel) as archive:
        size = sum(one.file_size for one in archive.infolist())
    size += sum(file_sizes(CORE))
    assert size < CORE_BYTES_BELOW


def test_the_wheel_works_where_it_is_unpacked(built: Built, tmp_path: Path) -> None:
    """It finds its statements and migrations in there, not in this checkout."""
    home, here = tmp_path / "packages", tmp_path / "here"
    here.mkdir()
    with ZipFile(built.wheel) as archive:
        archive.extractall(home)
    told = environment() | {"PYTHONPATH": str(home)}
    script = "import sys, rota; from rota.cli.main import main; print(rota.__file__); sys.exit(main(['migrate']))"  # noqa: E501
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=here, env=told, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(home))
    assert (here / "rota.db").stat().st_size > 0


def test_the_lock_has_what_the_package_asks_for() -> None:
    """`make test` installs the lock and Rota without its dependencies."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lock = (ROOT / "requirements-dev.lock").read_text("utf-8")
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lock.splitlines()}
    asked = chain(project["dependencies"], *project["optional-dependencies"].values())
    names = {canonicalize_name(Requirement(one).name) for one in asked}
    assert names - {"rota"} <= pinned


def required(built: Built, extra: str = "") -> set[str]:
    found = [Requirement(one) for one in built.metadata.get_all("Requires-Dist", [])]
    return {
        canonicalize_name(one.name)
        for one in found
        if one.marker is None or one.marker.evaluate({"extra": extra})
    }


def core(built: Built) -> set[str]:
    """All packages that come with Rota alone, as they are installed here."""
    found: set[str] = set()
    wanted = required(built)
    while wanted:
        name = wanted.pop()
        found.add(name)
        needs = [Requirement(one) for one in importlib.metadata.requires(name) or ()]
        wanted |= {
            canonicalize_name(one.name)
            for one in needs
            if one.marker is None or one.marker.evaluate({"extra": ""})
        } - found
    return found


def file_sizes(names: set[str]) -> Iterator[int]:
    """Of what the packages hold; bytecode is made from it, and may be left out."""
    for name in names:
        for file in importlib.metadata.files(name) or ():
            path = Path(str(file.locate()))
            if file.suffix != ".pyc" and path.exists():
                yield path.stat().st_size
