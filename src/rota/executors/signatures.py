"""Signatures of Python functions as JSON types, and arguments converted from JSON.

Arguments are stored as JSON by name. A parameter called `ctx` or annotated `rota.Context` (also
with `| None`, and in `Annotated`) receives the run's context and is no argument. An annotation that
msgspec cannot decode accepts any value.
"""

from __future__ import annotations

import ast
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from rota.errors import BadArguments, Invalid
from rota.executors.context import Context
from rota.model.signature import Parameter, Signature

Function = Callable[..., Any]

# Values of these types are passed as JSON decodes them; others go through msgspec.convert.
PLAIN: dict[Any, tuple[str, ...]] = {
    inspect.Parameter.empty: (),
    Any: (),
    object: (),
    str: ("string",),
    int: ("integer",),
    float: ("number",),
    bool: ("boolean",),
    list: ("array",),
    dict: ("object",),
    None: ("null",),
    type(None): ("null",),
}
JSON_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


@dataclass(frozen=True, slots=True)
class Handler:
    """A function with its signature, callable with a run's context."""

    function: Function
    signature: Signature
    rich: Mapping[str, Any]
    context_name: str | None
    is_async: bool
    positional: tuple[str, ...] = ()  # arguments that a call may give by position, in their order
    context_first: bool = False  # a direct call gives the context by position, before them

    def call(self, context: Context) -> Any:
        return self.function(**self.arguments(context))

    def arguments(self, context: Context) -> dict[str, Any]:
        """The run's arguments, checked and converted.

        They were checked at the enqueue, but the code may be newer than that."""
        if not context.args and not self.signature.parameters:
            return {} if self.context_name is None else {self.context_name: context}
        self.signature.check(context.job, context.args)
        arguments = dict(context.args)
        for name in self.rich:
            if name in arguments:
                arguments[name] = self._convert(context.job, name, arguments[name])
        if self.context_name is not None:
            if self.context_name in arguments:
                raise BadArguments(
                    f"job {context.job!r}: {self.context_name!r} is given by Rota; rename yours"
                )
            arguments[self.context_name] = context
        return arguments

    def _convert(self, job: str, name: str, value: Any) -> Any:
        try:
            return msgspec.convert(value, self.rich[name], str_keys=True)
        except msgspec.ValidationError as error:
            raise BadArguments(f"job {job!r}: {name!r} does not fit: {error}") from None


