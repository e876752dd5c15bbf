"""PostgreSQL's functions: what Python does, from any language, in the caller's own transaction."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg import errors

import rota
from rota.executors.registry import BUILT_IN
from rota.model.duration import parse_duration
from rota.model.limits import PAYLOAD_BYTES, PAYLOAD_DEPTH, REASON_LENGTH
from rota.model.redact import redact_text
from rota.model.retry import Retry
from rota.model.schedule import WAITING_FOR_RUN
from rota.storage import operations
from tests.api.support import PATIENCE, wait_until
from tests.api.test_sql_jobs import ended

Connection = psycopg.Connection[Any]
# What differs from call to call, or says who called.
OWN = {"seq", "id", "created_by"}
INSTANTS = {"due_at", "created_at", "queued_at"}


@pytest.fixture
def app(postgres_database: str) -> Iterator[rota.Rota]:
    app = rota.Rota(postgres_database)

    @app.job(queue="mail", priority=3, max_attempts=5)
    def send(to: str, copies: int = 1, *, tags: list[str] | None = None) -> None: ...

    @app.job(concurrency_key="one at a time", concurrency_limit=2)
    def careful() -> None: ...

    @app.job
    def anything(**kwargs: Any) -> None: ...

    app.load()
    yield app
    app.stop(grace="0s")


@pytest.fixture
def client(postgres_database: str) -> Iterator[Connection]:
    """Not in autocommit: a transaction is open until it is committed or rolled back."""
    with psycopg.connect(postgres_database) as connection:
        yield connection
        connection.rollback()


def call(connection: Connection, text: str, *values: Any) -> Any:
    row = connection.execute(f"SELECT {text}", values).fetchone()
    assert row is not None
    return row[0]


def stored(connection: Connection, run_id: object) -> dict[str, Any]:
    cursor = connection.execute("SELECT * FROM rota_data.runs WHERE id = %s", (str(run_id),))
    row = cursor.fetchone()
    assert row is not None
    return dict(zip([column.name for column in cursor.description or ()], row, strict=True))


def audit(app: rota.Rota, action: str) -> list[tuple[str, str, str, Any]]:
    return [
        (one["by"], one["via"], one["thing"], one["after"])
        for one in app.control.audit()
        if one["action"] == action
    ]


# enqueue


SAME: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("send", {"to": "a@example.org"}, {}, ""),
    ("send", {"to": "ü \"quoted\" \\ {a, b: c}", "copies": 2, "tags": ["x", " y "]}, {}, ""),
    ("careful", {}, {}, ""),
    ("anything", {"deep": {"a": [1, 2.5, None, True, -7]}, "n": 2**63}, {}, ""),
    (
        "send", {"to": "a"}, {"delay": "90s", "priority": -1, "queue": "a/.b", "max_attempts": 2},
        "delay => '90s', priority => -1, queue => 'a/.b', max_attempts => 2",
    ),
    (
        "send", {"to": "a"}, {"concurrency_key": "k", "concurrency_limit": 4, "timeout": "1h0.5s"},
        "concurrency_key => 'k', concurrency_limit => 4, timeout => '1 hour 0.5 seconds'",
    ),
    (
        "send", {"to": "a"}, {"at": "2099-01-01T00:00:00Z", "correlation_id": "c"},
        "at => '2099-01-01T00:00:00Z', correlation_id => 'c'",
    ),
    ("send", {"to": "a"}, {"at": "2001-01-01T00:00:00Z"}, "at => '2001-01-01T00:00:00Z'"),
]  # fmt: skip


@pytest.mark.parametrize(("job", "args", "options", "told"), SAME)
def test_the_row_is_the_one_that_python_writes(
    app: rota.Rota, client: Connection, job: str, args: Any, options: Any, told: str
) -> None:
    with client.transaction():
        theirs = stored(client, app.enqueue(job, args, connection=client, **options).id)
        named = f", {told}" if told else ""
        ours = stored(client, call(client, f"rota.enqueue(%s, %s{named})", job, json.dumps(args)))
        assert {k: v for k, v in ours.items() if k not in OWN | INSTANTS} == {
            k: v for k, v in theirs.items() if k not in OWN | INSTANTS
        }
        texts = client.execute("SELECT args::text FROM rota_data.runs ORDER BY seq").fetchall()
        assert sorted(texts[0][0]) == sorted(texts[1][0]), "the same characters"
        if "at" in options:
            assert ours["due_at"] == theirs["due_at"]
        else:  # the same relation between the instants
            waits = [one["due_at"] - one["created_at"] for one in (ours, theirs)]
            assert waits[0] == waits[1]
        assert (ours["queued_at"] is None) == (theirs["queued_at"] is None)
        assert ours["created_by"] == client.info.user
        assert ours["id"].version == theirs["id"].version == 7
        assert not client.execute("SELECT 1 FROM rota_data.slots").fetchall()


def test_a_run_exists_exactly_if_the_caller_commits(app: rota.Rota, client: Connection) -> None:
    with client.transaction(force_rollback=True):
        gone = call(client, "rota.enqueue('send', '{\"to\": \"a\"}')")
    with pytest.raises(rota.Unknown):
        app.control.run(str(gone))
    with client.transaction():
        run_id = str(call(client, "rota.enqueue('careful')"))
    run = app.control.run(run_id)
    assert (run.state, run.created_by) == ("held", client.info.user)
    assert audit(app, "enqueue") == [(client.info.user, "function", "careful", run_id)]
    app.start()
    assert ended(app, run_id).state == "succeeded"


def test_enqueue_wakes_workers_when_it_is_committed(app: rota.Rota, client: Connection) -> None:
    with psycopg.connect(client.info.dsn, password=client.info.password, autocommit=True) as ear:
        ear.execute("LISTEN rota_wake")
        with client.transaction():
            call(client, "rota.enqueue('careful', notify => false)")
        with client.transaction():
            call(client, "rota.enqueue('careful')")
        with client.transaction():
            call(client, "pg_notify('rota_wake', 'last')")
        heard = [one.payload for one in ear.notifies(stop_after=2, timeout=20)]
    assert heard == ["", "last"]


def test_a_key_names_one_run(app: rota.Rota, client: Connection) -> None:
    with client.transaction():
        first = call(client, "rota.enqueue('careful', key => 'k')")
        assert call(client, "rota.enqueue('careful', key => 'k')") == first
        assert call(client, "rota.enqueue('anything', key => 'k')") != first
    assert app.enqueue("careful", key="k").id == str(first)
    short = app.enqueue("careful", key="short", key_ttl="1us")
    with client.transaction():
        assert str(call(client, "rota.enqueue('careful', key => 'short')")) != short.id


REFUSED: dict[str, tuple[type[psycopg.Error], str]] = {
    "'nobody'": (errors.NoDataFound, "job 'nobody' does not exist"),
    "'send'": (errors.InvalidParameterValue, "'to' is missing (it takes to, copies, tags)"),
    "'send', '{\"to\": 1}'": (errors.InvalidParameterValue, "'to' must be string, not number"),
    "'send', '{\"to\": \"a\", \"copies\": 1.5}'": (
        errors.InvalidParameterValue, "'copies' must be integer, not number",
    ),
    "'send', '{\"to\": \"a\", \"copies\": true, \"nonsense\": 1}'": (
        errors.InvalidParameterValue,
        "'copies' must be integer, not boolean; 'nonsense' is unknown",
    ),
    "'send', '[1]'": (errors.InvalidParameterValue, "args must be a JSON object"),
    "'anything', '{\"a\": 18446744073709551616}'": (errors.InvalidParameterValue, "past 64 bits"),
    "'anything', '{\"a\": [-9223372036854775809]}'": (errors.InvalidParameterValue, "past 64 bits"),
    "'careful', delay => '1s', at => now()": (errors.InvalidParameterValue, "delay or at"),
    "'careful', delay => '-1s'": (errors.InvalidParameterValue, "delay must be"),
    "'careful', at => 'infinity'": (errors.InvalidParameterValue, "before the year 9000"),
    "'careful', at => '-infinity'": (errors.InvalidParameterValue, "after the year 1"),
    "'careful', key => ''": (errors.InvalidParameterValue, "key must be text"),
    "'careful', key => repeat('x', 513)": (errors.InvalidParameterValue, "key must be text"),
    "'careful', priority => 1000001": (errors.InvalidParameterValue, "priority must be"),
    "'careful', queue => 'no way'": (errors.InvalidParameterValue, "queue is not a valid name"),
    "'careful', queue => E'a\\n'": (errors.InvalidParameterValue, "queue is not a valid name"),
    "'careful', queue => 'a/../b'": (errors.InvalidParameterValue, "not empty, . or .."),
    "'careful', queue => '/a'": (errors.InvalidParameterValue, "not empty, . or .."),
    "'careful', queue => 'a/.'": (errors.InvalidParameterValue, "not empty, . or .."),
    "'careful', concurrency_limit => 0": (errors.InvalidParameterValue, "concurrency_limit"),
    "'careful', max_attempts => 0": (errors.InvalidParameterValue, "max_attempts"),
    "'careful', timeout => '0'": (errors.InvalidParameterValue, "timeout must be"),
}  # fmt: skip


@pytest.mark.parametrize("told", REFUSED)
def test_enqueue_refuses_what_python_refuses(app: rota.Rota, client: Connection, told: str) -> None:
    kind, message = REFUSED[told]
    with pytest.raises(kind) as fault, client.transaction():
        call(client, f"rota.enqueue({told})")
    assert message in str(fault.value)
    assert app.control.runs() == []


@pytest.mark.parametrize("more", [0, 1])
def test_payloads_have_the_limits_of_every_enqueue(
    app: rota.Rota, client: Connection, more: int
) -> None:
    """At the limit both take it, past it neither does."""
    deep: Any = 1
    for _ in range(PAYLOAD_DEPTH - 2 + more):
        deep = [deep]
    long = "x" * (PAYLOAD_BYTES - len('{"a":""}') + more)
    for args in ({"a": deep}, {"a": long}):
        outcomes = []
        for refusal, enqueue in (
            (rota.Invalid, partial(app.enqueue, "anything", args)),
            (
                errors.InvalidParameterValue,
                partial(call, client, "rota.enqueue('anything', %s)", json.dumps(args)),
            ),
        ):
            try:
                with client.transaction():
                    enqueue()
            except refusal:
                outcomes.append("refused")
            else:
                outcomes.append("taken")
        assert outcomes == ["refused" if more else "taken"] * 2


# trigger


def test_trigger_stands_in_the_line_of_its_job(app: rota.Rota, client: Connection) -> None:
    theirs = app.control.trigger_job("anything", {"a": 1})
    with client.transaction():
        ours = call(client, "rota.trigger_job('anything', '{\"a\": 1}')")
        row, same = stored(client, ours), stored(client, theirs.id)
        different = {k for k in row if row[k] != same[k]} - OWN - INSTANTS
        # Python took the slot; a caller's transaction leaves that to a process.
        assert different == {"state", "wanted_key"}
        assert (row["state"], row["wanted_key"]) == ("held", "o/job anything")
        forced = call(client, "rota.trigger_job('anything', force => true)")
        assert stored(client, forced)["state"] == "queued"
    assert audit(app, "trigger")[:2] == [
        (client.info.user, "function", "anything", str(forced)),
        (client.info.user, "function", "anything", str(ours)),
    ]
    app.start()
    for run_id in (theirs.id, str(ours), str(forced)):
        assert ended(app, run_id).state == "succeeded"
    with pytest.raises(errors.NoDataFound), client.transaction():
        call(client, "rota.trigger_job('nobody')")


# pause and resume


def changes(app: rota.Rota, name: str) -> list[dict[str, Any]]:
    found = app.control.changes(name)
    return [
        {**one, "before": _json(one["before"]), "after": _json(one["after"])}
        for one in reversed(found)
    ]


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)


@pytest.fixture
def two(app: rota.Rota) -> tuple[str, str]:
    """Two schedules that are alike; every kind of value is somewhere in them."""
    options = {
        "starts_at": datetime(2020, 1, 1, 2, 3, 4, 567, tzinfo=UTC), "ends_at": "2098-01-01T00:00Z",
        "jitter": "90s", "args": {"b": 1, "a": None}, "retry": Retry(max_attempts=7),
        "queue_max": 2, "priority": 4, "owner": "me", "timezone": "Europe/Berlin",
    }  # fmt: skip
    for name in ("one", "two"):
        # On a day that is none of most tests: nothing comes due between two of their lines.
        app.schedule(name, job="anything", cron="0 3 29 2 *", **options)
    app.load()
    return "one", "two"


def test_pause_and_resume_leave_what_control_leaves(
    app: rota.Rota, client: Connection, two: tuple[str, str]
) -> None:
    one, other = two
    app.control.pause(one, "why")
    app.control.resume(one, "again")
    with client.transaction():
        assert call(client, "rota.pause_schedule(%s, 'why')", other)
        assert call(client, "rota.pause_schedule(%s, 'why')", other) is False
    paused = app.control.schedule(other)
    assert (paused.paused, paused.paused_by, paused.paused_reason) == (
        True, client.info.user, "why",
    )  # fmt: skip
    assert paused.state == f"paused by {client.info.user}: why"
    assert paused.paused_at is not None
    with client.transaction():
        assert call(client, "rota.resume_schedule(%s, 'again')", other)
        assert call(client, "rota.resume_schedule(%s)", other) is False
    resumed = app.control.schedule(other)
    assert (resumed.paused, resumed.paused_by, resumed.paused_at) == (False, None, None)
    assert resumed.next_fire_at == app.control.schedule(one).next_fire_at
    told = {name: changes(app, name) for name in two}
    for mine, theirs in zip(told[one], told[other], strict=True):
        for row in (mine, theirs):
            for side in ("before", "after"):
                if row[side] is not None:
                    assert row[side].pop("name") in two
        own = ("id", "schedule_id", "name", "at", "by")
        assert {k: v for k, v in mine.items() if k not in own} == {
            k: v for k, v in theirs.items() if k not in own
        }
    assert told[other][-1]["by"] == client.info.user
    assert [row["action"] for row in told[other]] == ["create", "pause", "resume"]
    who = {(by, via) for by, via, thing, _ in audit(app, "pause_schedule") if thing == other}
    assert who == {(client.info.user, "function")}


def test_a_pause_that_is_rolled_back_never_was(
    app: rota.Rota, client: Connection, two: tuple[str, str]
) -> None:
    with client.transaction(force_rollback=True):
        call(client, "rota.pause_schedule('one')")
    assert not app.control.schedule("one").paused
    assert len(app.control.changes("one")) == 1


def test_resume_after_missed_occurrences_is_done_by_a_process(
    app: rota.Rota, client: Connection, two: tuple[str, str]
) -> None:
    app.control.pause("one", None)
    with client.transaction():
        client.execute(
            "UPDATE rota_data.schedules SET next_fire_at = now() - interval '3 days' "
            "WHERE name = 'one'"
        )
        assert call(client, "rota.resume_schedule('one', 'it''s time')")
    assert app.control.schedule("one").paused, "nobody is there to do it"
    app.start()
    wait_until(lambda: not app.control.schedule("one").paused, "it was resumed")
    next_fire_at = app.control.schedule("one").next_fire_at
    assert next_fire_at is not None
    assert next_fire_at > app.control.now()
    assert app.control.occurrences("one")[0]["outcome"] == "missed"
    (change, *_) = app.control.changes("one")
    assert (change["action"], change["by"], change["reason"]) == (
        "resume", client.info.user, "it's time",
    )  # fmt: skip


# The last word


@pytest.fixture
def each(app: rota.Rota, client: Connection) -> rota.Rota:
    """A schedule that was paused, and whose time has passed since."""
    app.schedule("each", job="anything", every="1s")
    app.load()
    with client.transaction():
        assert call(client, "rota.pause_schedule('each', 'hold it')")
    due = app.control.schedule("each").next_fire_at
    assert due is not None
    wait_until(lambda: app.control.now() > due, "an occurrence passed")
    return app


def last_words_are_done(app: rota.Rota, client: Connection) -> None:
    """Rows are done in their order: once this one is, all before it are."""
    with client.transaction():
        row = client.execute(
            "INSERT INTO rota.control (statement) VALUES ('SHOW JOBS') RETURNING id"
        )
        (asked,) = row.fetchone() or (None,)

    def status() -> Any:
        with client.transaction():
            return call(client, "status FROM rota.control WHERE id = %s", asked)

    wait_until(lambda: status() == "done", "the last row was answered")


def words(app: rota.Rota) -> list[tuple[str, str | None]]:
    return [(row["action"], row["reason"]) for row in changes(app, "each")]


def check_stays_paused(app: rota.Rota, client: Connection) -> None:
    last_words_are_done(app, client)
    schedule = app.control.schedule("each")
    assert (schedule.status, schedule.paused_reason) == ("PAUSED", "no, stay paused")
    withdrawn = f"withdrawn before it was done: paused by {schedule.paused_by}"
    assert words(app) == [
        ("create", None), ("pause", "hold it"), ("resume", withdrawn), ("pause", "no, stay paused"),
    ]  # fmt: skip


def test_of_resume_and_pause_in_one_transaction_the_pause_stays(
    each: rota.Rota, client: Connection
) -> None:
    each.start()
    with client.transaction():
        assert call(client, "rota.resume_schedule('each')")
        assert call(client, "rota.pause_schedule('each', 'no, stay paused')")
    check_stays_paused(each, client)


@pytest.mark.parametrize("pauses", ["function", "control", "row"])
def test_a_pause_after_a_resume_that_nobody_has_done_yet_stays(
    each: rota.Rota, client: Connection, pauses: str
) -> None:
    with client.transaction():
        assert call(client, "rota.resume_schedule('each')")
    if pauses == "function":
        with client.transaction():
            assert call(client, "rota.pause_schedule('each', 'no, stay paused')")
    elif pauses == "control":
        assert each.control.pause("each", "no, stay paused").paused
    else:
        with client.transaction():
            client.execute(
                "INSERT INTO rota.control (statement) "
                "VALUES ('PAUSE SCHEDULE each REASON $$no, stay paused$$')"
            )
    each.start()
    if pauses != "row":
        return check_stays_paused(each, client)
    # In its turn: first it was resumed, as was asked, and then paused.
    last_words_are_done(each, client)
    assert each.control.schedule("each").status == "PAUSED"
    assert words(each)[1:] == [
        ("pause", "hold it"), ("resume", None), ("pause", "no, stay paused"),
    ]  # fmt: skip


def test_the_last_of_many_words_counts(each: rota.Rota, client: Connection) -> None:
    each.start()
    with client.transaction():
        for _ in range(3):
            assert call(client, "rota.resume_schedule('each')")
            assert call(client, "rota.pause_schedule('each')")
        assert call(client, "rota.resume_schedule('each', 'go on')")
    wait_until(lambda: each.control.schedule("each").status == "ACTIVE", "it was resumed")
    assert words(each)[-1] == ("resume", "go on")
    wait_until(lambda: each.control.runs(schedule="each"), "it fires")


def test_what_is_rolled_back_withdraws_nothing(each: rota.Rota, client: Connection) -> None:
    with client.transaction():
        assert call(client, "rota.resume_schedule('each', 'go on')")
    with client.transaction(force_rollback=True):
        assert call(client, "rota.pause_schedule('each')")
    each.start()
    wait_until(lambda: each.control.schedule("each").status == "ACTIVE", "it was resumed")
    assert words(each)[-1] == ("resume", "go on")


def test_a_pause_waits_for_a_resume_that_is_not_committed(
    each: rota.Rota, client: Connection, postgres_database: str
) -> None:
    """It comes after it, and so it is the last word; of a function and of the command line."""
    each.start()
    pauses: list[Callable[[], Any]] = [
        lambda: each.control.pause("each", "no, stay paused"),
        lambda: call(other, "rota.pause_schedule('each', 'no, stay paused')"),
    ]
    with psycopg.connect(postgres_database, autocommit=True) as other:
        for pause in pauses:
            with client.transaction():
                assert call(client, "rota.resume_schedule('each')")
                thread = threading.Thread(target=pause)
                thread.start()
                wait_until(partial(is_waiting, client), "it waits")
            thread.join(PATIENCE)
            assert not thread.is_alive()
            last_words_are_done(each, client)
            schedule = each.control.schedule("each")
            assert (schedule.status, schedule.paused_reason) == ("PAUSED", "no, stay paused")


def is_waiting(client: Connection) -> bool:
    call(client, "pg_stat_clear_snapshot()")  # or it would only see who was there at the first look
    return bool(
        call(
            client,
            "count(*) FROM pg_stat_activity "
            "WHERE wait_event_type = 'Lock' AND datname = current_database()",
        )
    )


def test_a_pause_that_was_asked_for_is_withdrawn_by_a_resume(
    each: rota.Rota, client: Connection
) -> None:
    with client.transaction():
        client.execute("UPDATE rota_data.schedules SET next_fire_at = now() + interval '1 day'")
        assert call(client, "rota.resume_schedule('each')")
        client.execute("INSERT INTO rota.control (statement) VALUES ('PAUSE SCHEDULE each')")
        assert call(client, "rota.resume_schedule('each')")
        assert call(client, "rota.resume_schedule('each')") is False
    each.start()
    last_words_are_done(each, client)
    assert each.control.schedule("each").status == "ACTIVE"
    told = f"withdrawn before it was done: resumed by {client.info.user}"
    assert words(each)[-1] == ("pause", told)


def test_unknown_schedules_and_long_reasons_are_refused(
    app: rota.Rota, client: Connection, two: tuple[str, str]
) -> None:
    for function in ("pause_schedule", "resume_schedule"):
        with pytest.raises(errors.NoDataFound, match="schedule 'x' does"), client.transaction():
            call(client, f"rota.{function}('x')")
    with pytest.raises(errors.InvalidParameterValue, match="limit is 2000"), client.transaction():
        call(client, "rota.pause_schedule('one', %s)", "x" * (REASON_LENGTH + 1))


# cancel


def test_cancel_ends_what_waits_and_gives_its_slot_back(app: rota.Rota, client: Connection) -> None:
    first, second = (app.control.trigger_job("anything").id for _ in range(2))
    assert [app.control.run(one).state for one in (first, second)] == ["queued", "held"]
    with client.transaction():
        assert call(client, "rota.cancel_run(%s, 'not today')", first) == "cancelled"
    run = app.control.run(first)
    assert (run.state, run.reason) == ("cancelled", "not today")
    assert run.finished_at is not None
    again = app.control.cancel(app.control.trigger_job("anything").id, "not today")
    same = ("reason", "error", "wanted_key", "attempt", "worker_id", "result")
    assert [getattr(run, name) for name in same] == [getattr(again, name) for name in same]
    assert audit(app, "cancel_run")[-1][:3] == (client.info.user, "function", first)
    app.start()
    assert ended(app, second).state == "succeeded", "it was admitted"
    for state in ("cancelled", "succeeded"):
        run_id = first if state == "cancelled" else second
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match=state), client.transaction():
            call(client, "rota.cancel_run(%s)", run_id)
    with pytest.raises(errors.NoDataFound), client.transaction():
        call(client, "rota.cancel_run(gen_random_uuid())")


SPANS = [
    "2s", "1h30m", "1.5h", "1d2h3m4s5ms6us", "1h 30m", "90 s", "2w", " 250ms ",
    "?", "", "1x", "5", "2s1x",
]  # fmt: skip


@pytest.mark.parametrize("text", SPANS)
def test_a_duration_means_what_it_means_in_python(
    app: rota.Rota, client: Connection, text: str
) -> None:
    told = call(client, "rota_data.seconds(%s)", text)
    if told is None:
        with pytest.raises(rota.Invalid):
            parse_duration(text, "every")
    else:
        assert told == parse_duration(text, "every").total_seconds()


@pytest.mark.parametrize("ends", ["later", "before"])
def test_cancel_lets_a_schedule_go_on_that_counts_from_the_end(
    app: rota.Rota, client: Connection, ends: str
) -> None:
    began = datetime.now(UTC) - timedelta(minutes=1)
    until = datetime.now(UTC) + timedelta(minutes=10 if ends == "before" else 100)
    app.schedule("slow", job="anything", every="1h", anchor="delay", first_run=began, ends_at=until)
    app.load()
    app.start(only=["scheduler"])
    wait_until(lambda: app.control.runs(schedule="slow"), "its run")
    app.control.trigger("slow")
    other, first = app.control.runs(schedule="slow")
    with client.transaction():
        call(client, "rota.cancel_run(%s)", other.id)
    assert app.control.schedule("slow").next_fire_at == WAITING_FOR_RUN, "not the one it waits for"
    with client.transaction():
        call(client, "rota.cancel_run(%s)", first.id)
    ended_at = app.control.run(first.id).finished_at
    following = app.control.schedule("slow").next_fire_at
    if ends == "before":
        assert following is None
    else:
        assert following is not None
        assert ended_at is not None
        assert timedelta(0) <= following - ended_at - timedelta(hours=1) < timedelta(minutes=1)


def test_cancel_of_a_running_run_only_asks(app: rota.Rota, client: Connection) -> None:
    run_id = app.enqueue("careful").id
    (claimed,) = app.storage.write(
        operations.claim, "w", queues=(), jobs=["careful"], limit=1, lease=timedelta(minutes=1)
    )
    with client.transaction():
        assert call(client, "rota.cancel_run(%s)", run_id) == "running"
    run = app.control.run(run_id)
    assert (run.state, run.reason) == ("running", f"cancelled by {client.info.user}")
    assert run.cancel_requested_at is not None
    assert app.storage.read(operations.cancel_requests, [claimed.seq]) == [claimed.seq]


def test_a_run_whose_executor_is_somebody_elses_is_cancelled_where_that_is(
    app: rota.Rota, client: Connection
) -> None:
    run_id = app.enqueue("careful").id
    with client.transaction():
        client.execute("UPDATE rota_data.jobs SET executor = 'theirs' WHERE name = 'careful'")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="'theirs'"), client.transaction():
        call(client, "rota.cancel_run(%s)", run_id)
    source = client.execute("SELECT prosrc FROM pg_proc WHERE proname = 'cancel_run'").fetchone()
    assert source is not None
    for name in BUILT_IN:
        assert f"'{name}'" in source[0]


# Safety


def test_functions_are_closed_and_cannot_be_led_astray(client: Connection, app: rota.Rota) -> None:
    found = client.execute(
        """SELECT p.proname, p.prosecdef, p.proconfig, p.pronamespace::regnamespace::text,
                  has_function_privilege('public', p.oid, 'EXECUTE')
             FROM pg_proc AS p
            WHERE p.pronamespace::regnamespace::text IN ('rota', 'rota_data')"""
    ).fetchall()
    public = {name for name, _, _, schema, _ in found if schema == "rota"}
    assert public == {
        "enqueue", "trigger_job", "pause_schedule", "resume_schedule", "cancel_run",
    }  # fmt: skip
    for name, definer, config, schema, everybody in found:
        assert definer == (schema == "rota"), name
        assert config == ["search_path=pg_catalog, pg_temp"], name
        assert not everybody, name


def test_another_schema_has_functions_of_its_own(
    postgres_database: str, client: Connection
) -> None:
    shop = rota.Rota(postgres_database, schema="shop")
    shop.job("sell")(lambda: None)
    shop.load()
    with client.transaction():
        run_id = str(call(client, "shop.enqueue('sell')"))
        with pytest.raises(errors.NoDataFound), client.transaction():
            call(client, "rota.enqueue('sell')")
    assert shop.control.run(run_id).job == "sell"
    shop.close()


SHOWN = [
    "not today", "password=canary1 tok", "db_pass = 'canary1'", "SMTP_PASS=canary1", "pwd: canary1",
    "db_pass = 'can''ary1 ' x", "db_pass = 'canary1", '{"token": "canary1", "n": 1}',
    "compass=north",
    "{'pass': 'canary1'}", "postgres://u:canary1@h/db", "postgres://u:canary1/x@h/db and a@b",
    "http://host:80/path?mail=a@b", "redis://:canary1@h", "Authorization: Basic canary1",
    "sent Bearer canary1canary1", "Key (password)=(canary1) exists", "the token: it expired",
    "token = make()", "tests pass: all of them", "DATABASE_DSN=canary1", "connstr=canary1;x=1",
    "?api_key=canary1&n=1", "password authentication failed", "bypass=yes", "", "a=b, c: d",
]  # fmt: skip


def bare(text: str) -> str:
    """Without the signs around a value, which one keeps and the other does not."""
    return re.sub(r"[\"'()\\\\]", "", text)


def test_functions_hide_what_python_hides(app: rota.Rota, client: Connection) -> None:
    for text in SHOWN:
        shown = call(client, "rota_data.redact(%s)", text)
        assert "canary1" not in shown
        assert bare(shown) == bare(redact_text(text))


def test_reasons_and_correlation_ids_are_stored_without_secrets(
    app: rota.Rota, client: Connection
) -> None:
    app.schedule("hello", job="anything", cron="0 3 * * *")
    app.load()
    call(client, "rota.pause_schedule('hello', 'password=canary7 tok')")
    run = call(client, "rota.enqueue('anything', correlation_id => 'token=canary7')")
    call(client, "rota.cancel_run(%s, 'pwd=canary7')", run)
    client.commit()
    own = app.enqueue("anything", correlation_id="token=canary7")
    for table in ("schedules", "schedule_changes", "runs", "audit"):
        rows = client.execute(f"SELECT t::text FROM rota_data.{table} AS t").fetchall()
        assert rows, table
        assert "canary7" not in str(rows), table
    assert own
