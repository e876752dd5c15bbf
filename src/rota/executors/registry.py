"""Executors by name: registered here, built in, or from installed packages."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points

from rota.errors import Invalid, Unknown
from rota.executors.protocol import Executor

GROUP = "rota.executors"
BUILT_IN = frozenset({"python", "sql", "shell", "http"})
LOGGER = logging.getLogger(__name__)


class Registry:
    """Creates each executor once, on first use."""

    def __init__(self, factories: Mapping[str, Callable[[], Executor]] | None = None) -> None:
        self._factories = dict(factories or {})
        self._executors: dict[str, Executor] = {}
        self._guard = threading.RLock()

    def register(self, name: str, executor: Executor) -> None:
        """Add or replace the executor for jobs that name it."""
        with self._guard:
            self._executors[name] = executor

    def names(self) -> list[str]:
        return sorted({*self._executors, *self._factories, *_offered()})

    def is_builtin(self, name: str) -> bool:
        """True for Rota's executors; a package cannot replace them."""
        return name in BUILT_IN

    def get(self, name: str) -> Executor:
        if (executor := self._executors.get(name)) is not None:
            return executor  # without the guard: another thread may hold it for a long import
        with self._guard:
            if name not in self._executors:
                self._executors[name] = self._make(name)
            return self._executors[name]

    def close(self) -> None:
        """Close all executors that were created, even if closing one of them fails."""
        with self._guard:
            executors, self._executors = self._executors, {}
        for name, executor in executors.items():
            try:
                getattr(executor, "close", _nothing)()
            except Exception:
                LOGGER.exception("executor %r could not be closed", name)

    def _make(self, name: str) -> Executor:
        if name in self._factories:
            return self._factories[name]()
        if (point := _offered().get(name)) is not None:
            return _load(point)
        names = self.names()
        close = get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(names)}"
        raise Unknown(f"executor {name!r} is unknown; {hint}")


def off_message(name: str) -> str:
    """The error for a job whose executor is not switched on."""
    return (
        f"executor {name!r} is off; if everyone who may write jobs may use it, switch it on in "
        f"rota.toml: [executors] {name} = true (or ROTA_EXECUTORS_{name.upper()}=true)"
    )


def _offered() -> dict[str, EntryPoint]:
    points = entry_points(group=GROUP)
    return {point.name: point for point in points if point.name not in BUILT_IN}


def _load(point: EntryPoint) -> Executor:
    """An executor from an entry point: an object, or a class or function to call."""
    try:
        loaded = point.load()
        is_factory = isinstance(loaded, type) or not hasattr(loaded, "run")
        executor = loaded() if is_factory else loaded
    except Exception as error:
        package = point.dist.name if point.dist is not None else "unknown"
        raise Invalid(
            f"executor {point.name!r} of package {package!r} could not be loaded "
            f"from {point.value!r}: {error}"
        ) from error
    if not hasattr(executor, "run") or not hasattr(executor, "check"):
        raise Invalid(f"executor {point.name!r} ({point.value}) has no check and run")
    return executor  # type: ignore[no-any-return]


def _nothing() -> None:
    pass
