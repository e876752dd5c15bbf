"""Look through a folder of jobs: which units there are, and a fingerprint of each.

Nothing is read here but names and dates, so a look costs little and can be had often. A unit is a
folder with a job.toml, or a Python file. Names that begin with . or _ are nobody's job. What could
not be looked at is not the same as nothing: a survey says which names it cannot speak of.
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

# What tells one content of a file from the next without reading it.
Sign = tuple[str, int, int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What one job is made of. `files` are its SQL files in lexical order; `fault` says why a
    unit of kind `bad` is none, and `removed` that its job.toml is not there. `passed` are files
    that look as if they were meant, and are not."""

    name: str
    kind: str
    path: Path
    files: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    fault: str = ""
    removed: bool = False
    fingerprint: tuple[Sign, ...] = ()


@dataclass(slots=True)
class Survey:
    """Everything in a folder. `problems` are about things that cannot even have a name, by
    place; `unread` are the names of folders that were not looked into, "" for the root, and of jobs
    past the limit."""

    root: Path
    units: dict[str, Unit] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    exists: bool = True

    def hides(self, name: str) -> bool:
        """True if there may be a job of this name that was not seen."""
        if not self.unread or name in self.units:
            return False
        return any(one in self.unread for one in ("", *accumulate(name.split("/"), "{}/{}".format)))

    def add(self, unit: Unit) -> None:
        other = self.units.get(unit.name)
        if other is None and len(self.units) >= FOLDER_JOBS:
            told = f"more than {FOLDER_JOBS:,} jobs in one folder; use several origins"
            self.problems[self.place(self.root)] = told
            self.unread.add(unit.name)
            return
        try:
            check_name(unit.name, "job name")
        except Invalid as fault:
            self.problems[self.place(unit.path)] = f"{fault}; rename it"
            return
        if other is not None:
            unit = self._twice(other, unit)
        self.units[unit.name] = unit

    def _twice(self, one: Unit, two: Unit) -> Unit:
        both = f"{self.place(one.path)} and {self.place(two.path)}"
        fault = f"job {one.name!r} is defined twice: by {both}; rename one of them"
        prints = one.fingerprint + two.fingerprint
        return Unit(name=one.name, kind=BAD, path=two.path, fault=fault, fingerprint=prints)

    def place(self, path: Path) -> str:
        """A file as people name it: beginning with the name of the folder of jobs."""
        try:
            told = str(self.root.name / path.relative_to(self.root))
        except ValueError:
            told = str(path)
        return os.fsencode(told).decode("utf-8", "backslashreplace")


