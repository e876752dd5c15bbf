"""Answer: what a control row asks for happens once, with its answer, whoever dies where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rota.storage.inside as inside
from rota.errors import Conflict, RotaError, Unavailable
from rota.flow.answer import Answer
from rota.model.control_row import ControlReply, ControlRequest, done, failed
from rota.model.limits import CONTROL_BYTES, CONTROL_ROWS, STATEMENT_LENGTH
from rota.model.result import Column, Result
from rota.storage import operations
from rota.storage.engine import Transaction
from rota.storage.store import Store
from tests.conformance.support import (
    ME,
    Place,
    VirtualClock,
    enqueue,
    put_schedule,
    states,
    together,
)

OK = ControlReply(status="done", redacted_text="as asked")


def ask(place: Place, statement: str = "PAUSE SCHEDULE schedule") -> None:
    place.execute(f"INSERT INTO {place.view('control')} (statement) VALUES ('{statement}')")


def rows(place: Place, columns: str = "status, statement, error") -> list[tuple[Any, ...]]:
    return place.execute(f"SELECT {columns} FROM {place.view('control')} ORDER BY id")


def refuse(fault: RotaError) -> ControlReply:
    return failed("as asked", fault)


def pausing(store: Any) -> ControlReply:
    store.write(operations.pause_schedule, "schedule", "by row", ME)
    return OK


def as_asked(
    store: Store, do: Callable[[Any], ControlReply]
) -> Callable[[Transaction], ControlReply]:
    """Inside the transaction that answers, as flow does it."""
    return lambda tx: do(store.inside(tx))


def answer_all(
    store: Store, do: Callable[[Any], ControlReply] = pausing
) -> list[ControlReply | None]:
    return [
        store.write(operations.answer, one.id, as_asked(store, do), refuse)
        for one in store.peek(operations.asked, limit=100)
    ]


def test_a_row_is_done_and_answered(store: Store, place: Place) -> None:
    put_schedule(store)
    ask(place)
    (asked,) = store.peek(operations.asked, limit=9)
    assert asked.statement == "PAUSE SCHEDULE schedule"
    assert asked.role == "admin"
    assert answer_all(store) == [OK]
    assert store.read(operations.schedule_named, "schedule").paused
    assert rows(place) == [("done", "as asked", None)]
    assert store.peek(operations.asked, limit=9) == []
    assert store.write(operations.answer, asked.id, as_asked(store, pausing), refuse) is None


def test_the_oldest_rows_come_first(store: Store, place: Place) -> None:
    for number in range(3):
        ask(place, f"statement {number}")
    assert [one.statement for one in store.peek(operations.asked, limit=2)] == [
        "statement 0",
        "statement 1",
    ]


def test_of_many_who_try_one_does_it(store: Store, place: Place) -> None:
    ask(place)
    (asked,) = store.peek(operations.asked, limit=9)
    calls = []

    def do(_: Any) -> ControlReply:
        calls.append(1)
        return OK

    others = [place.open() for _ in range(4)]
    replies = together(
        *[lambda one=one: one.write(operations.answer, asked.id, do, refuse) for one in others]
    )
    assert sorted(map(str, replies)) == sorted(map(str, [OK, None, None, None]))
    assert calls == [1]


def test_what_is_asked_later_is_done_later_whoever_does_it(store: Store, place: Place) -> None:
    """Another process has found the second row, while the first one is being done."""
    ask(place, "first")
    ask(place, "second")
    first, second = store.peek(operations.asked, limit=9)
    other = place.open()
    tried: list[ControlReply | None] = []

    def do(_: Any) -> ControlReply:
        if not other.engine.one_writer:  # elsewhere it could not even begin meanwhile
            tried.append(other.write(operations.answer, second.id, lambda _: OK, refuse))
        return OK

    assert store.write(operations.answer, first.id, do, refuse) == OK
    assert tried in ([], [None])
    assert other.write(operations.answer, second.id, lambda _: OK, refuse) == OK


def test_what_it_raises_undoes_what_it_did_and_is_the_answer(store: Store, place: Place) -> None:
    put_schedule(store)
    ask(place)

    def do(joined: Any) -> ControlReply:
        pausing(joined)
        raise Conflict("half way")

    (reply,) = answer_all(store, do)
    assert reply is not None
    assert not store.read(operations.schedule_named, "schedule").paused
    assert rows(place) == [("failed", "as asked", "half way")]


def test_a_part_that_fails_and_is_caught_leaves_nothing_and_the_rest_stays(
    store: Store, place: Place
) -> None:
    run_id = enqueue(store)
    ask(place)

    def do(joined: Any) -> ControlReply:
        joined.write(operations.cancel_run, run_id, None, ME)
        for _ in range(2):
            with pytest.raises(Conflict):
                joined.write(operations.cancel_run, run_id, None, ME)
        joined.write(operations.pause_queue, "default", None, ME)
        return OK

    assert answer_all(store, do) == [OK]
    assert states(store, [run_id]) == ["cancelled"]
    assert store.read(operations.list_queues, limit=9)[0]["paused"]
    actions = [row["action"] for row in store.read(operations.list_audit, limit=9)]
    assert (actions.count("cancel_run"), actions.count("pause_queue")) == (1, 1)


def test_a_row_waits_while_the_database_is_away(store: Store, place: Place) -> None:
    put_schedule(store)
    ask(place)

    def do(joined: Any) -> ControlReply:
        pausing(joined)
        raise Unavailable("for a while")

    with pytest.raises(Unavailable):
        answer_all(store, do)
    assert not store.read(operations.schedule_named, "schedule").paused
    assert [row[0] for row in rows(place)] == ["asked"]
    assert answer_all(store) == [OK]


class Doing:
    """A statement that pauses the schedule it ends with, or cancels the run."""

    def __init__(self, asked: ControlRequest) -> None:
        self.redacted_text = asked.statement

    def do(self, joined: Any) -> ControlReply:
        verb, _, name = self.redacted_text.split()
        if verb == "PAUSE":
            joined.write(operations.pause_schedule, name, "by row", ME)
        else:
            joined.write(operations.cancel_run, name, "by row", ME)
        return ControlReply(status="done", redacted_text=self.redacted_text)

    def done(self) -> None: ...


@pytest.mark.parametrize("thing", ["schedule", "run"])
def test_a_row_about_what_somebody_holds_is_answered_and_the_next_is_done(
    store: Store, place: Place, thing: str
) -> None:
    if place.engine != "postgres":
        pytest.skip("nobody holds one row there")
    put_schedule(store)
    put_schedule(store, "other")
    run_id = enqueue(store)
    hold, held = {
        "schedule": ("SELECT rota.pause_schedule('schedule')", "PAUSE SCHEDULE schedule"),
        "run": (f"SELECT rota.cancel_run('{run_id}')", f"CANCEL RUN {run_id}"),
    }[thing]
    holder = place.begin()
    holder.execute(hold)
    ask(place, held)
    ask(place, "PAUSE SCHEDULE other")
    loop = Answer(store, planner=lambda: Doing, interval=1.0)
    loop.step()
    told = (
        f"{held}: another transaction holds what this would change, and is still open; commit that "
        "one or roll it back, and ask again (`rota doctor` names those that are open for long)"
    )
    assert rows(place) == [("failed", held, told), ("done", "PAUSE SCHEDULE other", None)]
    assert store.read(operations.schedule_named, "other").paused
    holder.rollback()
    ask(place, held)
    loop.step()
    assert rows(place)[-1] == ("done", held, None)


def test_rows_wait_where_nothing_can_read_them(store: Store, place: Place) -> None:
    """An upgrade under way, or no descriptor left: that is not the row's fault."""

    def broken() -> Any:
        raise ImportError("no parser")

    loop = Answer(store, planner=broken, interval=1.0)
    assert loop.step() == 0.5  # nobody asks, and nothing is needed
    put_schedule(store)
    ask(place)
    with pytest.raises(ImportError):
        loop.step()
    assert rows(place) == [("asked", "PAUSE SCHEDULE schedule", None)]
    loop.planner = lambda: Doing
    loop.step()
    assert rows(place) == [("done", "PAUSE SCHEDULE schedule", None)]


