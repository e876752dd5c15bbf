"""An executor from an installed package, and what it adds to the end of its runs."""

from __future__ import annotations

import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.executors.registry import Registry
from rota.flow.enqueue import new_run_ids
from rota.flow.events import Events
from rota.flow.settle import Settler
from rota.flow.worker import Worker
from rota.model.duration import parse_duration
from rota.model.job import Job
from rota.model.outcome import Outcome
from rota.model.retry import Retry
from rota.model.run import NewRun
from rota.storage import operations
from rota.storage.store import open_store
from tests.api.support import PATIENCE, SHORT_LEASE, Watch, plain, wait_until

SOURCE = """
    import threading

    from rota.errors import Invalid
    from rota.executors.protocol import Ask, Statement
    from rota.model.outcome import Outcome

    begun, may_end, never = threading.Event(), threading.Event(), threading.Event()

    class Tally:
        '''Does what the job's spec says, and keeps a row of every end.'''

        def check(self, job):
            if "does" not in job.spec:
                raise Invalid(f"job {job.name!r}: spec needs 'does'")

        def run(self, context):
            match context.definition.spec["does"]:
                case "fail":
                    raise RuntimeError("as it should")
                case "wait":
                    begun.set()
                    context.on_stop(lambda reason: None)
                    context.wait(60)
                    may_end.wait(60)
                    return Outcome(kind="cancelled")
                case _:
                    return Outcome(kind="succeeded", result='"done"')

        def on_terminated(self, run):
            sql = "INSERT INTO tally (run_id, state) VALUES (:run_id, :state)"
            params = {"run_id": run.id, "state": run.state}
            if run.job == "rude":
                raise RuntimeError("no statements today")
            if run.job == "endless":
                never.wait()
            statements = [Statement(sql=sql, params=params)]
            if run.job == "asking":
                statements.append(Ask(f"PAUSE SCHEDULE nightly REASON '{run.state}'"))
            if run.job == "broken":
                sql = "INSERT INTO no_such_table VALUES (:run_id, :state)"
                statements.append(Statement(sql=sql, params=params))
            return statements
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A distribution on sys.path, as pip would have installed it."""
    site = tmp_path / "site"
    info = site / "rota_tally-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "rota_tally.py").write_text(textwrap.dedent(SOURCE))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rota-tally\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[rota.executors]\ntally = rota_tally:Tally\nbroken = rota_tally:Missing\n"
    )
    monkeypatch.syspath_prepend(str(site))
    import rota_tally  # type: ignore[import-not-found]

    yield rota_tally
    sys.modules.pop("rota_tally", None)


@pytest.fixture
def app(package: Any, make_app: Callable[..., rota.Rota], database: str) -> rota.Rota:
    made = make_app(max_lost=1)
    for name in ("work", "fail", "wait", "broken", "rude", "endless", "asking"):
        retry = Retry(delay=timedelta(hours=1))
        made.add_job(Job(name=name, executor="tally", spec={"does": name}, retry=retry))
    made.load()
    with plain(database) as connection:
        connection.execute("CREATE TABLE tally (run_id TEXT, state TEXT)")
    return made


@pytest.fixture
def tally(database: str) -> Callable[[], list[tuple[str, str]]]:
    def read() -> list[tuple[str, str]]:
        with plain(database) as connection:
            rows = connection.execute("SELECT run_id, state FROM tally").fetchall()
        return [tuple(row) for row in rows]

    return read


Tally = Callable[[], list[tuple[str, str]]]


def test_a_success_leaves_one_row(app: rota.Rota, watch: Watch, tally: Tally) -> None:
    app.start()
    made = app.enqueue("work")
    assert watch.end(made.id).result == '"done"'
    assert tally() == [(made.id, "succeeded")]


