"""Write the tables of routes in docs/http.md anew, from the routes themselves.

    python scripts/http_page.py

A test fails while the page and the routes differ.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rota.web.openapi import describe

PAGE = Path(__file__).resolve().parent.parent / "docs" / "http.md"
BEGIN, END = "<!-- routes: scripts/http_page.py -->\n", "<!-- end of routes -->\n"
TITLES = {"sql": "SQL"}


def tables() -> str:
    """Every route of the document, by noun."""
    told = describe()
    nouns: dict[str, list[str]] = {}
    for path, operations in told["paths"].items():
        for method, operation in operations.items():
            row = (
                f"| `{method.upper()} {path}` | {operation['x-rota-role']} "
                f"| {operation['summary']}. | {takes(operation, told)} |"
            )
            nouns.setdefault(operation["tags"][0], []).append(row)
    return "".join(
        f"### {TITLES.get(noun, noun.capitalize())}\n\n| route | role | what it does | takes |\n"
        "|---|---|---|---|\n" + "\n".join(rows) + "\n\n"
        for noun, rows in nouns.items()
    )


def takes(operation: dict[str, Any], told: dict[str, Any]) -> str:
    """Parameters and names of the body; what is needed is bold."""
    parts = []
    for place, title in (("query", "?"), ("header", "header")):
        named = [one for one in operation.get("parameters", ()) if one["in"] == place]
        if named:
            parts.append(f"{title} " + ", ".join(_name(one["name"], one) for one in named))
    if "requestBody" in operation:
        shape = operation["requestBody"]["content"]["application/json"]["schema"]
        shape = told["components"]["schemas"][shape["$ref"].rpartition("/")[2]]
        needed = shape.get("required", ())
        names = [_name(name, {"required": name in needed}) for name in shape["properties"]]
        parts.append("body " + ", ".join(names))
    return "; ".join(parts)


def _name(name: str, one: dict[str, Any]) -> str:
    return f"**`{name}`**" if one.get("required") else f"`{name}`"


def main() -> int:
    text = PAGE.read_text("utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n{tables()}{END}{tail}", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