def test_there_is_a_limit_to_what_one_row_changes(
    store: Store, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_schedule(store)
    ask(place)
    ask(place)
    monkeypatch.setattr(inside, "CONTROL_CHANGES", 2)

    def do(joined: Any) -> ControlReply:
        for name in ("one", "two", "three"):
            joined.write(operations.pause_queue, name, None, ME)
        return OK

    answer_all(store, do)
    assert "more than 2 changes at once" in rows(place)[0][2]
    monkeypatch.setattr(inside, "CONTROL_SECONDS", 0.0)
    ask(place)
    answer_all(store, do)
    assert "longer than 0 s at once" in rows(place)[-1][2]
    assert [row["name"] for row in store.read(operations.list_queues, limit=9)] == ["default"]


def test_old_answers_are_deleted_and_nothing_that_waits(
    store: Store, place: Place, clock: VirtualClock
) -> None:
    for number in range(4):
        ask(place, f"statement {number}")
    for one in store.peek(operations.asked, limit=9)[:-1]:
        store.write(
            operations.answer,
            one.id,
            lambda _: ControlReply(status="done", redacted_text="x"),
            refuse,
        )
    day = 86_400.0
    assert store.write(operations.prune_answered, age_seconds=day, keep=100, limit=100) == 0
    clock.advance("2d")
    assert store.write(operations.prune_answered, age_seconds=day, keep=100, limit=2) == 2
    assert store.write(operations.prune_answered, age_seconds=day, keep=100, limit=2) == 1
    assert [row[0] for row in rows(place)] == ["asked"]
    for number in range(3):
        ask(place, f"another {number}")
    for one in store.peek(operations.asked, limit=9)[:-1]:
        store.write(operations.answer, one.id, lambda _: OK, refuse)
    assert store.write(operations.prune_answered, age_seconds=day, keep=2, limit=100) == 2
    assert [row[0] for row in rows(place)] == ["done", "asked"]


def test_a_statement_that_is_too_long_is_refused_at_once(store: Store, place: Place) -> None:
    with pytest.raises(Exception, match=r"(?i)check"):
        ask(place, "x" * (STATEMENT_LENGTH + 1))
    ask(place, "x" * STATEMENT_LENGTH)


# The answer itself


def test_an_answer_holds_the_first_rows() -> None:
    many = Result(columns=(Column("a"),), rows=tuple((n,) for n in range(CONTROL_ROWS + 1)))
    reply = done("kept", many)
    assert reply.rows is not None
    assert (reply.rows.count('"a"'), reply.more) == (CONTROL_ROWS, True)
    wide = Result(columns=(Column("a"),), rows=tuple(("x" * 1_000,) for _ in range(CONTROL_ROWS)))
    reply = done("kept", wide)
    assert reply.rows is not None
    assert 0 < len(reply.rows) <= CONTROL_BYTES
    assert reply.more
    assert done("kept", Result(columns=(Column("a"),), rows=((1,),))).rows == '[{"a":1}]'


def test_the_password_of_a_url_is_in_no_answer() -> None:
    reply = failed("kept", Conflict("cannot reach postgresql://me:secret@host/db"))
    assert reply.error == "cannot reach postgresql://me:[redacted]@host/db"


# The last word


def resuming(store: Any) -> ControlReply:
    store.write(operations.resume_schedule, "schedule", "by row", ME)
    return OK


def history(store: Store) -> list[tuple[str, str | None]]:
    schedule = store.read(operations.schedule_named, "schedule")
    found = store.read(operations.list_schedule_changes, schedule.id, before=1 << 62, limit=99)
    return [(row["action"], row["reason"]) for row in reversed(found)]


@pytest.mark.parametrize(
    "statement",
    [
        "RESUME SCHEDULE schedule",
        "resume schedule schedule;",
        """ Resume\n  Schedule "schedule" REASON ''it is time''""",
        "RESUME SCHEDULE ''schedule''",
    ],
)
def test_a_pause_withdraws_a_resume_that_waits(
    store: Store, place: Place, clock: VirtualClock, statement: str
) -> None:
    put_schedule(store)
    store.write(operations.pause_schedule, "schedule", "first", ME)
    clock.advance("1m")
    ask(place, statement)
    paused = store.write(operations.pause_schedule, "schedule", "no, stay", ME)
    assert (paused.paused_reason, paused.paused_at) == ("no, stay", clock())
    assert store.peek(operations.asked, limit=9) == []
    ((status, error),) = rows(place, "status, error")
    told = "withdrawn before it was done: schedule 'schedule' was paused by operator"
    assert (status, error) == ("failed", told)
    assert store.read(operations.schedule_named, "schedule") == paused
    withdrawn = "withdrawn before it was done: paused by operator"
    assert history(store) == [
        ("create", None), ("pause", "first"), ("resume", withdrawn), ("pause", "no, stay"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "statement",
    [
        "RESUME SCHEDULE schedule2",
        "RESUME SCHEDULE Schedule",
        "RESUME JOBS FOR SCHEDULE schedule",
        "PAUSE SCHEDULE schedule",
        "SHOW SCHEDULE schedule -- RESUME SCHEDULE schedule",
    ],
)
def test_a_pause_leaves_other_words_alone(store: Store, place: Place, statement: str) -> None:
    put_schedule(store)
    first = store.write(operations.pause_schedule, "schedule", "first", ME)
    ask(place, statement)
    assert store.write(operations.pause_schedule, "schedule", "again", ME) == first
    assert [one.statement for one in store.peek(operations.asked, limit=9)] == [statement]


def test_a_resume_withdraws_a_pause_that_waits(store: Store, place: Place) -> None:
    before = put_schedule(store)
    ask(place, "PAUSE SCHEDULE schedule")
    assert store.write(operations.resume_schedule, "schedule", None, ME) == before
    assert rows(place, "status") == [("failed",)]
    assert history(store)[-1] == ("pause", "withdrawn before it was done: resumed by operator")


def test_a_row_withdraws_nothing_that_was_asked_after_it(store: Store, place: Place) -> None:
    put_schedule(store)
    ask(place, "PAUSE SCHEDULE schedule")
    ask(place, "RESUME SCHEDULE schedule")
    first, second = store.peek(operations.asked, limit=9)
    assert store.write(operations.answer, first.id, as_asked(store, pausing), refuse) == OK
    assert store.read(operations.schedule_named, "schedule").paused
    assert store.write(operations.answer, second.id, as_asked(store, resuming), refuse) == OK
    assert not store.read(operations.schedule_named, "schedule").paused


def test_a_word_that_is_just_being_done_is_waited_for(store: Store, place: Place) -> None:
    """Whoever comes first, the pause is the last word."""
    put_schedule(store)
    for _ in range(10):
        store.write(operations.pause_schedule, "schedule", None, ME)
        ask(place, "RESUME SCHEDULE schedule")
        *_, asked = store.peek(operations.asked, limit=9)
        one, other = place.open(), place.open()
        together(
            lambda one=one, asked=asked: one.write(
                operations.answer, asked.id, as_asked(store, resuming), refuse
            ),
            lambda other=other: other.write(operations.pause_schedule, "schedule", "stay", ME),
        )
        found = store.read(operations.schedule_named, "schedule")
        assert (found.paused, found.paused_reason) == (True, "stay")
        assert store.peek(operations.asked, limit=9) == []
        store.write(operations.resume_schedule, "schedule", None, ME)
