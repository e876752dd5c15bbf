"""What axe-core says of a page."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

SOURCE = Path(__file__).parent / "vendor/axe.min.js"
GRAVE = ("serious", "critical")


@cache
def _script() -> str:
    return SOURCE.read_text("utf-8")


def grave(page: Page) -> list[str]:
    """What is serious or critical, each with the first places where it is."""
    page.evaluate(_script())  # as a debugger would: the policy of the page stays as it is
    found: list[dict[str, Any]] = page.evaluate(
        "async () => (await axe.run(document, {resultTypes: ['violations']})).violations"
    )
    return [
        f"{one['id']}: {one['help']} at {[node['html'][:200] for node in one['nodes'][:3]]}"
        for one in found
        if one["impact"] in GRAVE
    ]
