"""A program of a user, as a type checker reads it: test_types.py gives it to mypy and to pyright.

Each line that ends with `# refused` has to be refused, and no other line may be. `right` also runs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Unpack, assert_type

import duckdb
import psycopg
import sqlalchemy.orm

import rota
from rota.option_types import EnqueueOptions
from rota.testing import TestApp

app = TestApp()


@app.job
def add(a: int, b: int = 1) -> int:
    return a + b


@app.job(queue="mail", max_attempts=5, backoff="exponential")
async def send(to: str, subject: str) -> None: ...


@app.job(schedule="0 3 * * *", timezone="Europe/Berlin", overlap="skip", every=None)
def rollup(ctx: rota.Context, day: str = "today", *, force: bool = False) -> str:
    return f"{ctx.job} {day} {force}"


@app.job("tidy", priority=5, concurrency_key="tidy", concurrency_limit=2)
def sweep(ctx: rota.Context) -> None: ...


@app.job
def relabel(count: int, ctx: rota.Context | None = None) -> int:
    return 0 if ctx is None else count


@app.job
def noted(ctx: Annotated[rota.Context, "given by Rota"], text: str) -> str:
    return text


@app.job
def label(key: str, notify: bool = True) -> str:
    return f"{key} {notify}"


@app.job
def anything(value: object, more: int = 0) -> object:
    return value


@app.job
def opened(first: str, **rest: Any) -> str:
    return f"{first} {rest}"


class Shop:
    def sell(self, item: str) -> str:
        return item


sell = app.job("sell")(Shop().sell)
everything: list[rota.Task[..., object]] = [add, send, rollup, label, anything]


def later(task: rota.Task[..., object], **options: Unpack[EnqueueOptions]) -> None:
    task.using(**options).enqueue(7)


def right(context: rota.Context) -> None:
    assert_type(add(2), int)
    assert_type(add(2, b=5), int)
    assert_type(rollup(context, "monday", force=True), str)
    assert_type(sweep, rota.ContextTask[[], None])
    assert_type(anything, rota.Task[..., object])
    waits: Coroutine[Any, Any, None] = send("a@example.org", "hi")
    waits.close()
    assert_type(add.enqueue(1).id, str)
    add.enqueue(1, 2)
    add.enqueue(1, b=2)
    add.enqueue(a=1, b=2)
    rollup.enqueue()
    rollup.enqueue("monday", force=True)
    sweep.enqueue()
    relabel.enqueue(5)
    noted.enqueue("text")
    label.enqueue("a", notify=False)
    label.using(key="once").enqueue(key="a")
    anything.enqueue([1, 2], more=5)
    opened.enqueue("a", b=1, c=[])
    sell.enqueue("bread")
    add.using(delay="5m", key="x", key_ttl=3600, priority=9).enqueue(1)
    add.using(delay=timedelta(minutes=5), queue="slow", timeout=1.5).enqueue(a=1)
    add.using(at=datetime(2027, 1, 1, tzinfo=UTC), max_attempts=1, correlation_id="c").enqueue(1)
    add.using(delay="5m").using(delay=None, at="2027-01-01T00:00:00Z").enqueue(1)
    rollup.using(priority=1).enqueue("monday")
    assert_type(rollup.using(priority=1)(context, "monday"), str)
    add.enqueue_many([{"a": 1}, {"a": 2}], priority=5, notify=False)
    app.enqueue("add", {"a": 1}, delay="10s", notify=True)
    app.schedule("hourly", job="add", every="1h", args={"a": 1}, catch_up="none", max_attempts=2)
    later(add, delay="5m")


async def right_in_a_loop() -> None:
    await send.aenqueue("a@example.org", "hi")
    await send.aenqueue("a@example.org", subject="hi")
    await add.aenqueue_many([{"a": 1}], concurrency_key="k", concurrency_limit=2)


def right_in_a_transaction(
    sqlite: sqlite3.Connection,
    postgres: psycopg.Connection[Any],
    duck: duckdb.DuckDBPyConnection,
    connection: sqlalchemy.Connection,
    session: sqlalchemy.orm.Session,
) -> None:
    add.using(connection=sqlite).enqueue(1)
    add.using(connection=postgres, notify=False).enqueue(1)
    add.using(connection=duck).enqueue(1)
    add.using(connection=connection).enqueue(1)
    add.enqueue_many([{"a": 1}], connection=session)


def wrong(connection: psycopg.AsyncConnection[Any], context: rota.Context) -> None:
    add.enqueue()  # refused
    add.enqueue("one")  # refused
    add.enqueue(1, 2, 3)  # refused
    add.enqueue(a="one")  # refused
    add.enqueue(1, c=2)  # refused
    add.enqueue(1, a=1)  # refused
    add.enqueue(1, delay="5m")  # refused
    add.enqueue(1, key="x", connection=None)  # refused
    add(1, c=2)  # refused
    text: str = add(1)  # refused
    text = add.enqueue(1)  # refused
    send.aenqueue("a@example.org", subjcet="hi")  # refused
    send.enqueue("a@example.org")  # refused
    rollup("monday")  # refused
    rollup.enqueue(context)  # refused
    rollup.enqueue("monday", True)  # refused
    rollup.enqueue(force="yes")  # refused
    sweep.enqueue("x")  # refused
    noted.enqueue()  # refused
    label.enqueue(5)  # refused
    label.enqueue("a", delay="5m")  # refused
    sell.enqueue(5)  # refused
    add.using("5m")  # refused
    add.using(dealy="5m")  # refused
    add.using(delay=[5])  # refused
    add.using(priority="high")  # refused
    add.using(queue_name="mail")  # refused
    add.using(run_after="2027-01-01T00:00:00Z")  # refused
    add.using(connection="sqlite:///rota.db")  # refused
    add.using(connection=connection)  # refused
    add.using(priority=9).enqueue("one")  # refused
    add.enqueue_many([{"a": 1}], prio=5)  # refused
    add.enqueue_many({"a": 1})  # refused
    app.enqueue("add", {"a": 1}, prio=5)  # refused
    app.enqueue("add", a=1)  # refused
    app.schedule("hourly", job="add", every="1h", overlap="sometimes")  # refused
    app.schedule("hourly", job="add", interval="1h")  # refused
    app.job("a", queue=5)  # refused
    app.job("b", cron="@daily")  # refused
    app.job("c", every="1h", catch_up="some")  # refused
    app.job(5)  # refused
    app.job("d")("no function")  # refused
    app.job("e", schedule=5)  # refused
    app.job("f", isolation="vm")  # refused
    print(text)
