"""How long ended runs stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType

RETENTION: Mapping[str, timedelta] = MappingProxyType(
    {
        "succeeded": timedelta(days=7),
        "dead": timedelta(days=30),
        "cancelled": timedelta(days=7),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long ended runs stay. The last `keep_last` runs of each job stay longer."""

    ages: Mapping[str, timedelta] = field(default_factory=lambda: RETENTION)
    keep_last: int = 50
