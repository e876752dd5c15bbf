"""Unpack archives that tests and campaigns made."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as tar:
        # By attribute: the argument of the same meaning is unknown before Python 3.11.4.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(folder)
