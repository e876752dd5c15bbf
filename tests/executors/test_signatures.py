"""From Python annotations to JSON types and back."""

from __future__ import annotations

import enum
import functools
import json
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, Optional
from uuid import UUID

import msgspec
import pytest

from rota.errors import BadArguments, Invalid
from rota.executors.context import Context
from rota.executors.signatures import handler_of, signature_of
from rota.flow.enqueue import encode_args
from rota.model.job import Job
from tests.executors.conftest import make_context

if typing.TYPE_CHECKING:
    from somewhere import Missing

    import rota


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Point:
    x: int
    y: int = 0


class Item(msgspec.Struct):
    name: str
    price: Decimal


class Opaque:
    pass


def types_of(annotation: Any) -> tuple[str, ...]:
    def function(value):  # type: ignore[no-untyped-def]
        pass

    function.__annotations__["value"] = annotation
    return signature_of(function).parameters[0].types


@pytest.mark.parametrize(
    ("annotation", "types"),
    [
        (str, ("string",)),
        (int, ("integer",)),
        (float, ("number",)),
        (bool, ("boolean",)),
        (None, ("null",)),
        (list, ("array",)),
        (dict, ("object",)),
        (Any, ()),
        (object, ()),
        (list[int], ("array",)),
        (Sequence[str], ("array",)),
        (set[int], ("array",)),
        (tuple[int, str], ("array",)),
        (dict[str, int], ("object",)),
        (int | None, ("integer", "null")),
        (str | list[str] | None, ("string", "array", "null")),
        (int | Any, ()),
        (datetime, ("string",)),
        (UUID, ("string",)),
        (Decimal, ("string",)),
        (bytes, ("string",)),
        (Colour, ("string",)),
        (Level, ("integer",)),
        (Literal["a", 1, None], ("null", "integer", "string")),
        (Point, ("object",)),
        (Item | None, ("object", "null")),
        (Annotated[int, msgspec.Meta(gt=0)], ("integer",)),
        (Annotated[int, ["not hashable"]], ("integer",)),
        (Opaque, ()),
        (Opaque | int, ()),
        (Callable, ()),
        ("what is this?", ()),
    ],
)
def test_annotations_become_json_types(annotation: Any, types: tuple[str, ...]) -> None:
    assert set(types_of(annotation)) == set(types)


def test_defaults_are_not_required_and_the_context_is_no_argument() -> None:
    def function(ctx, a: int, b: str = "x", *, c: float, d: float = 0) -> None:  # type: ignore[no-untyped-def]
        pass

    handler = handler_of(function)
    found = [(p.name, p.required) for p in handler.signature.parameters]
    assert found == [("a", True), ("b", False), ("c", True), ("d", False)]
    assert handler.positional == ("a", "b")
    assert handler.context_first


def test_the_context_is_known_by_its_annotation() -> None:
    def function(run: Context, job: str) -> None:
        pass

    def hidden(run: rota.Context, job: Missing, when: datetime) -> None:
        pass

    def optional(job: str, run: Context | None = None) -> None:
        pass

    def union(job: str, run: Optional[Context] = None) -> None:  # noqa: UP045
        pass

    def annotated(run: Annotated[Context, "given"], job: str) -> None:
        pass

    def both(job: str, *, run: Annotated[Context | None, "given"] = None) -> None:
        pass

    def turned(job: str, run: Annotated[Context, "given"] | None = None) -> None:
        pass

    def hidden_optional(job: Missing, run: rota.Context | None = None) -> None:
        pass

    def hidden_union(job: Missing, run: typing.Optional["rota.Context"] = None) -> None:  # noqa: UP037, UP045
        pass

    def hidden_annotated(run: Annotated[rota.Context, "given"], job: Missing) -> None:
        pass

    begin = (function, hidden, annotated, hidden_annotated)
    for each in (*begin, optional, union, both, turned, hidden_optional, hidden_union):
        handler = handler_of(each)
        assert handler.context_name == "run", each
        assert next(p.name for p in handler.signature.parameters) == "job"
        assert handler.context_first == (each in begin)
    # What cannot be resolved accepts anything, and does not spoil its neighbours.
    assert [p.types for p in signature_of(hidden).parameters] == [(), ("string",)]


