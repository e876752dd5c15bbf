"""The files of a SQL job, read as a run begins: whole, bounded, and from inside its folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from rota.errors import Invalid
from rota.model.interpolate import variables
from rota.model.limits import SQL_FILE_BYTES, SQL_FILES
from rota.model.steps import StepFile


def read_folder(folder: str, names: Sequence[str], dialect: str) -> list[StepFile]:
    """All files of a job, in order."""
    if len(names) > SQL_FILES:
        raise Invalid(f"{folder} has {len(names):,} SQL files; the limit is {SQL_FILES:,}")
    root = Path(folder)
    if not root.is_dir():
        raise Invalid(f"the folder {folder} is gone; bring it back, or remove the job")
    return [
        step_file(number, name, read_text(root / name, root), dialect)
        for number, name in enumerate(names, start=1)
    ]


def step_file(number: int, name: str, text: str, dialect: str) -> StepFile:
    try:
        return StepFile(number=number, name=name, text=text, variables=variables(text, dialect))
    except Invalid as fault:
        raise Invalid(f"{name}: {fault}") from None


def read_text(path: Path, root: Path | None = None) -> str:
    """A text file that lies in `root`, whatever links there are on the way."""
    name = path.name
    if root is not None and not path.resolve().is_relative_to(root.resolve()):
        raise Invalid(f"{name} is a link out of its folder; copy the file into it")
    try:
        # Not to wait for a FIFO: what was opened is looked at before it is read.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Invalid(f"{name} is gone since the job was read; bring it back") from None
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
