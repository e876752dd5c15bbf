"""Count what storage is made of: operations, what the store can do, statements, lines.

    python scripts/storage_counts.py

docs/architecture.md quotes it, and a test compares. An engine's statements either replace one of
common.sql or are that engine's alone. An INSERT that names the columns of runs itself, instead of
taking them from rows.COLUMNS, is one more place to edit for a new column.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from rota.flow.doctor_store import PRODUCTS
from rota.storage.dialects import DIALECTS
from rota.storage.postgres.fast_paths import FAST_PATHS
from rota.storage.statements import read_statements
from rota.storage.store import Store

SOURCE = Path(__file__).resolve().parent.parent / "src"
STORAGE = SOURCE / "rota" / "storage"
INSERT = re.compile(r"INSERT INTO \{prefix\}runs \(([^)]*)\)")


def figures() -> dict[str, object]:
    """Each figure by what it counts."""
    common = read_statements("common.sql")
    engines = {engine: read_statements(f"{engine}/queries.sql") for engine in DIALECTS}
    scripts = [path.read_text("utf-8") for path in sorted(SOURCE.rglob("*.sql"))]
    inserts = [columns for text in scripts for columns in INSERT.findall(text)]
    return {
        "operations": sum(1 for _ in operations()),
        "classes among operations that inherit from another": len(list(heirs())),
        "public names of `Store`": sum(not name.startswith("_") for name in dir(Store)),
        "statements in common.sql": len(common),
        f"statements that {', '.join(PRODUCTS[engine] for engine in DIALECTS)} bring": ", ".join(
            str(len(texts)) for texts in engines.values()
        ),
        "statements of PostgreSQL's fast paths": len(read_statements("postgres/fast_paths.sql")),
        "INSERTs that list the columns of runs": sum(" queue," in columns for columns in inserts),
        "lines of SQL below src": _about(sum(len(text.splitlines()) for text in scripts)),
        "lines of Python below storage": _about(
            sum(len(path.read_text("utf-8").splitlines()) for path in STORAGE.rglob("*.py"))
        ),
    }


def _about(lines: int) -> str:
    return f"about {round(lines, -2):,}"


def operations() -> Iterator[str]:
    for path, node in _nodes():
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
            continue
        if node.args.args and node.args.args[0].arg == "tx":
            yield f"{path.stem}.{node.name}"


def heirs() -> Iterator[str]:
    """Classes of operations with a base of ours; plain data and errors have one of others."""
    theirs = {"NamedTuple", "StorageError", "msgspec.Struct"}
    for path, node in _nodes():
        if isinstance(node, ast.ClassDef) and not {ast.unparse(b) for b in node.bases} <= theirs:
            yield f"{path.stem}.{node.name}"


def _nodes() -> Iterator[tuple[Path, ast.stmt]]:
    for path in sorted((STORAGE / "operations").glob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            yield path, node


def table() -> str:
    rows = [
        f"| {what} | {count:,} |" if isinstance(count, int) else f"| {what} | {count} |"
        for what, count in figures().items()
    ]
    return "\n".join(["| storage is made of | |", "|---|---|", *rows])


def fast_paths() -> str:
    """The table of PostgreSQL's fast paths."""
    rows = [
        f"| `{path.operation}` | {', '.join(f'`{name}`' for name in path.statements)} "
        f"| {path.leaves} | {path.gain} |"
        for path in sorted(FAST_PATHS.values())
    ]
    head = [
        "| operation | statements | leaves to the plain operation | gain |",
        "|---|---|---|---|",
    ]
    return "\n".join(head + rows)


if __name__ == "__main__":
    print(table())
    print()
    print(fast_paths())
