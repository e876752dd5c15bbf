"""The guard: a copy of a store fires nothing until somebody says that it should."""

from __future__ import annotations

from contextlib import closing

import pytest

from rota.flow.home import adopt, check_home
from rota.storage import operations
from rota.storage.store import Store, open_store
from tests.conformance.support import ME, Place, VirtualClock, outcomes, put_schedule, tick
from tests.support.postgres import Server
from tests.support.stores import PostgresStores


@pytest.fixture
def home(store: Store) -> Store:
    """A store that belongs to the cluster `here`."""
    adopt(store, "here", ME)
    return store


def test_a_store_where_it_belongs_is_left_alone(home: Store) -> None:
    before = put_schedule(home)
    assert check_home(home, "here") is None
    assert check_home(home, None) is None  # no cluster was told: nothing to compare
    assert home.read(operations.schedule_named, "schedule") == before


def test_a_new_cluster_name_is_remembered(store: Store) -> None:
    adopt(store, None, ME)
    put_schedule(store)
    assert check_home(store, "first") is None
    assert store.read(operations.meta)["cluster"] == "first"
    assert check_home(store, "second") is not None


def test_a_moved_store_fires_nothing_and_says_why(home: Store, clock: VirtualClock) -> None:
    put_schedule(home, "a")
    put_schedule(home, "b")
    reason = check_home(home, "there")
    assert reason is not None
    assert "cluster was here, is there" in reason
    assert "rota adopt" in reason
    for name in ("a", "b"):
        paused = home.read(operations.schedule_named, name)
        assert (paused.paused, paused.paused_by, paused.paused_reason) == (True, "rota", reason)
    clock.advance("1h")
    assert tick(home) == 0


def test_looking_again_pauses_once(home: Store) -> None:
    schedule = put_schedule(home)
    assert check_home(home, "there") == check_home(home, "there")
    assert len(home.read(operations.list_schedule_changes, schedule.id, before=10**9, limit=9)) == 2


def test_what_is_made_after_the_move_is_paused_at_the_next_look(home: Store) -> None:
    check_home(home, "there")
    put_schedule(home)
    check_home(home, "there")
    assert home.read(operations.schedule_named, "schedule").paused


def test_adopting_resumes_what_the_guard_paused_and_nothing_else(
    home: Store, clock: VirtualClock
) -> None:
    guarded = put_schedule(home, "guarded")
    put_schedule(home, "stopped")
    home.write(operations.pause_schedule, "stopped", "the operator's reason", ME)
    check_home(home, "there")
    clock.advance("35s")
    assert adopt(home, "there", ME) == 1
    assert check_home(home, "there") is None
    assert home.read(operations.schedule_named, "stopped").paused_reason == "the operator's reason"
    assert home.read(operations.schedule_named, "guarded").next_fire_at == clock.after("5s")
    assert outcomes(home, guarded) == ["missed"]
    assert "adopt" in {row["action"] for row in home.read(operations.list_audit, limit=9)}


def test_a_schedule_that_cannot_be_resumed_keeps_no_other_from_it(
    home: Store, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.storage.operations.installation.BATCH", 2)
    for name in ("a", "b", "c", "d", "e"):
        put_schedule(home, name)
    check_home(home, "there")
    table = f"{home.engine.prefix}schedules"  # type: ignore[attr-defined]
    change = f"UPDATE {table} SET expr = 'garbage' WHERE name IN ('a', 'd')"
    home.engine.write("corrupt", lambda tx: tx.text(change, {}))
    clock.advance("35s")
    assert adopt(home, "there", ME) == 3
    paused = [one.name for one in home.read(operations.list_schedules, limit=9) if one.paused]
    assert paused == ["a", "d"]
    assert adopt(home, "there", ME) == 0


def test_adopting_leaves_one_row_in_the_audit(home: Store) -> None:
    put_schedule(home)
    check_home(home, "there")
    before = home.read(operations.list_audit, limit=1)[0]["id"]
    adopt(home, "there", ME)
    told = [
        row["action"] for row in home.read(operations.list_audit, limit=9) if row["id"] > before
    ]
    assert told == ["resume_schedule", "adopt"]


def test_a_copied_database_is_noticed(
    postgres_server: Server, postgres_stores: PostgresStores
) -> None:
    with postgres_stores.migrated() as original:
        with closing(open_store(original)) as store:
            assert check_home(store, None) is None
        with (
            postgres_server.database(template=original) as copy,
            closing(open_store(copy)) as store,
        ):
            reason = check_home(store, None)
    assert reason is not None
    assert "database was" in reason


def test_each_thing_that_names_a_place_is_watched(home: Store, place: Place) -> None:
    names = sorted(home.engine.home())
    assert len(names) == (2 if place.engine == "postgres" else 0)  # the server and the database
    for name in names:
        home.engine.write("move", lambda tx, name=name: tx.all("set_meta", key=name, value="other"))
        reason = check_home(home, "here")
        assert reason is not None
        assert f"{name} was other" in reason
        adopt(home, "here", ME)
