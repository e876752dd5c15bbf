"""A caller's own connection: what it is made of, and whether it can carry an enqueue."""

from __future__ import annotations

from inspect import iscoroutinefunction
from typing import Any

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from rota.errors import WrongConnection


def raw_connection(connection: Any, schema: str) -> psycopg.Connection[Any]:
    """The psycopg connection inside a SQLAlchemy one, or the connection itself."""
    raw = connection
    enqueue = f"""SELECT {schema}.enqueue('job', '{{"argument": 1}}')"""
    how = (
        "pass a psycopg 3 connection, or a SQLAlchemy one over postgresql+psycopg://; or enqueue "
        f"by SQL on it, as every driver can: {enqueue}"
    )
    by_sql = f"enqueue by SQL on it, and it commits with the rest: {enqueue}"
    if not isinstance(raw, psycopg.Connection):
        # SQLAlchemy's AsyncConnection refuses to be asked for its `connection`.
        found = None if hasattr(raw, "sync_connection") else getattr(raw, "connection", None)
        if hasattr(raw, "sync_connection") or iscoroutinefunction(found):
            called = type(connection).__name__
            raise WrongConnection(f"{_article(called)} {called} is asynchronous; {by_sql}")
        if found is not None:
            # An ORM Session has a method, a SQLAlchemy Connection an attribute, and both end in
            # the wrapper of a pool.
            raw = found().connection if callable(found) else found
        raw = getattr(raw, "driver_connection", raw)
    if isinstance(raw, psycopg.AsyncConnection):
        raise WrongConnection(f"an AsyncConnection is asynchronous; {by_sql}")
    if type(raw).__module__.startswith("psycopg2"):
        raise WrongConnection(f"a psycopg2 connection cannot carry an enqueue; {how}")
    if not isinstance(raw, psycopg.Connection):
        called = type(connection).__name__
        raise WrongConnection(
            f"{_article(called)} {called} cannot carry an enqueue into a PostgreSQL store; {how}"
        )
    return raw


def _article(called: str) -> str:
    return "an" if called[:1] in "AEIOUaeiou" else "a"


def check_transaction(connection: psycopg.Connection[Any]) -> None:
    """Refuse a connection on which the run would not exist exactly if the caller commits."""
    if connection.closed:
        raise WrongConnection("the connection is closed; enqueue on an open one")
    if connection.pgconn.pipeline_status != PipelineStatus.OFF:
        # There an error ends the whole pipeline, and a savepoint could not save the rest.
        raise WrongConnection("the connection is in pipeline mode; enqueue outside the pipeline")
    match connection.info.transaction_status:
        case TransactionStatus.INTRANS:
            return
        case TransactionStatus.IDLE if not connection.autocommit:
            return  # our first statement begins the transaction
        case TransactionStatus.IDLE:
            raise WrongConnection(
                "the connection is in autocommit; the run must exist exactly if you commit: "
                "enqueue inside `with connection.transaction():`"
            )
        case TransactionStatus.INERROR:
            raise WrongConnection(
                "the connection's transaction has failed; roll it back before you enqueue"
            )
        case _:
            raise WrongConnection("the connection is busy; finish what it does before you enqueue")
