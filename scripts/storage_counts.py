"""Count what storage is made of: lines of SQL, statements, and what a new engine brings.

    python scripts/storage_counts.py

docs/decisions/0081-sql-written-once.md quotes it. An engine's statements either replace one of
common.sql or are that engine's alone. An INSERT that names the columns of runs itself, instead of
taking them from rows.COLUMNS, is one more place to edit for a new column.
"""

from __future__ import annotations

import re
from pathlib import Path

from rota.storage.statements import read_statements

SOURCE = Path(__file__).resolve().parent.parent / "src"
ENGINES = ("sqlite", "postgres", "duckdb")
INSERT = re.compile(r"INSERT INTO \{prefix\}runs \(([^)]*)\)")


def main() -> None:
    common = read_statements("common.sql")
    engines = {engine: read_statements(f"{engine}/queries.sql") for engine in ENGINES}
    scripts = {path: path.read_text("utf-8") for path in sorted(SOURCE.rglob("*.sql"))}
    names = common.keys() | {name for texts in engines.values() for name in texts}
    print(f"{len(names)} statements, {len(common)} of them in common.sql")
    for engine, texts in engines.items():
        replaced = len(texts.keys() & common.keys())
        alone = len(texts) - replaced
        print(f"{engine} brings {len(texts)}: {replaced} replace another, {alone} alone")
    lists = [columns for text in scripts.values() for columns in INSERT.findall(text)]
    literal = [columns for columns in lists if " queue," in columns]
    print(f"{len(lists)} INSERTs of runs, {len(literal)} of them list the columns themselves")
    for path, text in scripts.items():
        print(f"{len(text.splitlines()):6} {path.relative_to(SOURCE)}")
    print(f"{sum(len(text.splitlines()) for text in scripts.values()):6} lines of SQL")


if __name__ == "__main__":
    main()
