"""Bodies, queries and answers that several routes share, and what all of them are made of.

A struct is declared once: requests are decoded into it, answers are encoded from it, and the
OpenAPI document is made of it. Constraints stand inside a union, instants have a time zone, what
may be absent is UNSET, and a pattern ends in `$(?!\\n)`: to Python, `$` alone also fits before a
line end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar, dataclass_transform

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rota.flow.control import Control
from rota.model.duration import format_duration
from rota.model.job import Job
from rota.model.limits import KEY_LENGTH, NAME, PAGE, REASON_LENGTH
from rota.model.records import job_record, run_record
from rota.model.run import Run
from rota.model.transitions import STATES

T = TypeVar("T")

Maybe: TypeAlias = T | UnsetType | None  # may be absent, which is another thing than null

END = r"$(?!\n)"
WHOLE = 2**53 - 1  # what every program reads exactly

State = Literal[
    "waiting", "held", "queued", "running", "paused", "succeeded", "dead", "cancelled"
]  # fmt: skip
assert set(State.__args__) == set(STATES)  # type: ignore[attr-defined]

Instant = Annotated[datetime, Meta(tz=True)]
# Parts of a path, parameters of a query, fields of a body.
Name = Annotated[str, Meta(pattern=f"^{NAME.pattern}{END}")]
PathName = Annotated[
    str,
    Meta(pattern=f"^{NAME.pattern}{END}", description="A name; write a slash in it as %2F."),
]
RunId = Annotated[
    str,
    Meta(
        pattern=f"^[0-9a-f]{{8}}-[0-9a-f]{{4}}-[0-9a-f]{{4}}-[0-9a-f]{{4}}-[0-9a-f]{{12}}{END}",
        examples=["01997f3a-2c4e-7a51-8f00-3d6a1f0c9b77"],
    ),
]
GroupId = Annotated[str, Meta(pattern=f"^[0-9a-f]{{16}}{END}", description="One of GET /dead.")]
Limit = Annotated[int, Meta(ge=1, le=PAGE, description="How many at most.")]
Before = Annotated[int, Meta(ge=1, le=WHOLE, description="`next` of the page before.")]
AfterName = Annotated[
    str,
    Meta(
        max_length=KEY_LENGTH,
        pattern=f"^[A-Za-z0-9._/-]*{END}",
        description="`next` of the page before.",
    ),
]
Moment = Annotated[
    str, Meta(max_length=64, examples=["2026-03-01T12:00:00Z"], description="An instant.")
]
Span = Annotated[str, Meta(max_length=64, examples=["10m"], description="A duration.")]
Reason = Annotated[str, Meta(max_length=REASON_LENGTH, description="Kept with the change.")]


@dataclass_transform(frozen_default=True, kw_only_default=True)
class _FrozenByKeyword(msgspec.StructMeta):
    """`required` and `absent` are further fields by their types; `absent` ones may be left out."""

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        required: Mapping[str, Any] = MappingProxyType({}),
        absent: Mapping[str, Any] = MappingProxyType({}),
        **options: Any,
    ) -> Any:
        annotations = namespace.setdefault("__annotations__", {})
        annotations.update({**required, **absent})
        namespace.update(dict.fromkeys(absent, UNSET))
        options = {"frozen": True, "kw_only": True, **options}
        return super().__new__(cls, name, bases, namespace, **options)


# Both decorators are for type checkers, which read the options of neither class by itself.
@dataclass_transform(frozen_default=True, kw_only_default=True)
class Model(msgspec.Struct, metaclass=_FrozenByKeyword):
    """What goes over HTTP. All of them are frozen, and made by keyword."""


class RequestModel(Model, forbid_unknown_fields=True):
    """A body or a query: names that no field has are refused."""

    def given(self, *, nulls: bool = True) -> dict[str, Any]:
        """The fields that the request had, and those with a default."""
        values = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {
            name: value.given(nulls=nulls) if isinstance(value, RequestModel) else value
            for name, value in values
            if value is not UNSET and (nulls or value is not None)
        }


class ResponseModel(Model):
    """An answer."""


class Why(RequestModel):
    reason: Reason | None = None


class WhyQuery(RequestModel):
    reason: Reason | UnsetType = UNSET


class PageQuery(RequestModel):
    before: Before | UnsetType = UNSET
    limit: Limit = 100


class Page50Query(RequestModel):
    before: Before | UnsetType = UNSET
    limit: Limit = 50


class Problem(ResponseModel):
    """What went wrong (RFC 9457). `code` is a word for programs, `detail` a sentence for people."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    errors: list[dict[str, str]] | UnsetType = UNSET


class Page(ResponseModel, Generic[T]):
    """`next` asks for the following page; null when there is none."""

    items: list[T]
    next: str | int | None


class Done(ResponseModel):
    """`done` is the verb in words."""

    done: str


class JobOut(ResponseModel):
    """`error`: why its file, as it is now, cannot be used, since `version_at`; runs have the last
    good `version` then, of `good_at`, which is null if none was ever good."""

    name: str
    executor: str
    source: str
    queue: str
    priority: int
    timeout: str | None
    description: str
    tags: list[str]
    enabled: bool
    error: str | None
    version: str
    version_at: Instant | None
    good_at: Instant | None
    args: Any
    policies: dict[str, Any]


class RunOut(ResponseModel):
    seq: int
    id: str
    job: str
    queue: str
    priority: int
    state: State
    due_at: Instant
    created_at: Instant
    queued_at: Instant | None
    claimed_at: Instant | None
    started_at: Instant | None
    finished_at: Instant | None
    attempt: int
    failures: int
    lost: int
    redo: int
    max_attempts: int
    timeout: str | None
    backoff: Any
    args: Any
    overlap_key: str | None
    concurrency_key: str | None
    concurrency_limit: int
    schedule_id: int | None
    schedule: str | None
    occurrence: Instant | None
    missed_count: int
    retry_of: str | None
    created_by: str | None
    worker_id: str | None
    lease_until: Instant | None
    error: str | None
    reason: str | None
    result: Any
    progress: Any
    cancel_requested_at: Instant | None
    pause_requested_at: Instant | None
    correlation_id: str | None
    trace: str | None


class Made(ResponseModel):
    """`created` is false when the key named a run that was there."""

    id: str
    created: bool


def job_fields(job: Job, good_at: datetime | None) -> dict[str, Any]:
    fields = job_record(job)
    policies = {name: fields.pop(name) for name in job.policies()}
    fields["timeout"] = None if job.timeout is None else format_duration(job.timeout)
    return {**fields, "good_at": good_at, "policies": policies}


def run_fields(run: Run, schedule: str | None) -> dict[str, Any]:
    fields = run_record(run)
    fields["timeout"] = None if run.timeout is None else format_duration(run.timeout)
    return {**fields, "schedule": schedule}


def runs_out(control: Control, runs: Iterable[Run]) -> list[RunOut]:
    """With the names of their schedules, read at once."""
    runs = list(runs)
    ids = {run.schedule_id for run in runs if run.schedule_id is not None}
    names = control.schedule_names(ids) if ids else {}
    return [RunOut(**run_fields(run, names.get(run.schedule_id or 0))) for run in runs]