def test_what_is_not_the_context_alone_is_an_argument() -> None:
    def mixed(run: Context | int) -> None:
        pass

    def hidden(run: rota.Context | Missing, other: list[rota.Context], third: Missing) -> None:
        pass

    assert handler_of(mixed).context_name is None
    assert handler_of(hidden).context_name is None


def test_a_second_context_is_refused() -> None:
    def function(ctx: Context, other: Context | None = None) -> None:
        pass

    with pytest.raises(Invalid, match="takes the context twice, as 'ctx' and 'other'; leave one"):
        handler_of(function)


def test_a_method_of_a_class_is_refused_with_the_way_out() -> None:
    class Shop:
        def sell(self, item: str) -> None:
            pass

        def of_class(cls, item: str) -> None:  # noqa: N805
            pass

        def inner(self) -> Callable[..., None]:
            def sell(self: str) -> None:
                pass

            return sell

        @staticmethod
        def free(item: str) -> None:
            pass

    message = r"Shop\.sell' is a method, and its runs .* no self; make it a function .*sell\)$"
    with pytest.raises(Invalid, match=message):
        handler_of(Shop.sell)
    with pytest.raises(Invalid, match="is a method, and its runs would have no cls"):
        handler_of(Shop.of_class)
    assert handler_of(Shop().sell).positional == ("item",)
    assert handler_of(Shop().inner()).positional == ("self",)
    assert handler_of(Shop.free).positional == ("item",)


def test_keyword_arguments_make_it_open() -> None:
    def function(a: int, **rest: Any) -> None:
        pass

    assert signature_of(function).open
    assert not signature_of(types_of).open


def positions(*numbers: int) -> None:
    pass


def slashed(a: int, /) -> None:
    pass


def generates() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize("function", [positions, slashed, generates])
def test_functions_that_cannot_be_called_by_name_are_refused(function: Any) -> None:
    with pytest.raises(Invalid, match=function.__name__):
        signature_of(function)


def test_wrapped_and_bound_functions_are_read_through() -> None:
    class Shop:
        async def sell(self, item: Item) -> None:
            pass

    def original(when: datetime) -> None:
        pass

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        pass

    assert signature_of(wrapper).parameters[0].types == ("string",)
    assert [p.name for p in signature_of(Shop().sell).parameters] == ["item"]
    assert handler_of(Shop().sell).is_async
    assert [p.name for p in signature_of(functools.partial(original)).parameters] == ["when"]


def test_rich_arguments_are_made_real_and_plain_ones_left_alone() -> None:
    def function(
        at: datetime, point: Point, colour: Colour, items: list[Item], prices: dict[int, Decimal],
        ratio: float, opaque: Opaque,
    ) -> None:  # fmt: skip
        pass

    args = {
        "at": "2026-03-01T12:00:00Z", "point": {"x": 1}, "colour": "red",
        "items": [{"name": "a", "price": "1.10"}], "prices": {"5": "2.20"}, "ratio": 1,
        "opaque": [1],
    }  # fmt: skip
    assert handler_of(function).arguments(make_context(args=args)) == {
        "at": datetime(2026, 3, 1, 12, tzinfo=UTC),
        "point": Point(1),
        "colour": Colour.RED,
        "items": [Item("a", Decimal("1.10"))],
        "prices": {5: Decimal("2.20")},
        "ratio": 1,
        "opaque": [1],
    }


def test_a_payload_cannot_replace_the_context() -> None:
    def function(ctx: Context, **rest: Any) -> None:
        pass

    with pytest.raises(BadArguments, match="'ctx' is given by Rota"):
        handler_of(function).arguments(make_context(args={"ctx": 1}))


def test_arguments_travel_as_json_and_come_back() -> None:
    def function(point: Point, at: datetime, id: UUID, colour: Colour, price: Decimal) -> None:
        pass

    given = {
        "point": Point(1, 2), "at": datetime(2026, 3, 1, tzinfo=UTC), "id": UUID(int=5),
        "colour": Colour.RED, "price": Decimal("1.50"),
    }  # fmt: skip
    job = Job(name="job", signature=signature_of(function))
    sent = json.loads(encode_args(job, given))
    assert sent["point"] == {"x": 1, "y": 2}
    assert handler_of(function).arguments(make_context(args=sent)) == given


def test_what_json_cannot_carry_is_named() -> None:
    with pytest.raises(Invalid, match=r"job 'sell': args are not JSON: .*Opaque"):
        encode_args(Job(name="sell"), {"item": Opaque()})
