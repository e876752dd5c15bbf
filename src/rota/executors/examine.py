"""Examines a Python file as a job: imports it, in a child, and reads its options.

Options are plain assignments at its top level (`schedule = "0 3 * * *"`). Other names are ignored,
but a constant that is used nowhere and whose name resembles an option is reported as a warning: it
is most likely a misspelt option.
"""

from __future__ import annotations

import ast
import io
import math
import sys
import tokenize
import types
from collections.abc import Iterator
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from rota.errors import Invalid
from rota.executors.attempt import Stopped, error_text
from rota.executors.file_facts import FileError, FileFacts
from rota.executors.folders import Folder
from rota.executors.loading import load_file
from rota.executors.signatures import handler_of
from rota.model.duration import format_duration
from rota.model.limits import check_payload, check_payload_size
from rota.model.options import FILE_OPTIONS, RETRY_OPTIONS, TIMINGS

HANDLERS = ("run", "default")
OPTIONS = (
    *TIMINGS, *FILE_OPTIONS, *RETRY_OPTIONS, "timeout", "queue", "priority", "concurrency_key",
    "concurrency_limit", "isolation", "target", "description", "tags", "params", "enabled",
)  # fmt: skip
SIMILARITY = 0.8  # `shedule` resembles `schedule`, `days` does not resemble `delay`
MEANT_AS_CONTEXT = ("context", "c", "job", "run")


def examine(path: str, source: bytes, folder: Folder) -> FileFacts | FileError:
    """Import a file as a job; whatever it raises becomes its FileError."""
    try:
        tree = _parse(_decoded(source), path)
        module = load_file(path, folder, source)
        return _facts(path, _TopLevel(tree), module)
    except Stopped as stop:
        line = _line(stop, path)
        message = "its import does not end; do the work in the handler, not at the top level"
        return FileError(path=path, error=_located(path, line, message), line=line)
    except _Fault as fault:
        message = _located(path, fault.line, str(fault))
        return FileError(path=path, error=message, line=fault.line)
    except BaseException as error:  # importing a file runs it
        line = _line(error, path)
        message = f"{type(error).__name__}: {_first_line(error)}"
        if isinstance(error, NameError) and error.name in ("false", "true"):
            message += f"; in Python it is {error.name.capitalize()}"
        if isinstance(error, SystemExit):
            message = f"it ends the process when it is imported (SystemExit: {error.code})"
        trace = error_text(error)
        return FileError(path=path, error=_located(path, line, message), line=line, traceback=trace)


class _Fault(Invalid):
    """An error in a job's file, with its line."""

    def __init__(self, line: int | None, message: str) -> None:
        super().__init__(message)
        self.line = line


class _TopLevel:
    """The names that a file defines at its top level, with their lines."""

    def __init__(self, tree: ast.Module) -> None:
        self.assigned: dict[str, int] = {}
        self.imported: set[str] = set()
        self.functions: dict[str, int] = {}
        self.constants: dict[str, int] = {}
        for node in _top_level(tree.body):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    self.functions[name] = node.lineno
                case ast.Assign(targets=targets, value=value):
                    self._assign(targets, value, node.lineno)
                case ast.AnnAssign(target=target, value=value) if value is not None:
                    self._assign([target], value, node.lineno)
                case ast.ImportFrom(names=names):
                    self.imported |= {alias.asname or alias.name for alias in names}
        self.read = {
            node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        }

    def _assign(self, targets: list[ast.expr], value: ast.expr, line: int) -> None:
        for target in targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                    self.assigned[name.id] = line
                    if isinstance(value, ast.Constant):
                        self.constants[name.id] = line


def _facts(path: str, top_level: _TopLevel, module: types.ModuleType) -> FileFacts:
    name = _handler_name(top_level, module)
    function = getattr(module, name)
    try:
        handler = handler_of(function)
    except Invalid as fault:
        raise _Fault(top_level.functions.get(name), str(fault)) from None
    options = dict(_options(top_level, module))
    description = str(options.get("description") or module.__doc__ or function.__doc__ or "")
    return FileFacts(
        path=path,
        function=name,
        is_async=handler.is_async,
        signature=handler.signature,
        description=description.strip().partition("\n")[0],
        options=options,
        lines={name: line for name, line in top_level.assigned.items() if name in options},
        warnings=(
            *_misspelt(top_level),
            *(
                f"line {top_level.functions.get(name, 1)}: {parameter.name!r} is an argument of "
                "the job; call it ctx to be given the run's context"
                for parameter in handler.signature.parameters
                if parameter.name in MEANT_AS_CONTEXT and handler.context_name is None
            ),
        ),
    )