def survey(root: Path) -> Survey:
    """Every unit under `root`. One thing that cannot be looked at hides no other."""
    found = Survey(root)
    try:
        found.exists = stat.S_ISDIR(os.stat(root).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        found.exists = False
    except OSError as fault:  # there is something, and nobody can say what
        _skip(found, root, "", _told(fault))
        return found
    if found.exists:
        _look(found, root, "", 0)
    elif root.exists():
        found.problems[str(root)] = "is not a folder; jobs_dir has to be one"
    return found


def _look(found: Survey, folder: Path, name: str, depth: int) -> None:
    try:
        entries = {entry.name: entry for entry in _entries(folder)}
    except (OSError, Invalid) as fault:
        _skip(found, folder, name, _told(fault))
        return
    seen = sorted(one for one in entries if not one.startswith((".", "_")))
    scripts = tuple(one for one in seen if one.endswith(".sql"))
    if MANIFEST in entries and name:
        passed = tuple(one for one in seen if is_passed_over(one))
        signs = tuple(_sign(folder / one) for one in (MANIFEST, *scripts, *passed))
        unit = Unit(
            name=name, kind=SQL, path=folder, files=scripts, passed=passed, fingerprint=signs
        )
        found.add(unit)
        return
    loose = [one for one in seen if one == MANIFEST or one.endswith(".sql")] if not name else []
    for one in loose:
        told = f"lies in the folder of jobs itself; put it into {found.root.name}/NAME/"
        found.problems[found.place(folder / one)] = told
    pythons = [one for one in seen if one.endswith(".py")]
    others = [one for one in seen if not one.endswith(".py")]
    folders = [one for one in others if _is_folder(found, entries[one], _join(name, one))]
    for one in pythons:
        path = folder / one
        job = _join(name, one).removesuffix(".py")
        found.add(Unit(name=job, kind=PYTHON, path=path, fingerprint=(_sign(path),)))
    for one in folders:
        _descend(found, folder / one, _join(name, one), depth + 1)
    if name and scripts and not pythons and not folders:
        told = f'has .sql files and no {MANIFEST}; add one that begins: schedule = "0 3 * * *"'
        _add_bad(found, folder, name, told, scripts, removed=True)


def is_passed_over(name: str) -> bool:
    """True for a .SQL: which of two names that differ in case comes first, or whether both can be,
    is another answer on another disk, so only .sql counts."""
    return name.lower().endswith(".sql") and not name.endswith(".sql")


def _descend(found: Survey, folder: Path, name: str, depth: int) -> None:
    is_link = os.path.islink(folder)  # False if that cannot be known; then it cannot be read either
    if depth > FOLDER_DEPTH:
        _skip(found, folder, name, f"lies deeper than {FOLDER_DEPTH} folders; move it up")
    elif is_link and not is_inside(folder, found.root):
        _skip(found, folder, name, "is a link out of the folder of jobs; copy it into it")
    elif is_link and _leads_back(folder, found.root):
        # What is in it would be many jobs, one within the other.
        _skip(found, folder, name, "is a link to a folder that it lies in; remove it")
    else:
        _look(found, folder, name, depth)


def _leads_back(link: Path, root: Path) -> bool:
    """True if the way to the link has been through what it leads to."""
    way = [root, *(one for one in link.parents if one.is_relative_to(root))]
    return any(is_inside(one, link) for one in way)


def _skip(found: Survey, folder: Path, name: str, told: str) -> None:
    """Leave a folder without a look into it."""
    found.unread.add(name)
    if name:
        _add_bad(found, folder, name, told)
    else:
        found.problems[found.place(folder)] = told


def _told(fault: OSError | Invalid) -> str:
    return f"cannot be read: {fault.strerror if isinstance(fault, OSError) else fault}"


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _add_bad(
    found: Survey,
    folder: Path,
    name: str,
    told: str,
    files: tuple[str, ...] = (),
    *,
    removed: bool = False,
) -> None:
    signs = (_sign(folder), *(_sign(folder / one) for one in files))
    bad = Unit(name=name, kind=BAD, path=folder, fault=told, removed=removed, fingerprint=signs)
    found.add(bad)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for count, entry in enumerate(entries):
            if count >= FOLDER_ENTRIES:
                raise Invalid(f"it has more than {FOLDER_ENTRIES:,} entries; move data elsewhere")
            yield entry


def _is_folder(found: Survey, entry: os.DirEntry[str], name: str) -> bool:
    try:
        return entry.is_dir()
    except OSError as fault:  # a link to somewhere that cannot be reached now
        found.unread.add(name)
        found.problems[found.place(Path(entry.path))] = _told(fault)
        return False


def is_inside(path: Path, folder: Path) -> bool:
    """True if what `path` leads to lies in `folder`, wherever links go on the way."""
    real, root = os.path.realpath(path), os.path.realpath(folder)
    return real == root or real.startswith(root + os.sep)


def _sign(path: Path) -> Sign:
    try:
        status = os.stat(path)
    except OSError as fault:
        return (path.name, -1, fault.errno or 0, 0, 0, 0)
    # A folder changes with whatever is put into it; only that it is the same one matters.
    if stat.S_ISDIR(status.st_mode):
        return (path.name, status.st_mode, status.st_ino, 0, 0, 0)
    return (
        path.name, status.st_mode, status.st_ino, status.st_size,
        status.st_mtime_ns, status.st_ctime_ns,
    )  # fmt: skip
