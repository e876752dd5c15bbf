"""Options of schedules are stored as one JSON text, of those that differ from their defaults."""

from __future__ import annotations

import json
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


class Row:
    """The JSON in the row of the one schedule, for a person with a SQL prompt."""

    def __init__(self, connection: Any, table: str) -> None:
        self.connection, self.table = connection, table

    def options(self) -> dict[str, Any]:
        ((text,),) = self.connection.execute(f"SELECT options FROM {self.table}").fetchall()
        return dict(text if isinstance(text, dict) else json.loads(text))

    def write(self, text: str) -> None:
        self.connection.execute(f"UPDATE {self.table} SET options = '{text}'")


@pytest.fixture
def row(place: Place) -> Row:
    return Row(place.autocommit(), place.table("schedules"))


def in_view(store: Store) -> dict[str, Any]:
    query = f"SELECT {', '.join(SHOWN)} FROM schedules"
    (values,) = store.select(query, limit=5, seconds=PATIENCE).rows
    return dict(zip(SHOWN, values, strict=True))


def test_a_plain_schedule_stores_no_option_and_the_view_shows_the_defaults(
    store: Store, row: Row
) -> None:
    made = put_schedule(store)
    changed = {name for name in JSON_OPTIONS if getattr(made, name) != OPTIONS[name].default}
    assert set(row.options()) == changed
    plain = store.write(operations.put_schedule, Schedule(
        name="schedule", job="job", kind="every", expr="1m"), ME)  # fmt: skip
    assert row.options() == {}
    assert in_view(store) == {name: getattr(plain, name) for name in SHOWN}


def test_every_option_comes_back_and_is_in_the_view(
    store: Store, clock: VirtualClock, row: Row
) -> None:
    options = {name: other_than_default(OPTIONS[name], clock) for name in JSON_OPTIONS}
    made = put_schedule(store, **options)
    assert {name: getattr(made, name) for name in JSON_OPTIONS} == options
    assert set(row.options()) == set(JSON_OPTIONS)
    values = in_view(store)
    instants = {name for name in SHOWN if isinstance(OPTIONS[name].kind, Instant)}
    assert instants
    for name in SHOWN:
        if name not in instants:
            assert values[name] == options[name], name
        elif isinstance(values[name], str):  # as SQLite shows instants
            assert values[name] == options[name].strftime("%Y-%m-%d %H:%M:%S.%fZ"), name
        else:
            assert values[name] == options[name], name


def test_an_option_of_a_later_version_is_ignored(store: Store, row: Row) -> None:
    made = put_schedule(store)
    row.write('{"shuffle": 3}')
    assert store.read(operations.schedule_named, "schedule").status == "ACTIVE"
    store.write(operations.put_schedule, replace(made, pause_after=3, overlap="skip"), ME)
    assert row.options() == {"pause_after": 3, "overlap": "skip"}


@pytest.mark.parametrize("text", ["[]", "null", "3", '{"overlap": "sometimes"}', '{"jitter": []}'])
def test_options_that_cannot_be_read_break_the_schedule_until_it_is_put_again(
    store: Store, row: Row, text: str
) -> None:
    made = put_schedule(store)
    row.write(text)
    (broken,) = store.read(operations.list_schedules, limit=9)
    assert broken.status == "BROKEN"
    assert broken.error
    assert store.write(operations.put_schedule, made, ME).status == "ACTIVE"


def test_what_is_no_json_is_refused(store: Store, row: Row) -> None:
    put_schedule(store)
    with pytest.raises(Exception, match=r"(?i)json"):
        row.write("{")


def test_an_option_of_another_type_is_refused_by_name(store: Store) -> None:
    with pytest.raises(Invalid, match="owner 5 must be text"):
        put_schedule(store, owner=5)
    with pytest.raises(Invalid, match="enabled None must be true or false"):
        put_schedule(store, enabled=None)
