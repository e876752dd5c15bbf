"""Options of schedules are stored as one JSON text, of those that differ from their defaults."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rota.errors import Invalid
from rota.model.option import Choice, Duration, Flag, Instant, Option, RetryPolicy, Text, Whole
from rota.model.retry import Retry
from rota.model.schedule import OPTIONS, Schedule
from rota.storage import operations
from rota.storage.rows import JSON_OPTIONS
from rota.storage.store import Store
from tests.conformance.support import ME, PATIENCE, Place, VirtualClock, put_schedule

SHOWN = tuple(name for name in JSON_OPTIONS if OPTIONS[name].in_view)


def other_than_default(option: Option, clock: VirtualClock) -> Any:
    match option.kind:
        case Choice():
            return next(value for value in option.kind.values if value != option.default)
        case Whole(low, _):
            return low + 1
        case Duration():
            return timedelta(seconds=7)
        case Instant():
            return clock.after("1h") + timedelta(microseconds=7)
        case Flag():
            return not option.default
        case RetryPolicy():
            return Retry(max_attempts=9)
        case Text():
            return "Europe/Berlin" if option.name == "timezone" else "é's"
    raise AssertionError(option)


def stored(place: Place, name: str = "schedule") -> Mapping[str, Any]:
    (row,) = (
        place.autocommit()
        .execute(f"SELECT options FROM {place.table('schedules')} WHERE name = '{name}'")
        .fetchall()
    )
    return dict(row[0] if isinstance(row[0], dict) else json.loads(row[0]))


def in_view(store: Store) -> dict[str, Any]:
    found = store.select(f"SELECT {', '.join(SHOWN)} FROM schedules", limit=5, seconds=PATIENCE)
    (row,) = found.rows
    return dict(zip(SHOWN, row, strict=True))


def test_a_plain_schedule_stores_no_option_and_the_view_shows_the_defaults(
    store: Store, place: Place
) -> None:
    made = put_schedule(store)
    changed = {name for name in JSON_OPTIONS if getattr(made, name) != OPTIONS[name].default}
    assert set(stored(place)) == changed
    plain = store.write(operations.put_schedule, Schedule(
        name="schedule", job="job", kind="every", expr="1m"), ME)  # fmt: skip
    assert stored(place) == {}
    assert in_view(store) == {name: getattr(plain, name) for name in SHOWN}


def test_every_option_comes_back_and_is_in_the_view(
    store: Store, clock: VirtualClock, place: Place
) -> None:
    options = {name: other_than_default(OPTIONS[name], clock) for name in JSON_OPTIONS}
    made = put_schedule(store, **options)
    assert {name: getattr(made, name) for name in JSON_OPTIONS} == options
    assert set(stored(place)) == set(JSON_OPTIONS)
    shown = in_view(store)
    instants = {name for name in SHOWN if isinstance(OPTIONS[name].kind, Instant)}
    assert instants
    for name in SHOWN:
        if name not in instants:
            assert shown[name] == options[name], name
        elif isinstance(shown[name], str):  # as SQLite shows instants
            assert shown[name] == options[name].strftime("%Y-%m-%d %H:%M:%S.%fZ"), name
        else:
            assert shown[name] == options[name], name


def test_an_option_of_a_later_version_is_ignored(store: Store, place: Place) -> None:
    made = put_schedule(store)
    place.execute(f"""UPDATE {place.table("schedules")} SET options = '{{"shuffle": 3}}'""")
    assert store.read(operations.schedule_named, "schedule").status == "ACTIVE"
    store.write(operations.put_schedule, replace(made, pause_after=3, overlap="skip"), ME)
    assert stored(place) == {"pause_after": 3, "overlap": "skip"}


@pytest.mark.parametrize("text", ["[]", "null", "3", '{"overlap": "sometimes"}', '{"jitter": []}'])
def test_options_that_cannot_be_read_break_the_schedule_until_it_is_put_again(
    store: Store, place: Place, text: str
) -> None:
    made = put_schedule(store)
    place.execute(f"UPDATE {place.table('schedules')} SET options = '{text}'")
    (broken,) = store.read(operations.list_schedules, limit=9)
    assert broken.status == "BROKEN"
    assert broken.error
    assert store.write(operations.put_schedule, made, ME).status == "ACTIVE"


def test_what_is_no_json_is_refused(store: Store, place: Place) -> None:
    put_schedule(store)
    with pytest.raises(Exception, match=r"(?i)json"):
        place.execute(f"UPDATE {place.table('schedules')} SET options = '{{'")


def test_an_option_of_another_type_is_refused_by_name(store: Store) -> None:
    with pytest.raises(Invalid, match="owner 5 must be text"):
        put_schedule(store, owner=5)
    with pytest.raises(Invalid, match="enabled None must be true or false"):
        put_schedule(store, enabled=None)