def _handler_name(top_level: _TopLevel, module: types.ModuleType) -> str:
    defined = {*top_level.functions, *top_level.assigned}
    names = [name for name in HANDLERS if name in defined and hasattr(module, name)]
    if len(names) == 2:
        line = max(top_level.functions.get(name) or top_level.assigned[name] for name in names)
        raise _Fault(line, "it has both run and default; keep the one that is the job's handler")
    # A handler may also be imported from a package, but not from the standard library:
    # `from subprocess import run` is no handler.
    names = names or [name for name in HANDLERS if _is_from_package(getattr(module, name, None))]
    if not names:
        raise _Fault(
            None,
            "it has no handler; write `def run(ctx):`, or begin the file's name with _ if it is "
            "no job",
        )
    if not callable(getattr(module, names[0])):
        raise _Fault(
            top_level.assigned.get(names[0]), f"{names[0]} is not a function; write `def run(ctx):`"
        )
    return names[0]


def _is_from_package(value: object) -> bool:
    package = str(getattr(value, "__module__", None) or "").partition(".")[0]
    return callable(value) and bool(package) and package not in sys.stdlib_module_names


def _options(top_level: _TopLevel, module: types.ModuleType) -> Iterator[tuple[str, Any]]:
    for name in OPTIONS:
        value = getattr(module, name, None)
        # `import queue` is no option, and neither is `timezone` of `from time import *`.
        if name not in top_level.assigned and name not in top_level.imported:
            continue
        if value is None or isinstance(value, types.ModuleType) or callable(value):
            continue
        try:
            plain = msgspec.to_builtins(value, builtin_types=(datetime, timedelta), enc_hook=_plain)
            plain = _json(plain, name)
            check_payload(plain, name)
            check_payload_size(len(msgspec.json.encode(plain)), name)
        except (TypeError, ValueError, OverflowError, RecursionError) as fault:
            if name not in top_level.assigned:
                continue
            message = str(fault) if isinstance(fault, Invalid) else f"{name} is {_a(value)}"
            raise _Fault(
                top_level.assigned[name],
                f"{message}, but {name} is an option of the job: give it a plain value, or give "
                "the variable another name",
            ) from None
        yield name, plain


def _plain(value: Any) -> Any:
    if isinstance(value, ZoneInfo) and value.key:
        return value.key
    raise TypeError(type(value).__name__)


def _json(value: Any, name: str) -> Any:
    match value:
        case timedelta():
            return format_duration(value)
        case datetime():
            return value.isoformat()
        case float() if not math.isfinite(value):
            raise Invalid(f"{name} is {value}")
        case dict():
            return {str(key): _json(inner, name) for key, inner in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_json(inner, name) for inner in value]
        case _:
            return value


def _misspelt(top_level: _TopLevel) -> Iterator[str]:
    for name, line in top_level.constants.items():
        if name in OPTIONS or name in top_level.read or name.startswith("_"):
            continue
        # TIMEOUT is an ordinary constant. SCHEDULE, used nowhere, is not.
        if name.isupper() and name.lower() != "schedule":
            continue
        if close := get_close_matches(name.lower(), OPTIONS, n=1, cutoff=SIMILARITY):
            yield f"line {line}: {name!r} is not an option; did you mean {close[0]!r}?"


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run at import, also inside `if`, `try`, `with` and loops."""
    for node in body:
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            for inner in getattr(node, part, ()):
                if isinstance(inner, ast.stmt):
                    yield from _top_level([inner])
                else:
                    yield from _top_level(inner.body)


def _decoded(source: bytes) -> str:
    """The text in its declared encoding. An error names the line and the byte."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    except SyntaxError as fault:
        encoding = "utf-8"
        if b"coding" in b"".join(source.splitlines()[:2]):
            raise _Fault(1, f"{fault}; save the file as UTF-8") from None
    try:
        return source.decode(encoding)
    except UnicodeDecodeError as fault:
        line = source.count(b"\n", 0, fault.start) + 1
        message = f"byte 0x{source[fault.start]:02x} is not {encoding}; save the file as UTF-8"
        raise _Fault(line, message) from None


def _parse(text: str, path: str) -> ast.Module:
    tree = compile(text, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    assert isinstance(tree, ast.Module)
    return tree


def _line(error: BaseException, path: str) -> int | None:
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _located(path: str, line: int | None, message: str) -> str:
    return f"{path}: {message}" if line is None else f"{path}:{line}: {message}"


def _first_line(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else _safe_str(error)
    return (text or "").strip().partition("\n")[0]


def _safe_str(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # __str__ may be defined in the file
        return "its text cannot be shown"


def _a(value: object) -> str:
    return f"a {type(value).__name__}"
