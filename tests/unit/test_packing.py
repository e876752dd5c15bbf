"""What two processes hand each other arrives as it was, and nothing else is taken."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from rota.errors import Invalid
from rota.model.packing import Packing
from rota.model.run import Enqueued

VALUES = [
    None, True, 0, -(2**63), 2**100, 1.5, float("inf"), "x'; DROP TABLE t; --", "", b"\0\xff",
    datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC), datetime(2026, 3, 1), date(2026, 3, 1),
    time(3, 4, 5, 6), timedelta(days=-1, microseconds=1), Decimal("1.50"),
    UUID(int=7), [1, [None]], (1, "a"), {"a": {"b": [Decimal(1)]}}, {1: (2,)}, {"tuple": 1}, {}, [],
    {"$date": "2026-03-01"}, {"$dict": {"$int": 1}}, {"a": 1, "$b": 2}, {"": 1},
]  # fmt: skip


@dataclass(frozen=True)
class Point:
    x: int
    at: datetime | None = None


packing = Packing((Point, Enqueued))


def passed(value: Any) -> Any:
    return packing.unpack(json.loads(json.dumps(packing.pack(value), allow_nan=False)))


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_passes_as_it_is(value: Any) -> None:
    assert passed(value) == value
    assert type(passed(value)) is type(value)


def test_nouns_pass_inside_other_values() -> None:
    told = {"found": [Point(1, datetime(2026, 3, 1, tzinfo=UTC)), Enqueued("a", True)]}
    assert passed(told) == told


def test_plain_values_stay_plain() -> None:
    assert packing.pack({"name": "nightly", "limit": 5}) == {"name": "nightly", "limit": 5}


def test_a_maker_may_stand_for_the_class() -> None:
    lenient = Packing((Point,), {Point: lambda fields: fields["x"]})
    assert lenient.unpack(packing.pack(Point(7))) == 7


@pytest.mark.parametrize("value", [object(), Point, {1, 2}], ids=["object", "class", "set"])
def test_a_value_of_another_kind_is_refused(value: Any) -> None:
    with pytest.raises(Invalid, match="cannot pass between processes"):
        packing.pack([value])


@pytest.mark.parametrize(
    "told",
    [
        {"$nope": 1}, {"$date": "soon"}, {"$date": 5}, {"$date": "2026-03-01", "b": 1},
        {"$Point": {}}, {"$Point": {"x": 1, "y": 2}}, {"$Point": 5}, {"$dict": [1]},
        {"$tuple": 1}, {"$dict": [[{"$dict": []}, 1]]}, {"$timedelta": "9" * 40}, {"$": 1},
    ],
    ids=repr,
)  # fmt: skip
def test_what_nobody_packs_is_refused(told: Any) -> None:
    with pytest.raises(Invalid, match="is not what passes between processes"):
        packing.unpack([told])
