"""A job made from a function, and a lock held by this process."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Never, ParamSpec, TypeVar

from rota.errors import Invalid, LockNotHeld
from rota.model.duration import parse_duration
from rota.model.job import Job
from rota.model.run import Enqueued
from rota.storage.protocol import Storage

if TYPE_CHECKING:
    from rota.app import Rota

P = ParamSpec("P")
R = TypeVar("R")


class Task(Generic[P, R]):
    """A job made from a function: still callable, and with ways to run it later."""

    def __init__(self, app: Rota, job: Job, function: Callable[P, R]) -> None:
        self.app, self.job, self.function = app, job, function
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @property
    def name(self) -> str:
        return self.job.name

    def enqueue(
        self,
        *given: Never,
        delay: object = None,
        at: object = None,
        key: str | None = None,
        key_ttl: object = None,
        priority: int | None = None,
        concurrency_key: str | None = None,
        concurrency_limit: int | None = None,
        connection: Any = None,
        notify: bool = True,
        **args: Any,
    ) -> Enqueued:
        """Ask for one run. With `connection` it exists exactly if that transaction commits."""
        if given:
            names = [one.name for one in self.job.signature.parameters]
            how = ", ".join(f"{name}=…" for name in names[: len(given)])
            raise TypeError(
                f"job {self.name!r}: arguments are given by keyword: "
                f"{self.function.__name__}.enqueue({how})"
            )
        told = {
            "delay": delay, "at": at, "key": key, "key_ttl": key_ttl, "priority": priority,
            "concurrency_key": concurrency_key, "concurrency_limit": concurrency_limit,
        }  # fmt: skip
        options = {name: value for name, value in told.items() if value is not None}
        if options or connection is not None or not notify:
            self._refuse_ambiguous(
                {**options, "connection": connection, "notify": None if notify else False}
            )
        return self.app._enqueue(self.name, [args], options, connection, notify)[0]

    def _refuse_ambiguous(self, options: Mapping[str, Any]) -> None:
        for parameter in self.job.signature.parameters:
            if options.get(parameter.name) is not None:
                raise Invalid(
                    f"job {self.name!r}: {parameter.name!r} is an argument of the job and an "
                    f"option of enqueue; use enqueue_many([{{{parameter.name!r}: …}}])"
                )

    def enqueue_many(
        self,
        payloads: Sequence[Mapping[str, Any]],
        *,
        connection: Any = None,
        notify: bool = True,
        **options: Any,
    ) -> list[Enqueued]:
        """One run per payload, all or none, in one round trip."""
        return self.app._enqueue(self.name, payloads, options, connection, notify)

    async def aenqueue(self, *given: Never, **args: Any) -> Enqueued:
        """`enqueue` without blocking the event loop."""
        return await _in_thread(self.enqueue, *given, **args)

    async def aenqueue_many(
        self, payloads: Sequence[Mapping[str, Any]], **options: Any
    ) -> list[Enqueued]:
        return await _in_thread(self.enqueue_many, payloads, **options)

    def __repr__(self) -> str:
        return f"<job {self.name}>"


@dataclass(frozen=True, slots=True)
class HeldLock:
    """A lock this process holds. `token` rises with each holder: pass it on to fence writes."""

    storage: Storage
    name: str
    token: int

    def extend(self, ttl: object = "30s") -> None:
        seconds = parse_duration(ttl, "ttl").total_seconds()
        if not self.storage.extend_lock(self.name, self.token, seconds):
            raise LockNotHeld(f"lock {self.name!r} was lost: its time ran out")


async def _in_thread(call: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    # Imported here: most programs never wait, and the module costs a quarter of our import.
    from asyncio import to_thread

    return await to_thread(call, *args, **kwargs)