def test_a_death_leaves_one_row_and_the_attempts_before_it_none(
    app: rota.Rota, watch: Watch, tally: Tally
) -> None:
    app.start()
    made = app.enqueue("fail", max_attempts=2)
    watch.wait("attempt.failed", made.id)
    assert tally() == []
    run = app.storage.read(operations.get_run, made.id)
    assert (run.state, run.failures) == ("waiting", 1)
    # The retry waits for an hour; one more enqueue with a single attempt dies at once.
    dying = app.enqueue("fail", max_attempts=1)
    assert watch.end(dying.id).state == "dead"
    assert tally() == [(dying.id, "dead")]


def test_a_cancel_before_the_start_leaves_one_row(app: rota.Rota, tally: Tally) -> None:
    waiting, queued = app.enqueue("work", delay="1h"), app.enqueue("work")
    for made in (waiting, queued):
        assert app.control.cancel(made.id).state == "cancelled"
    assert tally() == [(waiting.id, "cancelled"), (queued.id, "cancelled")]


def test_a_cancel_while_it_runs_leaves_one_row(
    app: rota.Rota, watch: Watch, tally: Tally, package: Any
) -> None:
    app.start()
    made = app.enqueue("wait")
    assert package.begun.wait(20)
    assert app.control.cancel(made.id).state == "running"
    assert tally() == []
    package.may_end.set()
    assert watch.end(made.id).state == "cancelled"
    assert tally() == [(made.id, "cancelled")]


def test_a_run_that_rescue_ends_leaves_one_row(app: rota.Rota, watch: Watch, tally: Tally) -> None:
    app.settings = replace(app.settings, lease=parse_duration(SHORT_LEASE, "lease"))
    made = app.enqueue("work")
    (claimed,) = app.storage.write(
        operations.claim,
        "gone",
        queues=(),
        jobs=["work"],
        limit=1,
        lease=timedelta(milliseconds=20),
    )
    app.start()
    assert watch.end(made.id).state == "dead"
    assert tally() == [(made.id, "dead")]
    # The worker was not dead but slow: what it says now is fenced out, and adds nothing.
    settler = Settler(
        app.storage,
        jobs={},
        max_lost=1,
        events=app.events,
        termination_hook_of=app._termination_hook_of,
    )
    settler.settle_now([(claimed, Outcome(kind="succeeded", result='"late"'))])
    assert app.storage.read(operations.get_run, made.id).state == "dead"
    assert tally() == [(made.id, "dead")]


def test_an_end_after_redo_leaves_a_row_of_its_own(
    app: rota.Rota, watch: Watch, tally: Tally
) -> None:
    app.start()
    made = app.enqueue("work")
    watch.end(made.id)
    app.control.redo(made.id)
    watch.wait("job.completed", made.id, count=2)
    assert tally() == [(made.id, "succeeded")] * 2


@pytest.mark.each_engine
def test_an_end_asks_for_a_statement(app: rota.Rota, watch: Watch, tally: Tally) -> None:
    """Done after the end that asked for it, once, by whoever runs."""
    app.schedule("nightly", job="work", every="1d")
    app.start()
    made = app.enqueue("asking")
    watch.end(made.id)
    wait_until(lambda: app.control.schedule("nightly").paused, "the pause")
    assert app.control.schedule("nightly").paused_reason == "succeeded"
    assert tally() == [(made.id, "succeeded")]


