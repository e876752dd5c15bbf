"""From a job's spec to its function, and back.

    {"function": "package.module:name"}              imported
    {"file": "jobs.d/cleanup.py", "function": "run"} a file of its own; `source` replaces its text
    {"main": "/srv/app.py", "function": "name"}      the script that started the worker

Files are compiled here and not by importlib: no `__pycache__` appears beside them, and an edit
within the same second is never mistaken for the old text. A script is loaded under another name,
so that `if __name__ == "__main__"` does not run again.
"""

from __future__ import annotations

import importlib
import linecache
import os.path
import sys
import types
from collections.abc import Mapping
from typing import Any

from rota.errors import Invalid, Unknown
from rota.executors.signatures import Function, Handler, handler_of
from rota.model.job import Job

MAIN = "__rota_main__"
DEFAULT_FUNCTION = "run"


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
    """Refuse a spec that nobody could follow. Nothing is imported: the code may be elsewhere."""
    spec, place = job.spec, f"job {job.name!r}"
    unknown = sorted(set(spec) - {"function", "file", "main", "source", "version"})
    if unknown:
        raise Invalid(f"{place}: spec has no {unknown[0]!r}; use function, file, main or source")
    function = spec.get("function", DEFAULT_FUNCTION if "file" in spec else "")
    module, _, name = function.rpartition(":") if isinstance(function, str) else ("", "", "")
    by_path = "file" in spec or "main" in spec
    if not name or by_path == bool(module):
        wanted = "a name in that file" if by_path else "'package.module:name'"
        raise Invalid(f"{place}: function {function!r} is not an address; use {wanted}")
    if job.isolation == "process" and ("<" in name or module == "__main__"):
        raise Invalid(
            f"{place}: a child process cannot find {function!r}; move it to the top level of a "
            "module, or use isolation='thread'"
        )


class Loader:
    """Finds each job's function once per version."""

    def __init__(self) -> None:
        self._handlers: dict[str, tuple[str, Handler]] = {}
        self._scripts: dict[str, types.ModuleType] = {}

    def load(self, job: Job, version: str) -> Handler:
        """Import what is needed; whatever that raises is the attempt's failure."""
        handler = self.known(job, version)
        if handler is None:
            handler = handler_of(self._find(job.spec))
            self._handlers[job.name] = (version, handler)
        return handler

    def known(self, job: Job, version: str) -> Handler | None:
        loaded, handler = self._handlers.get(job.name, (None, None))
        return handler if loaded == version else None

    def _find(self, spec: Mapping[str, Any]) -> Function:
        name = spec.get("function", DEFAULT_FUNCTION)
        if "main" in spec:
            path = spec["main"]
            if path not in self._scripts:
                self._scripts[path] = load_file(path, MAIN)
            return _attribute(self._scripts[path], name, path)
        if "file" in spec:
            path = spec["file"]
            module = load_file(path, _module_name(path), spec.get("source"))
            return _attribute(module, name, path)
        module_name, _, name = name.partition(":")
        return _attribute(importlib.import_module(module_name), name, module_name)


def load_file(path: str, name: str, source: str | bytes | None = None) -> types.ModuleType:
    """Run a file as a module. Its folder is the last place where imports look, so that a job
    called `email.py` does not hide the standard library."""
    if source is None:
        with open(path, "rb") as file:
            source = file.read()
    code = compile(source, path, "exec", dont_inherit=True)
    # Tracebacks show the text that ran, also when the file has changed since.
    text = source.decode(errors="replace") if isinstance(source, bytes) else source
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    folder = os.path.dirname(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.append(folder)
    module = types.ModuleType(name)
    module.__file__ = path
    replaced = sys.modules.get(name)
    sys.modules[name] = module
    try:
        exec(code, module.__dict__)
    except BaseException:
        _put_back(name, replaced)
        raise
    return module


def _put_back(name: str, module: types.ModuleType | None) -> None:
    if module is None:
        sys.modules.pop(name, None)
    else:
        sys.modules[name] = module


def _module_name(path: str) -> str:
    plain = "".join(letter if letter.isalnum() else "_" for letter in path.removesuffix(".py"))
    return f"rota_job_{plain.strip('_')}"


def _attribute(found: Any, name: str, place: str) -> Function:
    for part in name.split("."):
        if not hasattr(found, part):
            raise Unknown(f"{place} has no {name!r}; was it renamed or moved?")
        found = getattr(found, part)
    if not callable(found):
        raise Invalid(f"{name!r} in {place} is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]
