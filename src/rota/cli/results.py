"""What a run returned: the rows of a SQL job as a table, anything else as JSON."""

from __future__ import annotations

import json
from typing import Any

from rota.cli.output import note, say, say_table


def is_answer(result: Any) -> bool:
    """True for the rows of a last SELECT, as the sql executor keeps them."""
    return (
        isinstance(result, dict)
        and set(result) == {"columns", "rows", "more"}
        and isinstance(result["columns"], list)
        and isinstance(result["rows"], list)
        and all(isinstance(row, list) and len(row) == len(result["columns"])
                for row in result["rows"])
    )  # fmt: skip


def say_result(result: Any) -> None:
    if not is_answer(result):
        say(json.dumps(result, ensure_ascii=False))
        return
    say_table(result["columns"], result["rows"], empty="no rows")
    if result["more"]:
        note(f"the first {len(result['rows'])} rows")
