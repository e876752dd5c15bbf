"""A store on which one operation does something else."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from rota.storage.store import Store


def replace_operation(
    monkeypatch: pytest.MonkeyPatch,
    store: Store,
    operation: Callable[..., Any],
    by: Callable[..., Any],
) -> None:
    """Answer the calls of one operation by `by(plain, …)`; `plain` runs it as before."""
    for name in ("write", "read", "peek"):
        run = getattr(store, name)

        def answer(asked: Any, *args: Any, run: Any = run, **options: Any) -> Any:
            if asked is not operation:
                return run(asked, *args, **options)
            return by(functools.partial(run, operation), *args, **options)

        monkeypatch.setattr(store, name, answer)
