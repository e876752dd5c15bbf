"""Bad input: each error names the thing and the way out, and nothing is half written."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

import rota
from tests.api.support import Driven, plain
from tests.support.postgres import Server

Call = Callable[[rota.Rota], Any]
NOBODY = 65534


def work(n: int = 0, **more: Any) -> None: ...


class Shop:
    def sell(self, item: str) -> None: ...


def job(**options: Any) -> Call:
    return lambda app: app.job("bad", **options)(work)


def schedule(**options: Any) -> Call:
    return lambda app: app.schedule(**{"name": "bad", "job": "good", **options})


def enqueue(*args: Any, **options: Any) -> Call:
    return lambda app: app.enqueue(*(args or ("good",)), **options)


def deep(levels: int) -> Any:
    return [deep(levels - 1)] if levels else 1


# What is done, what it is told, and which error that is; Invalid where nothing else is said.
DEFINITIONS: list[tuple[Any, ...]] = [
    (job(schedule="61 * * * *"), r"'bad': cron '61 \* .*has minute 61; use 0-59"),
    (job(schedule="0 0 31 2 *"), r"'bad': cron '0 0 31 2 \*' never occurs; check"),
    (job(schedule=5), "'bad': expr 5 must be text"),
    (
        job(schedule="@daily", timezone="Berlin/Europe"),
        "'bad': timezone 'Berlin/Europe' is unknown; (did you mean|use a name)",
    ),
    (job(every="soon"), "'bad': every 'soon' is not a duration; use text like"),
    (job(at="tomorrow"), "'bad': at 'tomorrow' is not an instant; use ISO 8601"),
    (job(at="2030-01-01T00:00"), "'bad': at .* has no offset; add one, such as"),
    (job(every="1h", at="x"), "'bad': give one of .*, not every and at"),
    (job(every="1h", overlap="no"), "'bad': overlap 'no' is unknown; use queue"),
    (job(schedule=False, every="1h"), "'bad': schedule = false and every .*contradict"),
    (job(schedule=False, timezone="UTC"), "job 'bad': timezone belongs to a schedule; add sched"),
    (schedule(cron=False), "'bad': say when: add cron=, every= or at="),
    (job(timezone="UTC"), "job 'bad': timezone belongs to a schedule; add schedule="),
    (job(timeout="x"), "job 'bad': timeout 'x' is not a duration; use text like"),
    (job(queue="a b"), "job 'bad': queue 'a b' is not a valid name; use 1 to 128"),
    (job(max_attempts=0), "job 'bad': max_attempts 0 must be a whole number from 1"),
    (job(backoff="linear"), "job 'bad': backoff 'linear' is unknown; use none, fixed"),
    (job(delay="2h"), "job 'bad': delay 2h is longer than max_delay 1h; raise"),
    (job(isolation="vm"), "job 'bad': isolation 'vm' is unknown; use thread, process"),
    (job(concurrency_limit=0), "job 'bad': concurrency_limit 0 must be a whole"),
    (job(max_attempt=3), "job 'bad': option 'max_attempt' is unknown; did you mean 'm"),
    (
        job(every="1h", catchup="one"),
        "job 'bad': option 'catchup' is unknown; did you mean 'catch_up'",
    ),
    (job(cron="@daily"), "job 'bad': option 'cron' is unknown; did you mean 'schedule'"),
    (job(rate_limit="9/m"), "option 'rate_limit' is unknown; Rota has no rate limit; concur"),
    (job(expires=60), "option 'expires' is unknown; a run does not expire; .*misfire_grace"),
    (job(zzz=1), "is unknown; a job has at, backoff, .*; a schedule also anchor, .*timezone"),
    (lambda app: app.job("two words")(work), "job name 'two words' is not a valid name"),
    (lambda app: app.job("good")(work), "job 'good' is defined twice; give one of", rota.Conflict),
    (
        lambda app: app.job("bad")(lambda *args: None),
        r"takes \*args by position, but arguments of a job travel by name; give each",
    ),
    (
        lambda app: app.job(partial(work, n=1)),
        r"functools\.partial.* has no name; define a function that calls it",
    ),
    (lambda app: app.job(classmethod(work)), "name <classmethod.* must be text, and a job a f"),
    (lambda app: app.job("bad")(Shop.sell), r"Shop\.sell' is a method, and its runs would"),
    (
        lambda app: app.job("bad", timeout="1s")(lambda: None),
        "job 'bad': a child process cannot find .*; move it to the top level of a module, or use",
    ),
    (schedule(), "schedule 'bad': say when: add cron=, every= or at="),
    (schedule(every="1h", cron="@daily"), "schedule 'bad': give one of .* not cron and"),
    (schedule(name="a b", every="1h"), "schedule name 'a b' is not a valid name; use"),
    (schedule(every="0s"), "schedule 'bad': every '0s' must be above zero"),
    (schedule(every="1h", args={"n": "x"}), "schedule 'bad': job 'good': 'n' must"),
    (schedule(every="1h", args={"x": {1}}), "schedule 'bad': args holds a set, which"),
    (schedule(every="1h", args=5), "schedule 'bad': args 5 must be a mapping"),
    (
        schedule(every="1h", args={"x": "y" * 300_000}),
        "schedule 'bad': job 'good': args takes 300,.* the limit is 262,144",
    ),
    (schedule(every="1h", paused=True), "schedule 'bad': option 'paused' is unknown;"),
    (schedule(every="1h", jiter=1), "'bad': option 'jiter' is unknown; did you mean 'j"),
    (
        schedule(every="1h", retry={"max_attempt": 3}),
        "schedule 'bad': retry 'max_attempt' is unknown; did you mean 'max_attempts'",
    ),
    (schedule(every="1h", retry=3), "schedule 'bad': retry 3 must be a retry policy"),
]  # fmt: skip


def test_a_bad_definition_is_refused_and_leaves_nothing(driven: Driven) -> None:
    app = driven.app
    app.job("good")(work)
    for call, message, *error in DEFINITIONS:
        with pytest.raises(*error or [rota.Invalid], match=message):
            call(app)
    assert [one.name for one in app.jobs()] == ["good"]
    assert [one["name"] for one in app.control.jobs()] == ["good"]
    assert app.control.schedules() == []
    # The app works on: what was refused is not in its way.
    app.job("bad", every="1h")(work)
    app.enqueue("bad")
    assert [run.state for run in driven.drain()] == ["succeeded"]


ENQUEUES: list[tuple[Any, ...]] = [
    (enqueue("nope"), "job 'nope' does not exist; `rota jobs` lists them", rota.Unknown),
    (enqueue("two words"), "job name 'two words' is not a valid name; use 1 to"),
    (enqueue("good", {"n": "x"}), r"job 'good': 'n' must be integer, not str \(it"),
    (enqueue("good", {"x": object()}), "job 'good': args are not JSON: .*object"),
    (enqueue("good", {"x": float("nan")}), "job 'good': args holds nan, which JSON"),
    (enqueue("good", {"x": 2**64}), "job 'good': args holds a whole number past 64"),
    (enqueue("good", {"x": {1: 2}}), "job 'good': args has the key 1; JSON keys are"),
    (enqueue("good", {"x": "\ud800"}), "job 'good': args .*surrogate"),
    (enqueue("good", {"x": deep(64)}), "job 'good': args is nested deeper than 64 le"),
    (enqueue("good", {"x": deep(900)}), "job 'good': args is nested deeper than 64"),
    (enqueue("good", {"x": "y" * 262_144}), "job 'good': args takes 262,.*Store large"),
    (enqueue("good", 5), "job 'good': args are not JSON"),
    (enqueue(delay="soon"), "job 'good': delay 'soon' is not a duration; use text"),
    (enqueue(delay=-1), "job 'good': delay -1 must be zero or more"),
    (enqueue(at="noon"), "job 'good': at 'noon' is not an instant; use ISO 8601"),
    (enqueue(at="2026-01-01"), "job 'good': at '2026-01-01' has no offset; add one"),
    (enqueue(at="2026-01-01T00:00Z", delay=1), "job 'good': give delay or at, not"),
    (enqueue(priority="high"), "job 'good': priority 'high' must be a whole number"),
    (enqueue(key=""), "job 'good': key '' must be text of 1 to 512 characters"),
    (enqueue(key="k", key_ttl=0), "job 'good': key_ttl 0 must be above zero"),
    (enqueue(queue=""), "job 'good': queue '' is not a valid name"),
    (enqueue(queue="a b"), "job 'good': queue 'a b' is not a valid name; use"),
    (enqueue(concurrency_key=""), "job 'good': concurrency_key '' must be text"),
    (enqueue(concurrency_key="k", concurrency_limit=0), "'good': concurrency_limit 0"),
    (enqueue(max_attempts=0), "job 'good': max_attempts 0 must be a whole number"),
    (enqueue(timeout="x"), "job 'good': timeout 'x' is not a duration; use text"),
    (enqueue(correlation_id={}), "job 'good': correlation_id {} must be text"),
    (enqueue(prioritty=1), "'good': option 'prioritty' is unknown; did you mean 'prior"),
    (enqueue(queue_name="x"), "'good': option 'queue_name' is unknown; did you mean 'queue'"),
    (enqueue(run_after="x"), "'good': option 'run_after' is unknown; did you mean 'at'"),
    (enqueue(zzz=1), "job 'good': option 'zzz' is unknown; use at, concurrency_key"),
]  # fmt: skip


@pytest.mark.each_engine
def test_a_bad_enqueue_is_refused_and_leaves_nothing(driven: Driven) -> None:
    app = driven.app
    good = app.job("good")(work)
    for call, message, *error in ENQUEUES:
        with pytest.raises(*error or [rota.Invalid], match=message):
            call(app)
    with pytest.raises(rota.Invalid, match="number of runs in one call 100001 must be a whole"):
        good.enqueue_many([{}] * 100_001)
    assert app.control.runs() == []
    assert [queue["name"] for queue in app.control.queues()] == ["default"]
    assert app.enqueue("good", {"x": deep(62), "y": "z" * 200_000}).created


def test_positions_that_do_not_fit_are_refused(driven: Driven) -> None:
    good: Any = driven.app.job("good")(several)
    message = r"^job 'good': 3 arguments are given by position and it takes 2 \(n, m\); leave the"
    with pytest.raises(rota.BadArguments, match=message):
        good.enqueue(1, 2, 3)
    with pytest.raises(rota.BadArguments, match=message):
        asyncio.run(good.aenqueue(1, 2, 3))
    with pytest.raises(rota.BadArguments, match=r"^job 'good': 'n' is given twice$"):
        good.enqueue(1, n=1)
    with pytest.raises(rota.BadArguments, match="'m' must be integer, not str"):
        good.enqueue(1, "x")
    assert driven.app.control.runs() == []


def test_an_option_that_is_no_argument_is_refused_with_the_way_out(driven: Driven) -> None:
    good: Any = driven.app.job("good")(several)
    for name in ("queue", "max_attempts", "timeout", "correlation_id"):
        message = rf"'{name}' is unknown .*; options go before it: using\({name}=…\)\.enqueue\(…\)$"
        with pytest.raises(rota.BadArguments, match=message):
            good.enqueue(1, **{name: "x"})
    for name, meant in (("queue_name", "queue"), ("run_after", "at"), ("prioritty", "priority")):
        message = f"^job 'good': option '{name}' is unknown; did you mean '{meant}'"
        for call in (good.using, lambda **options: good.enqueue_many([{"n": 1}], **options)):
            with pytest.raises(rota.Invalid, match=message):
                call(**{name: "x"})
    for call in (good.using(delay="1s").using, lambda **at: good.enqueue(1, delay="1s", **at)):
        with pytest.raises(rota.Invalid, match=r"^job 'good': give delay or at, not both$"):
            call(at="2030-01-01T00:00Z")
    assert driven.app.control.runs() == []


def several(n: int, ctx: rota.Context, m: int = 0, *, only: int = 0) -> None: ...


def test_a_schedule_that_cannot_be_saved_is_named_and_not_kept(app: rota.Rota) -> None:
    app.job("good")(work)
    app.start()
    with pytest.raises(
        rota.Unknown, match="schedule 'bad': job 'nope' does not exist; `rota jobs`"
    ):
        app.schedule("bad", job="nope", every="1h")
    with pytest.raises(rota.Invalid, match=r"schedule 'late': .* has no occurrence from now on"):
        app.schedule("late", job="good", every="1h", ends_at="2020-01-01T00:00Z")
    assert app.control.schedules() == []
    app.enqueue("good")


def test_a_schedule_that_cannot_be_saved_keeps_the_app_from_starting(app: rota.Rota) -> None:
    app.schedule("bad", job="nope", every="1h")
    with pytest.raises(rota.Unknown, match="schedule 'bad': job 'nope' does not exist"):
        app.start()
    assert app.health == {}


# Settings and parts


def test_settings_are_checked_when_the_app_is_made() -> None:
    with pytest.raises(rota.Invalid, match="setting 'slotz' is unknown; did you mean 'slots'"):
        rota.Rota("sqlite:///:memory:", slotz=5)
    with pytest.raises(
        rota.Invalid, match=r"database 'rota.db' is not a URL; use sqlite:///rota.db"
    ):
        rota.Rota("rota.db")
    with pytest.raises(
        rota.Invalid, match=r"database 'oracle' is unknown; use sqlite:///rota.db or"
    ):
        _ = rota.Rota("oracle://x").control


def test_a_part_that_is_none_is_refused(app: rota.Rota) -> None:
    with pytest.raises(rota.Invalid, match="part 'cook' is unknown; use scheduler, worker"):
        app.start(only=["worker", "cook"])
    app.start()


# Databases that are not there


def define(database: str) -> rota.Rota:
    app = rota.Rota(database)
    app.job("good")(work)
    return app


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "rota.db"
    for use in (define(f"sqlite:///{path}").start, lambda: define(f"sqlite:///{path}").control):
        with pytest.raises(rota.Unavailable) as caught:
            use()
        assert str(caught.value) == (
            f"{path} cannot be opened; check that the folder {path.parent} exists "
            "and may be written"
        )
    assert not path.parent.exists()


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("this is not a database, it is a long enough text file" * 100)
    before = path.read_bytes()
    with pytest.raises(rota.WrongSchema, match="is not a SQLite database; point `database` else"):
        define(f"sqlite:///{path}").start()
    assert path.read_bytes() == before


@contextmanager
def ordinary_user() -> Iterator[Path]:
    """A folder of a user for whom permissions count: root may write everything."""
    folder = Path(tempfile.mkdtemp())
    if os.geteuid() != 0:
        yield folder
    else:
        os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)
        try:
            if not os.access(rota.__file__, os.R_OK, effective_ids=True):
                pytest.skip("the package lies where only root can read it")
            yield folder
        finally:
            os.seteuid(0)
    folder.chmod(0o700)
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("of_file", "of_folder", "error", "message"),
    [
        (0o400, 0o700, rota.ReadOnly, "cannot be written; check the permissions of it and its"),
        (0o400, 0o500, rota.StorageError, "check .* may be written|check the permissions of it"),
        (0o000, 0o700, rota.Unavailable, "cannot be opened; check that the folder .* may be"),
    ],
)
def test_a_file_that_may_not_be_written_is_named(
    of_file: int, of_folder: int, error: type[Exception], message: str
) -> None:
    with ordinary_user() as folder:
        path = folder / "rota.db"
        app = define(f"sqlite:///{path}")
        app.enqueue("good")
        app.close()
        before = path.read_bytes()
        path.chmod(of_file)
        folder.chmod(of_folder)
        for use in (app.start, lambda: app.enqueue("good")):
            with pytest.raises(error, match=message) as caught:
                use()
            assert str(path) in str(caught.value)
        app.close()
        folder.chmod(0o700)
        path.chmod(0o600)
        assert path.read_bytes() == before


def test_a_closed_port_is_named_without_the_password() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        port = taken.getsockname()[1]
        app = define(f"postgresql://me:hunter2@127.0.0.1:{port}/rota")
        with pytest.raises(rota.Unavailable) as caught:
            app.start()
    assert f"postgresql://127.0.0.1:{port}/rota does not answer" in str(caught.value)
    assert "check that the server runs and can be reached" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert app.health == {}


def test_a_host_that_is_not_there_is_named() -> None:
    with pytest.raises(
        rota.Unavailable, match=r"nowhere\.invalid/rota does not answer .*check the"
    ):
        define("postgresql://me@nowhere.invalid/rota").enqueue("good")


def test_a_database_that_is_not_there_is_named(postgres_server: Server) -> None:
    missing = postgres_server.url("nowhere")
    with pytest.raises(
        rota.Unavailable, match=r"/nowhere does not answer .*check the name of the database"
    ):
        define(missing).start()


def test_a_url_that_cannot_be_read_is_refused_without_the_password() -> None:
    with pytest.raises(rota.Invalid) as caught:
        define("postgresql://me:hunter2@host/rota?nonsense=1").start()
    assert "the database URL cannot be understood; use postgresql://user@host/name" in str(
        caught.value
    )
    assert "hunter2" not in str(caught.value)


def test_a_read_only_server_is_named(postgres_database: str) -> None:
    name = postgres_database.rpartition("/")[2]
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(rota.ReadOnly, match=r"cannot be written .*point `database` at the primary"):
        define(postgres_database).enqueue("good")


@pytest.mark.each_engine
def test_a_store_of_a_newer_rota_is_refused_and_left_alone(database: str, engine: str) -> None:
    app = define(database)
    app.load()
    app.close()
    schema = {"sqlite": "_rota_", "postgres": "rota_data.", "duckdb": "_rota_data."}[engine]
    table = f"{schema}meta"
    with plain(database) as connection:
        connection.execute(f"UPDATE {table} SET value = '999' WHERE key = 'schema_version'")
    newer = define(database)
    for use in (newer.start, lambda: newer.enqueue("good"), lambda: newer.control):
        with pytest.raises(rota.WrongSchema) as caught:
            use()
        assert "has schema 999, made by a newer Rota (this one knows" in str(caught.value)
        assert str(caught.value).endswith("upgrade Rota on this machine")


def test_a_store_that_is_locked_by_somebody_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.storage.sqlite.engine.BUSY_SECONDS", 0.1)
    path = tmp_path / "rota.db"
    app = define(f"sqlite:///{path}")
    app.load()
    locker = sqlite3.connect(path, isolation_level=None)
    locker.execute("BEGIN IMMEDIATE")
    with pytest.raises(rota.Unavailable, match=r"was locked by another process .*look for a long"):
        app.enqueue("good")
    locker.rollback()
    assert app.enqueue("good").created
    # The first use of an app saves its jobs: inside the caller's own transaction it cannot.
    fresh = define(f"sqlite:///{path}")
    fresh.job("other")(work)
    locker.execute("BEGIN IMMEDIATE")
    with pytest.raises(rota.Unavailable, match=r"call app.load\(\) before you begin it"):
        fresh.enqueue("good", connection=locker)
    locker.rollback()
    locker.close()
    for opened in (app, fresh):
        opened.close()


def test_a_store_that_was_deleted_is_not_made_anew_silently(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    app = define(f"sqlite:///{folder / 'rota.db'}")
    app.enqueue("good")
    app.close()
    shutil.rmtree(folder)
    with pytest.raises(rota.Unavailable, match="cannot be opened; check that the folder"):
        app.enqueue("good")
