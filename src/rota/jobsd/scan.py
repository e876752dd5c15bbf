"""Survey a folder of jobs: its units, with a fingerprint of each.

Only names and file status are read, so a survey is cheap enough to repeat often. A unit is a folder
with a job.toml, or a Python file. Names that begin with . or _ are ignored. A folder that cannot be
read is not an empty folder: a survey lists the names it could not see.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from rota.errors import Invalid
from rota.model.limits import FOLDER_DEPTH, FOLDER_ENTRIES, FOLDER_JOBS, check_name

MANIFEST = "job.toml"
SQL, PYTHON, BAD = "sql", "python", "bad"

# File name and status: differs between two contents of a file, without reading it.
Sign = tuple[str, int, int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """The files of one job. `files` are its SQL files in lexical order, `ignored` files such as
    01.SQL that look like SQL files and are none. `fault` is why a unit of kind `bad` is no job;
    `removed` is true if its job.toml is missing."""

    name: str
    kind: str
    path: Path
    files: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    fault: str = ""
    removed: bool = False
    fingerprint: tuple[Sign, ...] = ()


@dataclass(slots=True)
class Survey:
    """All units of a folder. `problems` are messages by path, for files that cannot have a job
    name. `unread` are the names of folders that could not be read, "" for the root, and of jobs
    past the limit."""

    root: Path
    units: dict[str, Unit] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    exists: bool = True

    def hides(self, name: str) -> bool:
        """True if a job of this name may exist in a part of the folder that was not read."""
        if not self.unread or name in self.units:
            return False
        return any(
            part in self.unread for part in ("", *accumulate(name.split("/"), "{}/{}".format))
        )

    def add(self, unit: Unit) -> None:
        other = self.units.get(unit.name)
        if other is None and len(self.units) >= FOLDER_JOBS:
            message = f"more than {FOLDER_JOBS:,} jobs in one folder; use several origins"
            self.problems[self.display_path(self.root)] = message
            self.unread.add(unit.name)
            return
        try:
            check_name(unit.name, "job name")
        except Invalid as fault:
            self.problems[self.display_path(unit.path)] = f"{fault}; rename it"
            return
        if other is not None:
            unit = self._twice(other, unit)
        self.units[unit.name] = unit

    def _twice(self, first: Unit, second: Unit) -> Unit:
        both = f"{self.display_path(first.path)} and {self.display_path(second.path)}"
        fault = f"job {first.name!r} is defined twice: by {both}; rename one of them"
        fingerprints = first.fingerprint + second.fingerprint
        return Unit(
            name=first.name, kind=BAD, path=second.path, fault=fault, fingerprint=fingerprints
        )

    def display_path(self, path: Path) -> str:
        """The path to show for a file: it begins with the name of the folder of jobs."""
        try:
            path_text = str(self.root.name / path.relative_to(self.root))
        except ValueError:
            path_text = str(path)
        return os.fsencode(path_text).decode("utf-8", "backslashreplace")


def survey_folder(root: Path) -> Survey:
    """Every unit under `root`. A file that cannot be read hides no other."""
    survey = Survey(root)
    try:
        survey.exists = stat.S_ISDIR(os.stat(root).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        survey.exists = False
    except OSError as fault:  # the path exists, but cannot be read
        _skip(survey, root, "", _message(fault))
        return survey
    if survey.exists:
        _read_folder(survey, root, "", 0)
    elif root.exists():
        survey.problems[str(root)] = "is not a folder; jobs_dir has to be one"
    return survey


def _read_folder(survey: Survey, folder: Path, name: str, depth: int) -> None:
    try:
        entries = {entry.name: entry for entry in _entries(folder)}
    except (OSError, Invalid) as fault:
        _skip(survey, folder, name, _message(fault))
        return
    seen = sorted(child for child in entries if not child.startswith((".", "_")))
    scripts = tuple(child for child in seen if child.endswith(".sql"))
    if MANIFEST in entries and name:
        ignored = tuple(child for child in seen if is_ignored_file(child))
        signs = tuple(_sign(folder / child) for child in (MANIFEST, *scripts, *ignored))
        unit = Unit(
            name=name, kind=SQL, path=folder, files=scripts, ignored=ignored, fingerprint=signs
        )
        survey.add(unit)
        return
    loose = (
        [child for child in seen if child == MANIFEST or child.endswith(".sql")] if not name else []
    )
    for child in loose:
        message = f"lies in the folder of jobs itself; put it into {survey.root.name}/NAME/"
        survey.problems[survey.display_path(folder / child)] = message
    pythons = [child for child in seen if child.endswith(".py")]
    others = [child for child in seen if not child.endswith(".py")]
    folders = [child for child in others if _is_folder(survey, entries[child], _join(name, child))]
    for child in pythons:
        path = folder / child
        job = _join(name, child).removesuffix(".py")
        survey.add(Unit(name=job, kind=PYTHON, path=path, fingerprint=(_sign(path),)))
    for child in folders:
        _descend(survey, folder / child, _join(name, child), depth + 1)
    if name and scripts and not pythons and not folders:
        message = f'has .sql files and no {MANIFEST}; add one that begins: schedule = "0 3 * * *"'
        _add_bad(survey, folder, name, message, scripts, removed=True)


def is_ignored_file(name: str) -> bool:
    """True for names such as 01.SQL.

    Only .sql counts: file systems differ in the order of names that differ in case, and in
    whether both can exist."""
    return name.lower().endswith(".sql") and not name.endswith(".sql")


def _descend(survey: Survey, folder: Path, name: str, depth: int) -> None:
    is_link = os.path.islink(folder)  # False on errors: then it is unreadable too
    if depth > FOLDER_DEPTH:
        _skip(survey, folder, name, f"lies deeper than {FOLDER_DEPTH} folders; move it up")
    elif is_link and not is_inside(folder, survey.root):
        _skip(survey, folder, name, "is a link out of the folder of jobs; copy it into it")
    elif is_link and _leads_back(folder, survey.root):
        # Following it would find the same jobs again at each level.
        _skip(survey, folder, name, "is a link to a folder that it lies in; remove it")
    else:
        _read_folder(survey, folder, name, depth)


def _leads_back(link: Path, root: Path) -> bool:
    """True if the link leads to one of its own parent folders."""
    folders = [root, *(parent for parent in link.parents if parent.is_relative_to(root))]
    return any(is_inside(parent, link) for parent in folders)


def _skip(survey: Survey, folder: Path, name: str, message: str) -> None:
    """Record a folder as unread, with the reason."""
    survey.unread.add(name)
    if name:
        _add_bad(survey, folder, name, message)
    else:
        survey.problems[survey.display_path(folder)] = message


def _message(fault: OSError | Invalid) -> str:
    return f"cannot be read: {fault.strerror if isinstance(fault, OSError) else fault}"


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _add_bad(
    survey: Survey,
    folder: Path,
    name: str,
    message: str,
    files: tuple[str, ...] = (),
    *,
    removed: bool = False,
) -> None:
    signs = (_sign(folder), *(_sign(folder / file) for file in files))
    bad = Unit(name=name, kind=BAD, path=folder, fault=message, removed=removed, fingerprint=signs)
    survey.add(bad)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for count, entry in enumerate(entries):
            if count >= FOLDER_ENTRIES:
                raise Invalid(f"it has more than {FOLDER_ENTRIES:,} entries; move data elsewhere")
            yield entry


def _is_folder(survey: Survey, entry: os.DirEntry[str], name: str) -> bool:
    try:
        return entry.is_dir()
    except OSError as fault:  # a link whose target cannot be reached now
        survey.unread.add(name)
        survey.problems[survey.display_path(Path(entry.path))] = _message(fault)
        return False


def is_inside(path: Path, folder: Path) -> bool:
    """True if `path` is in `folder` after both are resolved through links."""
    real, root = os.path.realpath(path), os.path.realpath(folder)
    return real == root or real.startswith(root + os.sep)


def _sign(path: Path) -> Sign:
    try:
        status = os.stat(path)
    except OSError as fault:
        return (path.name, -1, fault.errno or 0, 0, 0, 0)
    # Size and times of a folder change with its entries; only its identity matters.
    if stat.S_ISDIR(status.st_mode):
        return (path.name, status.st_mode, status.st_ino, 0, 0, 0)
    return (
        path.name, status.st_mode, status.st_ino, status.st_size,
        status.st_mtime_ns, status.st_ctime_ns,
    )  # fmt: skip
