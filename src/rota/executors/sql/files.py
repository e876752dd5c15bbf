"""Reads the files of a SQL job: whole, bounded, and only inside its folder.

A version of a job has the hash of each file's text, and only that text runs under it. If the file
has been edited since, and the edit was refused or not yet read, the text stored by an earlier run
is used.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from rota.errors import Invalid
from rota.model.interpolate import variables
from rota.model.job import Job
from rota.model.limits import SQL_FILE_BYTES, SQL_FILES
from rota.model.steps import StepFile, text_hash

OR_MEND = ", or mend what `rota check` says of this job"
# Stored texts by hash; hashes without a stored text are missing.
FindTexts = Callable[[Collection[str]], Mapping[str, str]]


def read_scripts(job: Job, stored: FindTexts) -> list[tuple[str, str]]:
    """Names and texts of a job's files, in order; raises Invalid if any is missing."""
    folder, names = job.spec["folder"], job.spec["files"]
    if len(names) > SQL_FILES:
        raise Invalid(f"{folder} has {len(names):,} SQL files; the limit is {SQL_FILES:,}")
    hashes: Mapping[str, str] = job.spec.get("hashes", {})
    texts, faults = {}, {}
    for name in names:
        try:
            texts[name] = _read(Path(folder), name, hashes.get(name))
        except Invalid as fault:
            faults[name] = str(fault)
    if faults:
        by_hash = stored([hashes[name] for name in faults if name in hashes])
        texts |= {name: by_hash[hashes[name]] for name in faults if hashes.get(name) in by_hash}
    for name, fault_text in faults.items():
        if name not in texts:
            raise Invalid(f"job {job.name!r}: {fault_text}{OR_MEND if name in hashes else ''}")
    return [(name, texts[name]) for name in names]


def _read(root: Path, name: str, expected_hash: str | None) -> str:
    """The text of a file; raises Invalid if it has another hash."""
    if not root.is_dir():
        raise Invalid(f"the folder {root} is gone; bring it back, or remove the job")
    text = read_text(root / name, root)
    if expected_hash is not None and text_hash(text) != expected_hash:
        raise Invalid(
            f"{name} is not the text of the last good version, which is not kept; bring it back"
        )
    return text


def step_file(number: int, name: str, text: str, dialect: str) -> StepFile:
    try:
        return StepFile(number=number, name=name, text=text, variables=variables(text, dialect))
    except Invalid as fault:
        raise Invalid(f"{name}: {fault}") from None


def read_text(path: Path, root: Path | None = None) -> str:
    """The text of a file; raises Invalid if its real path is outside `root`."""
    name = path.name
    if root is not None and not path.resolve().is_relative_to(root.resolve()):
        raise Invalid(f"{name} is a link out of its folder; copy the file into it")
    try:
        # O_NONBLOCK: opening a FIFO would wait. Its type is checked below.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Invalid(f"{name} is gone; bring it back") from None
    except OSError as fault:
        raise Invalid(f"{name} cannot be read: {fault.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Invalid(f"{name} is not a plain file; a SQL job is made of plain files")
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(SQL_FILE_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > SQL_FILE_BYTES:
        raise Invalid(
            f"{name} is larger than {SQL_FILE_BYTES:,} bytes; load large data from a data file"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = content.count(b"\n", 0, fault.start) + 1
        raise Invalid(f"{name}:{line}: is not UTF-8; save it as UTF-8") from None
    if "\0" in text:
        raise Invalid(f"{name} holds a NUL character; save it as text in UTF-8")
    return text
