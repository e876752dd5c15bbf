"""Look at a Python file as a job, in a child process: import it and see what it says.

Options are plain assignments at its top level (`schedule = "0 3 * * *"`). Any other name is the
file's own affair; one that is like an option's, holds a constant and is used nowhere, is most
likely a misspelt option, and that is said.
"""

from __future__ import annotations

import ast
import io
import math
import sys
import tokenize
import types
from collections.abc import Callable, Iterator
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

HANDLERS = ("run", "default")
OPTIONS = (
    "schedule", "every", "at", "timezone", "dst", "anchor", "overlap", "queue_max", "on_error",
    "pause_after", "catch_up", "catch_up_limit", "misfire_grace", "jitter", "spread", "first_run",
    "starts_at", "ends_at", "timeout", "max_attempts", "backoff", "delay", "max_delay",
    "retry_jitter", "queue", "priority", "concurrency_key", "concurrency_limit", "isolation",
    "target", "description", "owner", "tags", "params", "enabled",
)  # fmt: skip
LIKE = 0.8  # `shedule` is like `schedule`, `days` is not like `delay`
MEANT_AS_CONTEXT = ("context", "c", "job", "run")


def examine(path: str, source: bytes, folder: Folder) -> FileFacts | FileError:
    """Everything a job needs to know of its file. Whatever the file raises is its error."""
    try:
        tree = _parse(_decoded(source), path)
        module = load_file(path, folder, source)
        return _facts(path, _Text(tree), module)
    except Stopped as stop:
        line = _line(stop, path)
        told = "its import does not end; do the work in the handler, not at the top level"
        return FileError(path=path, error=_told(path, line, told), line=line)
    except _Fault as fault:
        told = _told(path, fault.line, str(fault))
        return FileError(path=path, error=told, line=fault.line)
    except BaseException as error:  # importing a file runs it
        line = _line(error, path)
        told = f"{type(error).__name__}: {_first_line(error)}"
        if isinstance(error, NameError) and error.name in ("false", "true"):
            told += f"; in Python it is {error.name.capitalize()}"
        if isinstance(error, SystemExit):
            told = f"it ends the process when it is imported (SystemExit: {error.code})"
        trace = error_text(error)
        return FileError(path=path, error=_told(path, line, told), line=line, traceback=trace)


class _Fault(Invalid):
    """Something that a job's file may not say, with its line."""

    def __init__(self, line: int | None, told: str) -> None:
        super().__init__(told)
        self.line = line


class _Text:
    """What the text of a file defines at its top level, and where."""

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


def _facts(path: str, text: _Text, module: types.ModuleType) -> FileFacts:
    name = _handler_name(text, module)
    function = getattr(module, name)
    try:
        handler = handler_of(function)
    except Invalid as fault:
        raise _Fault(text.functions.get(name), str(fault)) from None
    options = dict(_options(text, module))
    told = str(options.get("description") or module.__doc__ or function.__doc__ or "")
    return FileFacts(
        path=path,
        function=name,
        is_async=handler.is_async,
        signature=handler.signature,
        description=told.strip().partition("\n")[0],
        options=options,
        lines={name: line for name, line in text.assigned.items() if name in options},
        warnings=(
            *_misspelt(text),
            *(
                f"line {text.functions.get(name, 1)}: {parameter.name!r} is an argument of the "
                "job; call it ctx to be given the run's context"
                for parameter in handler.signature.parameters
                if parameter.name in MEANT_AS_CONTEXT and handler.context_name is None
            ),
        ),
    )


def _handler_name(text: _Text, module: types.ModuleType) -> str:
    here = [name for name in HANDLERS if name in text.functions or name in text.assigned]
    here = [name for name in here if hasattr(module, name)]
    if len(here) == 2:
        line = max(text.functions.get(name) or text.assigned[name] for name in here)
        raise _Fault(line, "it has both run and default; keep the one that is the job's handler")
    # A handler may also come from a package, but `from subprocess import run` is none.
    here = here or [name for name in HANDLERS if _is_imported(getattr(module, name, None))]
    if not here:
        raise _Fault(
            None,
            "it has no handler; write `def run(ctx):`, or begin the file's name with _ if it is "
            "no job",
        )
    if not callable(getattr(module, here[0])):
        raise _Fault(
            text.assigned.get(here[0]), f"{here[0]} is not a function; write `def run(ctx):`"
        )
    return here[0]


def _is_imported(found: object) -> bool:
    home = str(getattr(found, "__module__", None) or "").partition(".")[0]
    return callable(found) and bool(home) and home not in sys.stdlib_module_names


def _options(text: _Text, module: types.ModuleType) -> Iterator[tuple[str, Any]]:
    for name in OPTIONS:
        value = getattr(module, name, None)
        # Nobody means `import queue` as an option, nor `timezone` out of `from time import *`.
        if name not in text.assigned and name not in text.imported:
            continue
        if value is None or isinstance(value, types.ModuleType) or callable(value):
            continue
        try:
            plain = msgspec.to_builtins(value, builtin_types=(datetime, timedelta), enc_hook=_plain)
            plain = _json(plain, name)
            check_payload(plain, name)
            check_payload_size(len(msgspec.json.encode(plain)), name)
        except (TypeError, ValueError, OverflowError, RecursionError) as fault:
            if name not in text.assigned:
                continue
            told = str(fault) if isinstance(fault, Invalid) else f"{name} is {_a(value)}"
            raise _Fault(
                text.assigned[name],
                f"{told}, but {name} is an option of the job: give it a plain value, or give the "
                "variable another name",
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


def _misspelt(text: _Text) -> Iterator[str]:
    for name, line in text.constants.items():
        if name in OPTIONS or name in text.read or name.startswith("_"):
            continue
        # TIMEOUT is an ordinary constant. SCHEDULE, used nowhere, is not.
        if name.isupper() and name.lower() != "schedule":
            continue
        if close := get_close_matches(name.lower(), OPTIONS, n=1, cutoff=LIKE):
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
    """The text, by the encoding it declares. Said here in words that name the line and the byte."""
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
        told = f"byte 0x{source[fault.start]:02x} is not {encoding}; save the file as UTF-8"
        raise _Fault(line, told) from None


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


def _told(path: str, line: int | None, told: str) -> str:
    return f"{path}: {told}" if line is None else f"{path}:{line}: {told}"


def _first_line(error: BaseException) -> str:
    told = error.msg if isinstance(error, SyntaxError) else _safely(lambda: str(error))
    return (told or "").strip().partition("\n")[0]


def _safely(say: Callable[[], str]) -> str:
    try:
        return say()
    except Exception:  # a file may raise an exception of its own making
        return "its text cannot be shown"


def _a(value: object) -> str:
    return f"a {type(value).__name__}"
