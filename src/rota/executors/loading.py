"""Finds the function of a job's spec, and makes the spec of a function.

    {"function": "package.module:name"}              imported
    {"file": "jobs.d/cleanup.py", "function": "run"} a file; `source` replaces its text, `version`
                                                     identifies the text
    {"main": "/srv/app.py", "function": "name"}      the script that started the worker

Files are compiled here and not by importlib: no `__pycache__` is written beside them, and an edit
within the same second takes effect. A script is loaded under another name, so that its block
`if __name__ == "__main__"` does not run again.
"""

from __future__ import annotations

import importlib
import linecache
import os.path
import sys
import types
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from rota.errors import Invalid, Unknown
from rota.executors.folders import Folder, Folders
from rota.executors.signatures import Function, Handler, handler_of
from rota.model.job import Job

MAIN = "__rota_main__"
DEFAULT_FUNCTION = "run"
# The address of the function, and further keys of a job file.
KNOWN = frozenset({"function", "file", "main", "source", "version", "target", "tags", "params"})


def address_of(function: Function) -> dict[str, str]:
    """The spec of a function, as its decorator stores it."""
    module, name = function.__module__, function.__qualname__
    if module != "__main__":
        return {"function": f"{module}:{name}"}
    main = sys.modules["__main__"]
    started_as = getattr(main, "__spec__", None)
    if started_as is not None:  # python -m package.module
        return {"function": f"{started_as.name}:{name}"}
    if path := getattr(main, "__file__", None):
        return {"main": os.path.abspath(path), "function": name}
    return {"function": f"__main__:{name}"}


def check_spec(job: Job) -> None:
    """Refuse a spec without a usable address.

    Nothing is imported: the code may be on another machine."""
    spec, label = job.spec, f"job {job.name!r}"
    unknown = sorted(set(spec) - KNOWN)
    if unknown:
        raise Invalid(f"{label}: spec has no {unknown[0]!r}; use function, file, main or source")
    function = spec.get("function", DEFAULT_FUNCTION if "file" in spec else "")
    module, _, name = function.rpartition(":") if isinstance(function, str) else ("", "", "")
    by_path = "file" in spec or "main" in spec
    if not name or by_path == bool(module):
        form = "a name in that file" if by_path else "'package.module:name'"
        raise Invalid(f"{label}: function {function!r} is not an address; use {form}")
    if job.isolation == "process" and ("<" in name or module == "__main__"):
        raise Invalid(
            f"{label}: a child process cannot find {function!r}; move it to the top level of a "
            "module, or use isolation='thread'"
        )


class Loader:
    """Loads a job's function once per version, and after a file beside it changed."""

    def __init__(self) -> None:
        self._handlers: dict[str, _Loaded] = {}
        self._scripts: dict[str, types.ModuleType] = {}
        self._folders = Folders()

    def load(self, job: Job, version: str, source: bytes | None = None) -> Handler:
        """The handler of a job, imported if needed; an exception fails the attempt.

        `source` replaces the text of the job's file for this version."""
        with self._folders.guard:
            return self.known(job, version) or self._load(job, version, source)

    def _load(self, job: Job, version: str, source: bytes | None) -> Handler:
        before, folder = self._handlers.get(job.name), self._folder(job)
        if folder is not None:
            folder.changed()  # a new version uses the current files beside it
        if source is None and before is not None and before.version == version:
            source = before.source  # only a file beside it has changed
        with self.around(job):
            handler = handler_of(self._find(job.spec, source))
        generation = 0 if folder is None else folder.generation
        self._handlers[job.name] = _Loaded(version, handler, source, folder, generation)
        return handler

    def known(self, job: Job, version: str) -> Handler | None:
        """The handler if it is loaded; None if not, or while another thread imports."""
        loaded = self._handlers.get(job.name)
        if loaded is None or not self._folders.guard.acquire(blocking=False):
            return None
        try:
            return loaded.handler if loaded.fits(version) else None
        finally:
            self._folders.guard.release()

    def around(self, job: Job) -> AbstractContextManager[None]:
        """A context in which the job's handler can import files beside its own."""
        folder = self._folder(job)
        return nullcontext() if folder is None else self._folders.inside(folder)

    def _folder(self, job: Job) -> Folder | None:
        path = job.spec.get("file")
        return None if path is None else self._folders.of(path)

    def _find(self, spec: Mapping[str, Any], source: bytes | None) -> Function:
        name = spec.get("function", DEFAULT_FUNCTION)
        if "main" in spec:
            path = spec["main"]
            if path not in self._scripts:
                self._scripts[path] = load_script(path)
            return _attribute(self._scripts[path], name, path)
        if "file" in spec:
            path = spec["file"]
            module = load_file(path, self._folders.of(path), source or spec.get("source"))
            return _attribute(module, name, path)
        module_name, _, name = name.partition(":")
        return _attribute(importlib.import_module(module_name), name, module_name)


@dataclass(frozen=True, slots=True)
class _Loaded:
    version: str
    handler: Handler
    source: bytes | None
    folder: Folder | None
    generation: int

    def fits(self, version: str) -> bool:
        if self.version != version:
            return False
        if self.folder is None:
            return True
        return not self.folder.changed() and self.folder.generation == self.generation


def load_file(path: str, folder: Folder, source: str | bytes | None = None) -> types.ModuleType:
    """Run a file as a module of its folder, which must be entered.

    Without `source` the file is read, and an edit of it counts as a change of the folder."""
    if source is None:
        folder.watch(path)
        source = _read(path)
    module = _module(_module_name(path), path)
    folder.put(module.__name__, module)
    exec(_compile(path, source), module.__dict__)
    return module


def load_script(path: str) -> types.ModuleType:
    """Run the script that started the worker, under another name.

    Its folder is added to `sys.path`, as Python does for a script."""
    code = _compile(path, _read(path))
    folder = os.path.dirname(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.append(folder)
    module = _module(MAIN, path)
    replaced = sys.modules.get(MAIN)
    sys.modules[MAIN] = module
    try:
        exec(code, module.__dict__)
    except BaseException:
        _put_back(MAIN, replaced)
        raise
    return module


def in_script_of_child() -> bool:
    """True while a child process runs the top level of the worker's script."""
    frame = sys._getframe(1) if MAIN in sys.modules else None
    while frame is not None:
        if frame.f_globals.get("__name__") == MAIN and frame.f_code.co_name == "<module>":
            return True
        frame = frame.f_back
    return False


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _compile(path: str, source: str | bytes) -> types.CodeType:
    code = compile(source, path, "exec", dont_inherit=True)
    # Tracebacks quote the text that ran, even if the file has changed since.
    text = source.decode(errors="replace") if isinstance(source, bytes) else source
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    return code


def _module(name: str, path: str) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__file__ = path
    return module


def _put_back(name: str, module: types.ModuleType | None) -> None:
    if module is None:
        sys.modules.pop(name, None)
    else:
        sys.modules[name] = module


def _module_name(path: str) -> str:
    plain = "".join(letter if letter.isalnum() else "_" for letter in path.removesuffix(".py"))
    return f"rota_job_{plain.strip('_')}"


def _attribute(value: Any, name: str, source: str) -> Function:
    for part in name.split("."):
        if not hasattr(value, part):
            raise Unknown(f"{source} has no {name!r}; was it renamed or moved?")
        value = getattr(value, part)
    if not callable(value):
        raise Invalid(f"{name!r} in {source} is a {type(value).__name__}, not a function")
    return value  # type: ignore[no-any-return]
