"""A call beside another one, on a thread and a connection of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic

from rota.storage.engine import T


class Beside(Generic[T]):
    """No process waits for it that ends: a server may never answer."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._thread = threading.Thread(target=self._run, name="rota-beside", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no more threads: then here, before the other one
            self._run()

    def _run(self) -> None:
        self._answer = tried(self._call)

    def wait(self) -> T | Exception:
        if self._thread.ident is not None:
            self._thread.join()
        return self._answer


def tried(call: Callable[[], T]) -> T | Exception:
    """The answer, or what was raised."""
    try:
        return call()
    except Exception as fault:
        return fault