def handler_of(function: Function) -> Handler:
    """Inspect a function; raises Invalid if it cannot be called with named arguments."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise Invalid(f"{_name(function)} is a generator and would never run; remove its yield")
    hints = _hints(function)
    declared = inspect.signature(function).parameters
    if _is_method(function, next(iter(declared), "")):
        raise Invalid(
            f"{_name(function)} is a method, and its runs would have no {next(iter(declared))}; "
            "make it a function outside the class, or a job of one object: "
            f'app.job("{function.__name__}")(made.{function.__name__})'
        )
    parameters, positional, rich, context_name, is_open = [], [], {}, None, False
    for name, parameter in declared.items():
        hint = hints.get(name, inspect.Parameter.empty)
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL | inspect.Parameter.POSITIONAL_ONLY:
                raise Invalid(
                    f"{_name(function)} takes {parameter} by position, but arguments of a job "
                    "travel by name; give each its own named parameter"
                )
            case inspect.Parameter.VAR_KEYWORD:
                is_open = True
            case _ if name == "ctx" or _is_context(hint):
                if context_name is not None:
                    raise Invalid(
                        f"{_name(function)} takes the context twice, as {context_name!r} and "
                        f"{name!r}; leave one of them out"
                    )
                context_name = name
            case _:
                json_types = _plain(hint)
                if json_types is None and (json_types := _decodable(hint)) is not None:
                    rich[name] = hint
                required = parameter.default is inspect.Parameter.empty
                parameters.append(Parameter(name=name, types=json_types or (), required=required))
                if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
                    positional.append(name)
    return Handler(
        function,
        Signature(tuple(parameters), open=is_open),
        rich,
        context_name,
        _is_async(function),
        tuple(positional),
        context_first=_is_first(context_name, declared),
    )


def _is_method(function: Function, first: str) -> bool:
    """Whether it was defined in a class, for its objects. A bound one has its object already."""
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    in_class = owner != "" and not owner.endswith("<locals>")
    return in_class and first in ("self", "cls") and not inspect.ismethod(function)


def _is_first(name: str | None, declared: Mapping[str, inspect.Parameter]) -> bool:
    if name is None or name != next(iter(declared)):
        return False
    return declared[name].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD


def _is_context(hint: Any) -> bool:
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _is_context(typing.get_args(hint)[0])
    if origin in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(hint) if member is not type(None)]
        return len(members) == 1 and _is_context(members[0])
    return hint is Context


def _is_async(function: Function) -> bool:
    called = getattr(type(function), "__call__", None)  # noqa: B004  of a callable object
    return any(map(inspect.iscoroutinefunction, (function, called)))


def signature_of(function: Function) -> Signature:
    """The arguments a function accepts, in the form that is stored with its job."""
    return handler_of(function).signature


def _plain(hint: Any) -> tuple[str, ...] | None:
    try:
        return PLAIN.get(hint)
    except TypeError:  # not hashable, so not plain
        return None


def _decodable(hint: Any) -> tuple[str, ...] | None:
    """The JSON types that decode to `hint`, empty for any; None if none decodes."""
    try:
        schema = msgspec.json.schema(hint)
    except Exception:  # an annotation may be any object
        return None
    return tuple(dict.fromkeys(_names(schema, schema.get("$defs", {})) or ()))


def _names(schema: dict[str, Any], definitions: dict[str, Any]) -> list[str] | None:
    match schema:
        case {"$ref": str(reference)}:
            return _names(definitions[reference.rpartition("/")[2]], definitions)
        case {"anyOf": list(members)}:
            member_types = [_names(member, definitions) for member in members]
            if None in member_types:
                return None
            return [name for names in member_types for name in names or ()]
        case {"enum": list(values)}:
            return [JSON_NAMES[type(value)] for value in values]
        case {"type": str(name)}:
            return [name]
        case _:
            return None


def _hints(function: Function) -> dict[str, Any]:
    """Resolved annotations, without unresolvable ones (TYPE_CHECKING imports)."""
    plain = inspect.unwrap(function)
    try:
        return typing.get_type_hints(plain, include_extras=True)
    except Exception:  # evaluating an annotation may raise anything
        return _resolvable_hints(plain)


def _resolvable_hints(function: Function) -> dict[str, Any]:
    known = getattr(function, "__globals__", {})
    resolved: dict[str, Any] = {}
    for name, annotation in getattr(function, "__annotations__", {}).items():
        holder = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            resolved |= typing.get_type_hints(holder, known, include_extras=True)
        except Exception:
            if isinstance(annotation, str) and _reads_as_context(annotation):
                resolved[name] = Context
    return resolved


def _reads_as_context(annotation: str) -> bool:
    try:
        return _names_context(ast.parse(annotation, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _names_context(written: ast.expr) -> bool:
    """Whether an annotation that cannot be evaluated is `Context` by its last name."""
    match written:
        case ast.Name(id="Context") | ast.Attribute(attr="Context"):
            return True
        case ast.Constant(value=str(quoted)):
            return _reads_as_context(quoted)
        case (
            ast.BinOp(op=ast.BitOr(), left=member, right=ast.Constant(value=None))
            | ast.BinOp(op=ast.BitOr(), left=ast.Constant(value=None), right=member)
        ):
            return _names_context(member)
        case ast.Subscript(
            value=ast.Name(id="Optional" | "Annotated")
            | ast.Attribute(attr="Optional" | "Annotated"),
            slice=inner,
        ):
            return _names_context(inner.elts[0] if isinstance(inner, ast.Tuple) else inner)
        case _:
            return False


def _name(function: Function) -> str:
    return f"function {getattr(function, '__qualname__', repr(function))!r}"
