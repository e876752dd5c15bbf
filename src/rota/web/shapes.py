"""Shapes that several nouns share: what the document says of parameters and answers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field

from rota.model.limits import KEY_LENGTH, NAME, PAGE, REASON_LENGTH
from rota.model.transitions import STATES

T = TypeVar("T")

NAME_PATTERN = f"^{NAME.pattern}$"
ID_PATTERN = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
WHOLE = 2**53 - 1  # what every program reads exactly

State = Literal[
    "waiting", "held", "queued", "running", "paused", "succeeded", "dead", "cancelled"
]  # fmt: skip
assert set(State.__args__) == set(STATES)  # type: ignore[attr-defined]

PathName = Annotated[
    str, Path(pattern=NAME_PATTERN, description="A name; write a slash in it as %2F.")
]
RunId = Annotated[str, Path(pattern=ID_PATTERN, examples=["01997f3a-2c4e-7a51-8f00-3d6a1f0c9b77"])]
Name = Annotated[str, Query(pattern=NAME_PATTERN)]
Limit = Annotated[int, Query(ge=1, le=PAGE, description="How many at most.")]
Before = Annotated[int | None, Query(ge=1, le=WHOLE, description="`next` of the page before.")]
AfterName = Annotated[
    str,
    Query(
        max_length=KEY_LENGTH,
        pattern=r"^[A-Za-z0-9._/-]*$",
        description="`next` of the page before.",
    ),
]
BodyName = Annotated[str, Field(pattern=NAME_PATTERN)]
Reason = Annotated[str | None, Field(max_length=REASON_LENGTH, description="Kept with the change.")]


class Asking(BaseModel):
    """A body: names that nobody knows are refused."""

    model_config = ConfigDict(extra="forbid")


class Telling(BaseModel):
    """An answer."""


class Why(Asking):
    reason: Reason = None


class Problem(Telling):
    """What went wrong (RFC 9457). `code` is a word for programs, `detail` a sentence for people."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    errors: list[dict[str, str]] = Field(default_factory=list)


class Page(Telling, Generic[T]):
    """`next` asks for the following page; null when there is none."""

    items: list[T]
    next: str | int | None


class Done(Telling):
    """`done` is the verb in words."""

    done: str


Instant = datetime | None
Json = Any
