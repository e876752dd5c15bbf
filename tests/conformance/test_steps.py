"""Steps: what a run began with, what is done, and the transaction that makes both one."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rota.errors import LeaseLost, StorageError, Unavailable, Unknown
from rota.model.job import Job
from rota.model.run import ClaimedRun
from rota.model.steps import AT_LEAST_ONCE, StepDone, StepFile
from rota.storage import operations
from rota.storage.operations.steps import StepKey
from rota.storage.store import Store
from tests.conformance.support import (
    LEASE,
    ME,
    PATIENCE,
    Place,
    VirtualClock,
    claim_one,
    enqueue,
    rescue,
    settle,
)
from tests.support.operations import replace_operation

FILES = [
    StepFile(number=1, name="01_load.sql", text="SELECT 1", variables=("SOURCE",)),
    StepFile(number=2, name="02_check.sql", text="SELECT 2"),
    StepFile(number=3, name="03_done.sql", text="SELECT 1", variables=("SOURCE",)),
]


@pytest.fixture
def run(store: Store) -> ClaimedRun:
    enqueue(store)
    return claim_one(store)


@pytest.fixture
def effects(place: Place) -> Place:
    place.execute("CREATE TABLE effects (step INTEGER)")
    return place


def key(run: ClaimedRun, number: int = 1) -> StepKey:
    return StepKey(seq=run.seq, attempt=run.attempt, number=number)


def do(store: Store, run: ClaimedRun, number: int = 1, done: StepDone | None = None) -> None:
    """A step whose work is a row in `effects`."""
    with store.step(key(run, number), LEASE) as step:
        step.connection.execute(f"INSERT INTO effects (step) VALUES ({number})")
        step.commit(done or StepDone())


def effects_of(place: Place) -> list[int]:
    return [step for (step,) in place.execute("SELECT step FROM effects ORDER BY step")]


def test_the_files_of_a_run_are_kept_as_it_began(store: Store, run: ClaimedRun) -> None:
    assert store.read(operations.kept_files, run.seq) == []
    store.write(operations.keep_files, run.seq, run.attempt, FILES)
    assert store.read(operations.kept_files, run.seq) == FILES
    changed = [StepFile(number=1, name="01_load.sql", text="SELECT 'edited'")]
    store.write(operations.keep_files, run.seq, run.attempt, changed)
    assert store.read(operations.kept_files, run.seq) == FILES


def test_a_text_is_stored_once(store: Store, place: Place, run: ClaimedRun) -> None:
    store.write(operations.keep_files, run.seq, run.attempt, FILES)
    assert place.execute(f"SELECT count(*) FROM {place.table('job_texts')}") == [(2,)]


def test_texts_are_found_by_their_hashes(store: Store, run: ClaimedRun) -> None:
    first, other = FILES[:2]
    assert (
        store.read(operations.texts_of, [first.hash, other.hash])
        == store.read(operations.texts_of, [])
        == {}
    )
    store.write(operations.keep_files, run.seq, run.attempt, [first])
    assert store.read(operations.texts_of, [first.hash, other.hash, "no hash"]) == {
        first.hash: first.text
    }


def test_texts_are_kept_without_a_run_for_a_while(
    store: Store, clock: VirtualClock, run: ClaimedRun
) -> None:
    store.write(operations.keep_texts, FILES)
    store.write(operations.keep_texts, FILES[:1])
    assert len(store.read(operations.texts_of, [file.hash for file in FILES])) == 2
    store.write(operations.keep_files, run.seq, run.attempt, FILES[:1])
    assert (
        store.read(operations.kept_files, run.seq) == FILES[:1]
    )  # with the names of its variables
    clock.advance("2d")
    assert store.write(operations.prune_texts, age_seconds=86_400, limit=10) == 1
    assert set(store.read(operations.texts_of, [file.hash for file in FILES])) == {FILES[0].hash}


def test_a_step_and_its_mark_are_one(store: Store, effects: Place, run: ClaimedRun) -> None:
    do(store, run, 1, StepDone(rows=1, result='[{"a":1}]'))
    assert effects_of(effects) == [1]
    assert store.read(operations.done_steps, run.seq) == {1}


def test_a_step_that_is_not_committed_leaves_nothing(
    store: Store, effects: Place, run: ClaimedRun
) -> None:
    with store.step(key(run), LEASE) as step:
        step.connection.execute("INSERT INTO effects (step) VALUES (1)")
    assert effects_of(effects) == []
    assert store.read(operations.done_steps, run.seq) == set()
    do(store, run)
    assert effects_of(effects) == [1]


def test_a_step_commits_once(store: Store, effects: Place, run: ClaimedRun) -> None:
    with store.step(key(run), LEASE) as step:
        step.commit(StepDone())
        with pytest.raises(StorageError, match="has ended"):
            step.commit(StepDone())


def test_an_attempt_that_lost_its_lease_can_do_nothing(
    store: Store, effects: Place, clock: VirtualClock, run: ClaimedRun
) -> None:
    clock.advance("31s")
    rescue(store)
    again = claim_one(store)
    assert again.attempt == 2
    with pytest.raises(LeaseLost):
        do(store, run)
    for call in (
        lambda: store.write(operations.keep_files, run.seq, run.attempt, FILES),
        lambda: store.write(operations.begin_step, key(run), FILES[0]),
        lambda: store.write(operations.finish_step, key(run), StepDone(), None),
    ):
        with pytest.raises(LeaseLost):
            call()
    assert effects_of(effects) == []
    assert store.read(operations.kept_files, run.seq) == []
    assert store.read(operations.done_steps, run.seq) == set()
    do(store, again)
    assert effects_of(effects) == [1]


def test_a_cancelled_run_in_hand_still_commits_its_step(
    store: Store, effects: Place, run: ClaimedRun
) -> None:
    store.write(operations.cancel_run, run.id, None, ME)
    do(store, run)
    assert store.read(operations.done_steps, run.seq) == {1}


def test_what_an_earlier_attempt_did_is_done(store: Store, effects: Place, run: ClaimedRun) -> None:
    do(store, run)
    settle(store, run, "released")
    again = claim_one(store)
    assert store.read(operations.done_steps, again.seq) == {1}
    assert store.read(operations.done_steps, again.seq, again.attempt) == set()
    do(store, again, 2)
    assert store.read(operations.done_steps, again.seq) == {1, 2}
    assert store.read(operations.done_steps, again.seq, again.attempt) == {2}


def test_steps_tell_how_they_ended(
    store: Store, effects: Place, clock: VirtualClock, run: ClaimedRun
) -> None:
    began = clock.moment
    for file in FILES:
        store.write(operations.begin_step, key(run, file.number), file)
    clock.advance("2s")
    do(store, run, 1, StepDone(rows=7, result="[]"))
    store.write(operations.finish_step, key(run, 2), StepDone(rows=3), AT_LEAST_ONCE)
    store.write(operations.end_step, key(run, 3), "failed", "no such table")
    first, second, third = store.read(operations.list_steps, run.seq)
    assert (first["name"], first["status"], first["rows"]) == ("01_load.sql", "succeeded", 7)
    assert (first["started_at"], first["finished_at"]) == (began, clock.moment)
    assert (second["status"], second["rows"], second["note"]) == ("succeeded", 3, AT_LEAST_ONCE)
    assert (third["status"], third["error"]) == ("failed", "no such table")
    assert third["hash"] == FILES[2].hash


def test_a_pause_is_heard_by_the_attempt(store: Store, run: ClaimedRun) -> None:
    assert not store.read(operations.pause_requested, run.seq, run.attempt)
    store.write(operations.pause_run, run.id, None, ME)
    assert store.read(operations.pause_requested, run.seq, run.attempt)
    assert not store.read(operations.pause_requested, run.seq, run.attempt + 1)


def test_a_paused_attempt_does_not_count_and_goes_on_where_it_was(
    store: Store, effects: Place, run: ClaimedRun
) -> None:
    do(store, run)
    store.write(operations.pause_run, run.id, "lunch", ME)
    settle(store, run, "paused")
    paused = store.read(operations.get_run, run.id)
    assert (paused.state, paused.failures, paused.lost) == ("paused", 0, 0)
    store.write(operations.resume_run, run.id, None, ME)
    store.write(operations.promote, 10)
    assert store.read(operations.done_steps, claim_one(store).seq) == {1}


def all_done(store: Store, run: ClaimedRun, *, ends: str) -> None:
    store.write(operations.keep_files, run.seq, run.attempt, FILES)
    for number in (1, 2):
        do(store, run, number)
    if ends == "succeeded":
        do(store, run, 3)
        settle(store, run)
    else:
        settle(store, run, "cancelled")


def test_a_redo_goes_on_at_the_first_step_that_is_not_done(
    store: Store, effects: Place, run: ClaimedRun
) -> None:
    all_done(store, run, ends="cancelled")
    store.write(operations.redo_run, run.id, None, ME)
    assert store.read(operations.done_steps, run.seq) == {1, 2}
    assert store.read(operations.kept_files, run.seq) == FILES


def test_a_redo_of_a_success_does_every_step_again(
    store: Store, effects: Place, run: ClaimedRun
) -> None:
    all_done(store, run, ends="succeeded")
    store.write(operations.redo_run, run.id, None, ME)
    assert store.read(operations.done_steps, run.seq) == set()
    assert store.read(operations.kept_files, run.seq) == FILES


@pytest.mark.parametrize("named", ["02_check.sql", "2"])
def test_a_redo_may_begin_at_a_step(
    store: Store, effects: Place, run: ClaimedRun, named: str
) -> None:
    all_done(store, run, ends="succeeded")
    store.write(operations.redo_run, run.id, None, ME, from_step=named)
    assert store.read(operations.done_steps, run.seq) == {1}


def test_a_redo_with_the_latest_files_forgets_the_kept_ones(
    store: Store, effects: Place, run: ClaimedRun
) -> None:
    all_done(store, run, ends="cancelled")
    store.write(operations.redo_run, run.id, None, ME, latest=True)
    assert store.read(operations.done_steps, run.seq) == set()
    assert store.read(operations.kept_files, run.seq) == []


def test_a_redo_from_an_unknown_step_names_the_known_ones(
    store: Store, effects: Place, run: ClaimedRun
) -> None:
    all_done(store, run, ends="cancelled")
    with pytest.raises(Unknown, match=r"no step '04.sql'; its steps are 01_load.sql, 02_check"):
        store.write(operations.redo_run, run.id, None, ME, from_step="04.sql")
    assert store.read(operations.get_run, run.id).state == "cancelled"


def test_a_redo_from_a_step_passes_over_what_was_never_done(
    store: Store, effects: Place, run: ClaimedRun
) -> None:
    store.write(operations.keep_files, run.seq, run.attempt, FILES)
    settle(store, run, "cancelled")
    store.write(operations.redo_run, run.id, None, ME, from_step="03_done.sql")
    assert store.read(operations.done_steps, run.seq) == {1, 2}
    store.write(operations.promote, 10)
    again = claim_one(store)
    assert store.read(operations.done_steps, again.seq, again.attempt) == {1, 2}, (
        "also with restart = true"
    )
    settle(store, again, "cancelled")
    store.write(operations.redo_run, run.id, None, ME)
    assert store.read(operations.done_steps, run.seq) == set(), (
        "a plain redo begins at what is not done"
    )


def now_are(store: Store, *files: str) -> None:
    store.write(
        operations.put_jobs,
        [Job(name="job", executor="sql", spec={"folder": "/f", "files": list(files)})],
    )


@pytest.mark.parametrize("named", ["03_done.sql", "3"])
def test_a_redo_with_the_latest_files_may_begin_at_a_step(
    store: Store, effects: Place, run: ClaimedRun, named: str
) -> None:
    all_done(store, run, ends="cancelled")
    now_are(store, "01_load.sql", "02_check.sql", "03_done.sql", "04_more.sql")
    store.write(operations.redo_run, run.id, None, ME, from_step=named, latest=True)
    assert store.read(operations.done_steps, run.seq) == {1, 2}
    assert store.read(operations.kept_files, run.seq) == []
    store.write(operations.promote, 10)
    settle(store, claim_one(store), "cancelled")
    store.write(operations.redo_run, run.id, None, ME)
    assert store.read(operations.done_steps, run.seq) == {1, 2}, "what was done stays done"


def test_what_was_done_does_not_count_for_another_file(
    store: Store, effects: Place, run: ClaimedRun
) -> None:
    all_done(store, run, ends="cancelled")
    now_are(store, "01_load.sql", "01_new.sql", "02_check.sql")
    store.write(operations.redo_run, run.id, None, ME, from_step="02_check.sql", latest=True)
    assert store.read(operations.done_steps, run.seq) == {1, 2}
    store.write(operations.promote, 10)
    settle(store, claim_one(store), "cancelled")
    store.write(operations.redo_run, run.id, None, ME)
    assert store.read(operations.done_steps, run.seq) == {1}


def test_a_step_that_the_latest_files_do_not_have_is_refused(
    store: Store, effects: Place, run: ClaimedRun
) -> None:
    all_done(store, run, ends="cancelled")
    now_are(store, "a.sql", "b.sql")
    with pytest.raises(
        Unknown,
        match=r"job 'job' as it is now has no step '02_check.sql'; its steps are a.sql, b.sql",
    ):
        store.write(operations.redo_run, run.id, None, ME, from_step="02_check.sql", latest=True)
    assert store.read(operations.get_run, run.id).state == "cancelled"
    assert store.read(operations.kept_files, run.seq) == FILES
    assert store.read(operations.done_steps, run.seq) == {1, 2}


def test_a_step_done_again_after_a_redo_is_done(
    store: Store, effects: Place, run: ClaimedRun
) -> None:
    all_done(store, run, ends="succeeded")
    store.write(operations.redo_run, run.id, None, ME, from_step="3")
    store.write(operations.promote, 10)
    again = claim_one(store)
    do(store, again, 3)
    assert store.read(operations.done_steps, run.seq) == {1, 2, 3}


def test_a_deleted_run_leaves_no_steps(
    store: Store, effects: Place, clock: VirtualClock, run: ClaimedRun
) -> None:
    store.write(operations.begin_step, key(run), FILES[0])
    all_done(store, run, ends="succeeded")
    store.write(operations.delete_run, run.id, None, ME)
    for table in ("steps", "step_marks", "run_files"):
        assert effects.execute(f"SELECT count(*) FROM {effects.table(table)}") == [(0,)]
    assert store.write(operations.prune_texts, age_seconds=3600, limit=10) == 0
    clock.advance("2h")
    assert store.write(operations.prune_texts, age_seconds=3600, limit=1) == 1
    assert store.write(operations.prune_texts, age_seconds=3600, limit=10) == 1


def test_a_text_that_a_run_has_is_not_pruned(
    store: Store, clock: VirtualClock, run: ClaimedRun
) -> None:
    store.write(operations.keep_files, run.seq, run.attempt, FILES)
    clock.advance("2d")
    assert store.write(operations.prune_texts, age_seconds=3600, limit=10) == 0
    assert store.read(operations.kept_files, run.seq) == FILES


def test_a_failed_statement_cannot_be_committed(
    store: Store, effects: Place, run: ClaimedRun
) -> None:
    """On engines where a failed statement spoils its transaction, a COMMIT would undo it
    silently."""
    bad = "SELECT * FROM nowhere"
    if effects.engine == "duckdb":  # it forgives what it refuses before it begins
        bad = "SELECT CAST('nowhere' AS INTEGER)"
    with store.step(key(run), LEASE) as step:
        step.connection.execute("INSERT INTO effects (step) VALUES (1)")
        with pytest.raises(Exception, match="nowhere"):
            step.connection.execute(bad)
        if effects.engine == "sqlite":
            step.commit(StepDone())
            return
        with pytest.raises(Exception, match=r"ended by its own SQL|aborted"):
            step.commit(StepDone())
    assert effects_of(effects) == []
    assert store.read(operations.done_steps, run.seq) == set()


def test_a_transaction_that_the_sql_ended_itself_is_noticed(
    store: Store, effects: Place, run: ClaimedRun
) -> None:
    with store.step(key(run), LEASE) as step:
        step.connection.execute("COMMIT")
        with pytest.raises(StorageError, match="ended by its own SQL"):
            step.commit(StepDone())
    assert store.read(operations.done_steps, run.seq) == set()


def test_a_commit_renews_where_nobody_else_could(
    store: Store, effects: Place, clock: VirtualClock
) -> None:
    enqueue(store)
    enqueue(store)
    first, second = claim_one(store), claim_one(store)
    with store.step(key(first), timedelta(seconds=30)) as step:
        clock.advance("60s")
        step.connection.execute("INSERT INTO effects (step) VALUES (1)")
        step.commit(StepDone())
    left = {run.seq for run in store.read(operations.expired_runs, 10)}
    assert left == (set() if effects.engine == "sqlite" else {first.seq, second.seq})


def test_steps_of_two_runs_come_one_after_the_other_or_together_but_both_come(
    store: Store, effects: Place
) -> None:
    enqueue(store)
    enqueue(store)
    runs = [claim_one(store), claim_one(store)]
    held, go_on = threading.Event(), threading.Event()

    def slowly() -> None:
        with store.step(key(runs[0]), LEASE) as step:
            step.connection.execute("INSERT INTO effects (step) VALUES (1)")
            held.set()
            assert go_on.wait(PATIENCE)
            step.commit(StepDone())

    def beside() -> None:
        do(store, runs[1], 2)

    threads = [threading.Thread(target=slowly), threading.Thread(target=beside)]
    threads[0].start()
    assert held.wait(PATIENCE)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert effects_of(effects) == [1, 2]


def test_a_step_that_waits_for_its_turn_hears_that_it_should_stop(
    store: Store, effects: Place
) -> None:
    if effects.engine != "sqlite":
        pytest.skip("steps do not wait for each other there")
    enqueue(store)
    enqueue(store)
    first, second = claim_one(store), claim_one(store)
    with (
        store.step(key(first), LEASE),
        pytest.raises(Unavailable, match="stopped"),
        store.step(key(second), LEASE, lambda: True),
    ):
        pass
    other = effects.open()
    with (
        store.step(key(first), LEASE),
        pytest.raises(Unavailable, match="stopped"),
        other.step(key(second), LEASE, lambda: True),
    ):
        pass


def test_rescue_does_not_believe_leases_that_nobody_could_renew(
    store: Store, effects: Place, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue(store)
    run = claim_one(store)
    clock.advance("31s")
    monkeypatch.setattr(store.engine, "blocked_within", lambda seconds: True)
    assert rescue(store) == []
    monkeypatch.undo()
    assert [settled.seq for settled in rescue(store)] == [run.seq]


def test_what_a_step_sets_for_its_session_reaches_nobody_else(
    store: Store, effects: Place, run: ClaimedRun
) -> None:
    if effects.engine != "postgres":
        pytest.skip("a session of its own ends with the step")
    effects.execute(
        """CREATE TABLE seen AS SELECT '' AS path, '' AS timeout LIMIT 0;
           CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql
           AS $$ BEGIN
               INSERT INTO public.seen VALUES
                   (current_setting('search_path'), current_setting('statement_timeout'));
               RETURN NULL;
           END $$;
           CREATE TRIGGER look AFTER INSERT ON rota_data.step_marks
           FOR EACH ROW EXECUTE FUNCTION look()"""
    )
    with store.step(key(run), LEASE) as step:
        step.connection.execute("SET search_path = nowhere")
        step.connection.execute("SET statement_timeout = '7min'")
        step.connection.execute("INSERT INTO public.effects (step) VALUES (1)")
        step.commit(StepDone())
    assert store.read(operations.done_steps, run.seq) == {1}
    assert effects.execute("SELECT * FROM seen") == [("pg_catalog", "0")]  # with the mark
    engine: Any = store.engine
    with engine._pool.lend() as session:
        for name in ("search_path", "statement_timeout"):
            assert [session.execute(f"SHOW {name}").fetchone()] == effects.execute(f"SHOW {name}")


def test_a_deferred_constraint_fails_the_step(store: Store, place: Place, run: ClaimedRun) -> None:
    if place.engine == "duckdb":
        pytest.skip("every constraint is checked at once there")
    place.execute("CREATE TABLE parents (id INTEGER PRIMARY KEY)")
    place.execute(
        "CREATE TABLE children (parent INTEGER REFERENCES parents (id) "
        "DEFERRABLE INITIALLY DEFERRED)"
    )
    with store.step(key(run), LEASE) as step:
        if place.engine == "sqlite":
            step.connection.execute("PRAGMA defer_foreign_keys = ON")
        step.connection.execute("INSERT INTO children VALUES (7)")
        if place.engine == "sqlite":
            return  # foreign keys are off there, unless a connection asks before it begins
        with pytest.raises(Exception, match="foreign key"):
            step.commit(StepDone())
    assert place.execute("SELECT * FROM children") == []
    assert store.read(operations.done_steps, run.seq) == set()


def test_an_attached_file_is_committed_before_the_mark(
    store: Store, effects: Place, run: ClaimedRun, tmp_path: Path
) -> None:
    if effects.engine != "sqlite":
        pytest.skip("a transaction writes one database there; for DuckDB see test_duckdb.py")
    store.write(operations.begin_step, key(run), FILES[0])
    with store.step(key(run), LEASE) as step:
        step.connection.execute(f"ATTACH '{tmp_path}/other.db' AS other")
        step.connection.execute("CREATE TABLE other.copies (step INTEGER)")
        step.connection.execute("INSERT INTO effects (step) VALUES (1)")
        step.commit(StepDone())
    assert effects_of(effects) == [1]
    (told,) = store.read(operations.list_steps, run.seq)
    assert (told["status"], told["note"]) == ("succeeded", AT_LEAST_ONCE)


def test_who_lost_his_lease_writes_no_attached_file(
    store: Store, run: ClaimedRun, clock: VirtualClock, place: Place, tmp_path: Path
) -> None:
    if place.engine == "postgres":
        pytest.skip("nothing is attached there")
    clock.advance("31s")
    rescue(store)
    for _ in range(2):  # nothing is there at the second time
        with store.step(key(run), LEASE) as step:
            step.connection.execute(f"ATTACH '{tmp_path}/other' AS other")
            step.connection.execute("CREATE TABLE other.copies (step INTEGER)")
            with pytest.raises(LeaseLost):
                step.commit(StepDone())


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_step_with_an_old_snapshot_is_fenced_and_commits(
    store: Store, effects: Place, clock: VirtualClock, run: ClaimedRun, level: str
) -> None:
    if effects.engine != "postgres":
        pytest.skip("a step has one kind of snapshot there")

    def work(number: int) -> None:
        with store.step(key(run, number), LEASE) as step:
            step.connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
            step.connection.execute(f"INSERT INTO effects (step) VALUES ({number})")
            if number == 1:
                assert store.write(operations.renew, [(run.seq, run.attempt)], LEASE)
            else:
                clock.advance("31s")
                rescue(store)
            step.commit(StepDone())

    work(1)
    with pytest.raises(LeaseLost):
        work(2)
    assert effects_of(effects) == [1]
    assert store.read(operations.done_steps, run.seq) == {1}


def test_a_step_that_may_only_read_is_done(store: Store, place: Place, run: ClaimedRun) -> None:
    if place.engine != "postgres":
        pytest.skip("a step may write there")
    with store.step(key(run), LEASE) as step:
        step.connection.execute("SET TRANSACTION READ ONLY")
        step.commit(StepDone())
    assert store.read(operations.done_steps, run.seq) == {1}


def test_a_commit_without_an_answer_is_found_out_by_reading(
    store: Store, effects: Place, run: ClaimedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    if effects.engine != "postgres":
        pytest.skip("no connection to lose")
    engine: Any = store.engine
    commit = engine._commit
    for number, arrives in ((1, True), (2, False)):

        def lose(connection: Any, arrives: bool = arrives) -> None:
            if arrives:
                commit(connection)
            lost = Unavailable("the answer was lost")
            lost.maybe_committed = True
            connection.close()
            raise lost

        monkeypatch.setattr(engine, "_commit", lose)
        step = store.step(key(run, number), LEASE)
        opened = step.__enter__()
        opened.connection.execute(f"INSERT INTO effects (step) VALUES ({number})")
        replace_operation(
            monkeypatch, store, operations.has_mark, _with(engine, monkeypatch, commit)
        )
        if arrives:
            opened.commit(StepDone())
        else:
            with pytest.raises(Unavailable, match="answer was lost"):
                opened.commit(StepDone())
        step.__exit__(None, None, None)
        monkeypatch.undo()
    assert effects_of(effects) == [1]
    assert store.read(operations.done_steps, run.seq) == {1}


def _with(engine: Any, monkeypatch: pytest.MonkeyPatch, commit: Any) -> Any:
    """The way to read has a connection that works."""

    def ask(plain: Any, key: StepKey) -> bool:
        monkeypatch.setattr(engine, "_commit", commit)
        found: bool = plain(key)
        return found

    return ask
