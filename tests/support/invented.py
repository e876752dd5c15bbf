"""A schema as a later version of Rota would have it: its SQL, copied and changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rota.storage import schema
from rota.storage.dialects import DIALECTS


class InventedSchema:
    """From now on stores are migrated by the SQL in `folder`, until `monkeypatch` is undone."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        ours = schema.FOLDER
        for file in (*ours.glob("*.sql"), *ours.glob("*/*.sql")):
            copy = folder / file.relative_to(ours)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        monkeypatch.setattr(schema, "FOLDER", folder)

    def add_migration(self, number: int, name: str, sql: str) -> str:
        """The name of a migration that every engine has from now on."""
        for engine in DIALECTS:
            file = self.folder / engine / "migrations" / f"{number:04}_{name}.sql"
            file.parent.mkdir(exist_ok=True)
            file.write_text(sql)
        return f"{number:04}_{name}"

    def replace(self, file: str, old: str, new: str) -> None:
        """Change a file, where it has `old` exactly once."""
        text = (self.folder / file).read_text()
        assert text.count(old) == 1, f"{file} has {text.count(old)} times {old!r}"
        (self.folder / file).write_text(text.replace(old, new))
