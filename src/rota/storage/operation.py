"""What is declared of an operation: that it is one statement, or that it mostly has nothing to do.

An operation is a function over an open transaction that changes nothing but rows: it may run
again after a rollback. `Store` runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from rota.storage.engine import Transaction

P = ParamSpec("P")
R = TypeVar("R")

Operation = Callable[Concatenate[Transaction, P], R]


class Precheck(NamedTuple):
    """Reads whether there is anything to do, and the answer where there is not."""

    find: Callable[..., object]
    nothing: object


_single: set[Callable[..., object]] = set()
_prechecks: dict[Callable[..., object], Precheck] = {}


def single_statement(operation: Operation[P, R]) -> Operation[P, R]:
    """It sends one statement or none: one round trip on a server."""
    _single.add(operation)
    return operation


def only_if(
    find: Callable[Concatenate[Transaction, P], object], *, nothing: R
) -> Callable[[Operation[P, R]], Operation[P, R]]:
    """Where all writes share a lock it is run only if `find`, with the same arguments, finds
    something. Mostly there is nothing: then it does not wait for that lock."""

    def mark(operation: Operation[P, R]) -> Operation[P, R]:
        _prechecks[operation] = Precheck(find, nothing)
        return operation

    return mark


def is_single(operation: Callable[..., object]) -> bool:
    return operation in _single


def precheck_of(operation: Callable[..., object]) -> Precheck | None:
    return _prechecks.get(operation)


def point_name(operation: Callable[..., object]) -> str:
    """What its crash points begin with: "claiming.claim"."""
    return f"{operation.__module__.rpartition('.')[2]}.{operation.__name__}"
