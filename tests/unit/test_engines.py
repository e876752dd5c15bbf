"""An engine is known in each place that has to know it; CONTRIBUTING has them in order."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from rota.executors.targets import KINDS
from rota.flow.doctor_store import PRODUCTS
from rota.model import sql_lexer, sql_script
from rota.storage.dialects import DIALECTS
from tests.conformance.support import PLACE_TYPES
from tests.support.stores import STORE_FIXTURES

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = sorted(file.parent for file in (ROOT / "src/rota/storage").glob("*/schema.sql"))
FILES = {
    "__init__.py", "connect.py", "engine.py", "faults.py", "queries.sql", "schema.sql", "select.py",
    "step.py", "transaction.py", "views.sql",
}  # fmt: skip
NAMED_IN = {
    "DIALECTS of storage/dialects.py": DIALECTS,
    "KINDS of executors/targets.py": KINDS.values(),
    "DIALECTS of model/sql_lexer.py": sql_lexer.DIALECTS,
    "_SESSION of model/sql_script.py": sql_script._SESSION,
    "PRODUCTS of flow/doctor_store.py": PRODUCTS,
    "PLACE_TYPES of tests/conformance/support.py": PLACE_TYPES,
    "STORE_FIXTURES of tests/support/stores.py": STORE_FIXTURES,
}


@pytest.mark.parametrize("table", NAMED_IN)
def test_every_engine_is_named(table: str) -> None:
    assert set(NAMED_IN[table]) == {folder.name for folder in FOLDERS}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_engine_has_the_same_files(folder: Path) -> None:
    assert {file.name for file in folder.iterdir()} >= FILES


def test_only_the_store_imports_engines() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    (forbidden,) = (
        contract["forbidden_modules"]
        for contract in contracts["contracts"]
        if "rota.storage.operations" in contract.get("source_modules", ())
    )
    assert set(forbidden) == {f"rota.storage.{folder.name}" for folder in FOLDERS}
