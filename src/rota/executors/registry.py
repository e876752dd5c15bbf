"""Executors by name: those this process was given, then those that installed packages offer."""

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
    """Makes each executor once, when it is first asked for: `factories` are not called before."""

    def __init__(self, factories: Mapping[str, Callable[[], Executor]] | None = None) -> None:
        self._factories = dict(factories or {})
        self._made: dict[str, Executor] = {}
        self._guard = threading.RLock()

    def register(self, name: str, executor: Executor) -> None:
        """Use this executor for jobs that name it; an earlier one of that name is replaced."""
        with self._guard:
            self._made[name] = executor

    def names(self) -> list[str]:
        return sorted({*self._made, *self._factories, *_offered()})

    def is_builtin(self, name: str) -> bool:
        """True for Rota's own; no package can take their names."""
        return name in BUILT_IN

    def get(self, name: str) -> Executor:
        if (made := self._made.get(name)) is not None:
            return made  # whoever holds the guard may be importing a package, for long
        with self._guard:
            if name not in self._made:
                self._made[name] = self._make(name)
            return self._made[name]

    def close(self) -> None:
        """Close all that were made. One that fails does not keep the others open."""
        with self._guard:
            made, self._made = self._made, {}
        for name, executor in made.items():
            try:
                getattr(executor, "close", _nothing)()
            except Exception:
                LOGGER.exception("executor %r could not be closed", name)

    def _make(self, name: str) -> Executor:
        if name in self._factories:
            return self._factories[name]()
        if (offered := _offered().get(name)) is not None:
            return _load(offered)
        names = self.names()
        close = get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(names)}"
        raise Unknown(f"executor {name!r} is unknown; {hint}")


def off(name: str) -> str:
    """What to tell whoever uses an executor that is not switched on."""
    return (
        f"executor {name!r} is off; if whoever may write jobs may use it, switch it on in "
        f"rota.toml: [executors] {name} = true (or ROTA_EXECUTORS_{name.upper()}=true)"
    )


def _offered() -> dict[str, EntryPoint]:
    points = entry_points(group=GROUP)
    return {point.name: point for point in points if point.name not in BUILT_IN}


def _load(point: EntryPoint) -> Executor:
    """An entry point names a class or a function that makes an executor, or is one itself."""
    try:
        found = point.load()
        made = found() if isinstance(found, type) or not hasattr(found, "run") else found
    except Exception as error:
        package = point.dist.name if point.dist is not None else "unknown"
        raise Invalid(
            f"executor {point.name!r} of package {package!r} could not be loaded "
            f"from {point.value!r}: {error}"
        ) from error
    if not hasattr(made, "run") or not hasattr(made, "check"):
        raise Invalid(f"executor {point.name!r} ({point.value}) has no check and run")
    return made  # type: ignore[no-any-return]


def _nothing() -> None:
    pass