@pytest.mark.parametrize(
    ("job", "detail"),
    [
        ("broken", "no_such_table"),
        ("rude", "no statements"),
        ("endless", "on_terminated did not answer in 0.2 s"),
    ],
)
def test_a_run_ends_also_when_its_addition_fails(
    app: rota.Rota,
    watch: Watch,
    tally: Tally,
    job: str,
    detail: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if job == "endless":
        monkeypatch.setattr("rota.flow.settle.ON_TERMINATED_SECONDS", 0.2)
    app.start()
    made = app.enqueue(job)
    assert watch.end(made.id).state == "succeeded"
    waiting = app.enqueue(job, delay="1h")
    assert app.control.cancel(waiting.id).state == "cancelled"
    for ended in (made, waiting):
        told = {one["kind"]: one for one in app.control.events(ended.id)}
        event = told["run.on_terminated_failed"]
        assert (event["name"], event["run_id"]) == (job, ended.id)
        assert detail in event["detail"]
    assert tally() == []
    monkeypatch.setattr("rota.flow.settle.ON_TERMINATED_SECONDS", 60.0)
    # One that fails does not disturb the next.
    assert watch.end(app.enqueue("work").id).state == "succeeded"
    assert len(tally()) == 1


def test_an_executor_that_never_answers_is_not_asked_for_ever(
    app: rota.Rota, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.flow.settle.ON_TERMINATED_SECONDS", 0.05)
    told = []
    for _ in range(4):
        waiting = app.enqueue("endless", delay="1h")
        app.control.cancel(waiting.id)
        events = {one["kind"]: one["detail"] for one in app.control.events(waiting.id)}
        told.append(events["run.on_terminated_failed"])
    assert told[0].endswith("on_terminated did not answer in 0.05 s")
    assert told[-1].endswith("on_terminated has not answered for 3 other runs yet")


@pytest.mark.each_engine
def test_a_group_of_ends_keeps_them_apart(app: rota.Rota, watch: Watch, tally: Tally) -> None:
    app.start()
    made = [app.enqueue(job) for job in ("work", "broken", "work", "rude", "work")]
    for one in made:
        watch.end(one.id)
    assert sorted(tally()) == sorted((one.id, "succeeded") for one in made[::2])


def test_the_executor_refuses_a_job_it_cannot_run(app: rota.Rota) -> None:
    with pytest.raises(rota.Invalid, match="job 'empty': spec needs 'does'"):
        app.add_job(Job(name="empty", executor="tally"))
    with pytest.raises(rota.Unknown, match="executor 'taly' is unknown; did you mean 'tally'"):
        app.add_job(Job(name="typo", executor="taly"))
    with pytest.raises(
        rota.Invalid, match="executor 'broken' of package 'rota-tally' could not be"
    ):
        app.add_job(Job(name="missing", executor="broken"))
    known = {"work", "fail", "wait", "broken", "rude", "endless", "asking"}
    assert {job.name for job in app.jobs()} == known


def test_a_process_without_the_package_leaves_its_runs_alone(
    app: rota.Rota, make_app: Callable[..., rota.Rota], tally: Tally, monkeypatch: Any
) -> None:
    waiting, gone = app.enqueue("work", delay="1h"), app.enqueue("work")
    app.storage.write(
        operations.claim,
        "gone",
        queues=(),
        jobs=["work"],
        limit=1,
        lease=timedelta(milliseconds=20),
    )
    monkeypatch.setattr("rota.executors.registry.entry_points", lambda group: [])
    elsewhere = make_app(max_lost=1)
    with pytest.raises(rota.Conflict, match="only be cancelled where its executor is installed"):
        elsewhere.control.cancel(waiting.id)
    elsewhere.start()
    wait_until(lambda: bool(elsewhere.storage.read(operations.expired_runs, 1)))
    began, rescue = time.monotonic(), elsewhere._service.loops["rescue"]  # type: ignore[union-attr]
    wait_until(lambda: rescue.stepped_at > began)
    assert elsewhere.control.run(gone.id).state == "running"
    assert elsewhere.control.run(waiting.id).state == "waiting"
    assert tally() == []


class Refusing:
    """Runs without a thread, it says, and then does not."""

    def start(self, context: Any, done: Callable[[Outcome], None]) -> bool:
        raise RuntimeError("no room")

    def run(self, context: Any) -> Outcome:
        raise AssertionError("start was asked")


class Threaded:
    """Needs a thread for each run."""

    def run(self, context: Any) -> Outcome:
        raise AssertionError("nobody runs it here")


@contextmanager
def crowded(database: str, executor: Any, crowd: int, slots: int) -> Iterator[Worker]:
    """A worker without loops and threads, and the claim of a crowd for it to take."""
    registry = Registry()
    registry.register("own", executor)
    job = Job(name="crowd", executor="own")
    with closing(open_store(database)) as store:
        store.migrate()
        store.write(operations.put_jobs, [job])
        store.write(operations.ensure_queues, ["default"])
        store.write(
            operations.enqueue,
            [NewRun(id=id, job="crowd", queue="default", args="{}") for id in new_run_ids(crowd)],
        )
        settler = Settler(
            store, jobs={}, max_lost=1, events=Events(), termination_hook_of=lambda name: None
        )
        yield Worker(
            store, worker_id="one", jobs={"crowd": job}, executors=registry, settler=settler,
            events=Events(), target=database, slots=slots,
        )  # fmt: skip


def take_all(worker: Worker) -> None:
    worker.claim.asked_at = time.monotonic()
    worker.take(
        worker.store.write(
            operations.claim,
            "one",
            queues=(),
            jobs=["crowd"],
            limit=1_000,
            lease=timedelta(minutes=1),
        )
    )


def test_a_crowd_whose_executor_cannot_begin_ends_to_the_last(database: str) -> None:
    """However many wait: who finds that one cannot begin goes on to the next, one level deep."""
    with crowded(database, Refusing(), crowd=800, slots=1) as worker:
        take_all(worker)
        assert worker.executions() == []
        assert len(worker.settler.unwritten()) == 800


def test_nothing_is_claimed_while_a_whole_group_of_outcomes_waits(database: str) -> None:
    """What ended and is not written is done again if the process dies: it must not pile up."""
    with crowded(database, Refusing(), crowd=5, slots=10) as worker:
        settler, claiming = worker.settler, worker.loops["claim"]
        settler._group = 4
        take_all(worker)
        assert len(settler.unwritten()) == 5
        assert settler.behind
        assert worker.free() == 0
        claiming._woken.clear()
        settler.step()
        assert claiming.woken  # when the group was taken, not when the next run ends
        assert worker.free() > 0
        settler.step()
        assert settler.unwritten() == []


def test_as_many_handlers_begin_at_once_as_there_are_slots(
    make_app: Callable[..., rota.Rota],
) -> None:
    """Each thread calls the next one, to the last: nobody waits until his claim is given back."""
    app, together, attempts = make_app(slots=8), threading.Barrier(8), list[int]()

    @app.job("slow")
    def slow(ctx: rota.Context) -> None:
        together.wait(PATIENCE)
        attempts.append(ctx.attempt)

    app.load()
    slow.enqueue_many([{}] * 8)
    app.start()
    wait_until(lambda: len(attempts) == 8, "the end of all")
    assert attempts == [1] * 8


def test_one_thread_is_called_to_stand_by_however_many_runs_begin_before_it_wakes(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a busy worker wakes all of its threads, for nothing."""
    with crowded(database, Threaded(), crowd=12, slots=20) as worker:
        called: list[None] = []
        monkeypatch.setattr(worker, "_add_thread", lambda: called.append(None))  # and never wakes
        take_all(worker)
        called.clear()
        for _ in range(5):
            worker._wait_for_turn(threading.current_thread())
        assert len(called) == 1
        with worker._lock:
            worker._rest(0)  # it wakes, and does not stand by
        for _ in range(5):
            worker._wait_for_turn(threading.current_thread())
        assert len(called) == 2


def test_the_thread_that_fires_begins_nothing(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor may take its time for that: a thread of the worker is called."""
    with crowded(database, Refusing(), crowd=3, slots=2) as worker:
        called: list[None] = []
        monkeypatch.setattr(worker, "_add_thread", lambda: called.append(None))
        monkeypatch.setattr(worker, "take", worker.take_fired)
        take_all(worker)
        assert len(worker.executions()) == 3
        assert worker.settler.unwritten() == []
        assert len(called) == 1  # which calls the next one
