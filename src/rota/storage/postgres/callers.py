"""A caller's own connection: what it is made of, and whether it can carry an enqueue."""

from __future__ import annotations

from inspect import iscoroutinefunction
from typing import Any

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from rota.errors import WrongConnection

_HOW = "pass a psycopg 3 connection, or a SQLAlchemy one over postgresql+psycopg://"


def raw_connection(connection: Any) -> psycopg.Connection[Any]:
    """The psycopg connection inside a SQLAlchemy one, or the connection itself."""
    raw = connection
    if not isinstance(raw, psycopg.Connection):
        found = getattr(raw, "connection", None)
        if iscoroutinefunction(found):
            raise WrongConnection(f"a {type(connection).__name__} is asynchronous; {_HOW}")
        if found is not None:
            # An ORM Session has a method, a SQLAlchemy Connection an attribute, and both end in
            # the wrapper of a pool.
            raw = found().connection if callable(found) else found
        raw = getattr(raw, "driver_connection", raw)
    if isinstance(raw, psycopg.AsyncConnection):
        raise WrongConnection(f"an AsyncConnection cannot carry an enqueue; {_HOW}")
    if type(raw).__module__.startswith("psycopg2"):
        raise WrongConnection(f"a psycopg2 connection cannot carry an enqueue; {_HOW}")
    if not isinstance(raw, psycopg.Connection):
        raise WrongConnection(
            f"a {type(connection).__name__} cannot carry an enqueue into a PostgreSQL store; {_HOW}"
        )
    return raw


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
