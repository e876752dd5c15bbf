"""A job made from a function, and a lock held by this process.

A type checker sees the function's own arguments in each call. P are the arguments that travel: a
context that is the first parameter is not among them (docs/typing.md).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    final,
    overload,
)

from rota.errors import BadArguments, LockNotHeld
from rota.flow.enqueue import Options
from rota.model.duration import parse_duration
from rota.model.job import Job
from rota.model.options import named, refuse_unknown
from rota.model.run import Enqueued
from rota.storage import operations
from rota.storage.store import Store

if TYPE_CHECKING:
    from typing import Self, Unpack

    from rota.app import Rota
    from rota.executors.context import Context
    from rota.option_types import EnqueueOptions

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

ENQUEUE_OPTIONS = frozenset({*(field.name for field in fields(Options)), "connection", "notify"})
# Those that `enqueue` takes beside the arguments too. Never more: each one is a name that an
# argument of a job can no longer be added under without changing what old calls mean.
DIRECT_OPTIONS = frozenset({
    "delay", "at", "key", "key_ttl", "priority", "concurrency_key", "concurrency_limit",
    "connection", "notify",
})  # fmt: skip


class Task(Generic[P, R_co]):
    """A job made from a function: still callable, and with ways to run it later."""

    def __init__(
        self,
        app: Rota,
        job: Job,
        function: Callable[..., R_co],
        positional: Sequence[str] = (),
    ) -> None:
        functools.update_wrapper(self, function)
        self.app, self.job, self.function = app, job, function
        self._positional = positional
        self._direct = DIRECT_OPTIONS - {one.name for one in job.signature.parameters}
        self._options: Mapping[str, Any] = {}

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return self.function(*args, **kwargs)

    @property
    def name(self) -> str:
        return self.job.name

    def using(self, **options: Unpack[EnqueueOptions]) -> Self:
        """The same job with options for its enqueues. Later ones win; None takes one back."""
        chosen = {**self._options, **options}
        with named(f"job {self.name!r}"):
            refuse_unknown(options, ENQUEUE_OPTIONS)
            Options(delay=chosen.get("delay"), at=chosen.get("at"))
        made = copy(self)
        made._options = chosen
        return made

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Ask for one run. With `using(connection=…)` it exists exactly if that transaction
        commits."""
        payload: Mapping[str, Any] = kwargs
        options = self._options
        if args:
            payload = self._bind(args, kwargs)
        if not self._direct.isdisjoint(kwargs):
            options = {**options, **{name: kwargs[name] for name in self._direct & kwargs.keys()}}
            payload = {name: payload[name] for name in payload if name not in self._direct}
        try:
            return self._ask([payload], options)[0]
        except BadArguments as fault:
            raise self._with_way_out(fault, payload) from None

    def enqueue_many(
        self, payloads: Sequence[Mapping[str, Any]], **options: Unpack[EnqueueOptions]
    ) -> list[Enqueued]:
        """One run per payload, all or none, in one round trip."""
        return self._ask(payloads, {**self._options, **options})

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """`enqueue` without blocking the event loop."""
        return await _in_thread(lambda: self.enqueue(*args, **kwargs))

    async def aenqueue_many(
        self, payloads: Sequence[Mapping[str, Any]], **options: Unpack[EnqueueOptions]
    ) -> list[Enqueued]:
        return await _in_thread(lambda: self.enqueue_many(payloads, **options))

    def _ask(
        self, payloads: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
    ) -> list[Enqueued]:
        if options:
            return self.app._enqueue_with(self.name, payloads, options)
        return self.app._enqueue(self.name, payloads, options, None, True)

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Arguments by name: positions count in the function's order, without the context."""
        names = self._positional
        if len(args) > len(names):
            takes = ", ".join(names) or "none"
            raise BadArguments(
                f"job {self.name!r}: {len(args)} arguments are given by position and it takes "
                f"{len(names)} ({takes}); leave the context out, give others by name"
            )
        bound = dict(zip(names, args, strict=False))
        if twice := [name for name in bound if name in kwargs]:
            raise BadArguments(f"job {self.name!r}: {twice[0]!r} is given twice")
        return {**bound, **kwargs}

    def _with_way_out(self, fault: BadArguments, payload: Mapping[str, Any]) -> BadArguments:
        """An option that only `using` takes was not meant as an argument."""
        known = {one.name for one in self.job.signature.parameters}
        meant = [name for name in payload if name in ENQUEUE_OPTIONS and name not in known]
        if not meant or self.job.signature.open:
            return fault
        how = ", ".join(f"{name}=…" for name in meant)
        return BadArguments(f"{fault}; options go before it: using({how}).enqueue(…)")

    def __repr__(self) -> str:
        return f"<job {self.name}>"


class ContextTask(Task[P, R_co]):
    """A job whose function takes the context first: a direct call gives it, an enqueue does not."""

    if TYPE_CHECKING:

        def __call__(  # type: ignore[override]
            self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs
        ) -> R_co: ...


@final
class _Nothing:
    """No value is one. So only a first parameter that takes any object accepts it; without its
    own overload such a parameter would be taken for the context, and lost."""


class JobDecorator(Protocol):
    """What `app.job(…)` returns."""

    @overload
    def __call__(self, function: Callable[Concatenate[_Nothing, ...], R], /) -> Task[..., R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> ContextTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


@dataclass(frozen=True, slots=True)
class HeldLock:
    """A lock this process holds. `token` rises with each holder: pass it on to fence writes."""

    storage: Store
    name: str
    token: int

    def extend(self, ttl: object = "30s") -> None:
        seconds = parse_duration(ttl, "ttl").total_seconds()
        if not self.storage.write(operations.extend_lock, self.name, self.token, seconds):
            raise LockNotHeld(f"lock {self.name!r} was lost: its time ran out")


async def _in_thread(call: Callable[[], R]) -> R:
    # Imported here: most programs never wait, and the module costs a quarter of our import.
    from asyncio import to_thread

    return await to_thread(call)
