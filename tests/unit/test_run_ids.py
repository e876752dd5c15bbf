"""Ids that come from an occurrence, and the slots a run needs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from rota.model.run import NewRun, occurrence_id, slot_keys

MOMENT = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("schedule", "moment", "expected"),
    [
        (1, datetime(1970, 1, 1, tzinfo=UTC), "35b70b42-5921-59e7-a04d-3b3be7e6ce92"),
        (1, MOMENT, "ec5022f5-9ab9-5f5c-b2f3-0f29c599f6a0"),
        (2, MOMENT, "ac8d297f-d797-576f-80af-5f6b4a891e0d"),
        (1, MOMENT + timedelta(microseconds=1), "fd62d695-6d2e-5dcb-91ac-de6c35c70184"),
    ],
)
def test_an_occurrence_has_the_same_id_for_ever(
    schedule: int, moment: datetime, expected: str
) -> None:
    assert occurrence_id(schedule, moment) == expected


def test_the_offset_an_instant_is_written_in_does_not_matter() -> None:
    there = MOMENT.astimezone(timezone(timedelta(hours=9, minutes=30)))
    assert occurrence_id(1, there) == occurrence_id(1, MOMENT)


@pytest.mark.parametrize(
    ("overlap", "concurrency", "keys"),
    [
        (None, None, ()),
        ("job x", None, ("o/job x",)),
        (None, "tenant", ("c/tenant",)),
        ("job x", "tenant", ("o/job x", "c/tenant")),
        ("same", "same", ("o/same", "c/same")),
    ],
)
def test_slots_are_taken_in_one_order(
    overlap: str | None, concurrency: str | None, keys: tuple[str, ...]
) -> None:
    assert slot_keys(overlap, concurrency) == keys
    new = NewRun(
        id="x", job="x", queue="x", args="{}", overlap_key=overlap, concurrency_key=concurrency
    )
    assert new.wanted_key == (keys[0] if keys else None)
