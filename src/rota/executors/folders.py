"""Imports of modules that lie beside a job's file.

While something runs inside a folder, imports that nothing else answers look there, last, so that a
job called `email.py` does not hide the standard library. Outside of it nothing of the folder can be
seen: two folders may each have a `util.py`. A folder whose files have changed is forgotten as a
whole, and all that is loaded from it is loaded anew.

`sys.path` stays as it is, and no `__pycache__` is read or written beside the files: Python takes
cached code for current when a file has changed within the same second and kept its size.
"""

from __future__ import annotations

import os
import sys
import threading
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)

Stamp = tuple[int, int, int] | None


class Folder:
    """Modules of one folder. `generation` rises when they are forgotten."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.generation = 0
        self._modules: dict[str, types.ModuleType] = {}
        self._stamps: dict[str, Stamp] = {}
        self._hidden: dict[str, types.ModuleType] = {}
        self._finders = (_Beside(self), _Below(self))
        self._depth = 0

    def changed(self) -> bool:
        """True if a file is no longer what it was when it was loaded; then all is forgotten."""
        if all(stamp_of(path) == stamp for path, stamp in self._stamps.items()):
            return False
        if self._depth:
            for name in self._modules:
                sys.modules.pop(name, None)
        self._modules.clear()
        self._stamps.clear()
        self.generation += 1
        return True

    def watch(self, path: str) -> None:
        """Count this file as loaded, from before it is read."""
        self._stamps[path] = stamp_of(path)

    def found(self, spec: ModuleSpec) -> None:
        if spec.origin is not None and spec.has_location:
            self.watch(spec.origin)
        if spec.name not in self._modules:
            self._modules[spec.name] = types.ModuleType(spec.name)  # a place, until we leave

    def put(self, name: str, module: types.ModuleType) -> None:
        """Make a module of this folder one that can be found by its name."""
        if name in sys.modules and name not in self._modules:
            self._hidden[name] = sys.modules[name]
        self._modules[name] = sys.modules[name] = module

    def enter(self) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        for name, module in self._modules.items():
            if name in sys.modules:  # imported from elsewhere meanwhile: put back on leaving
                self._hidden[name] = sys.modules[name]
            sys.modules[name] = module
        beside, below = self._finders
        sys.meta_path.insert(0, below)
        sys.meta_path.append(beside)

    def leave(self) -> None:
        self._depth -= 1
        if self._depth:
            return
        for finder in self._finders:
            if finder in sys.meta_path:  # a handler may have rearranged it
                sys.meta_path.remove(finder)
        for name in list(self._modules):
            module = sys.modules.pop(name, None)
            if module is None:  # its import failed
                del self._modules[name]
            else:
                self._modules[name] = module
        sys.modules.update(self._hidden)
        self._hidden.clear()


class Folders:
    """`guard` is held by who loads from any of them: `sys.modules` is one for all threads."""

    def __init__(self) -> None:
        self._folders: dict[str, Folder] = {}
        self.guard = threading.RLock()

    def of(self, path: str) -> Folder:
        """The folder of a file."""
        folder = os.path.dirname(os.path.abspath(path))
        with self.guard:
            return self._folders.setdefault(folder, Folder(folder))

    @contextmanager
    def inside(self, folder: Folder) -> Iterator[None]:
        """One thread at a time: what is imported meanwhile belongs to the folder."""
        with self.guard:
            folder.enter()
            try:
                yield
            finally:
                folder.leave()


class _Fresh(SourceFileLoader):
    """Compiles the file as it is, without cached code."""

    def get_code(self, fullname: str) -> types.CodeType:
        path = self.get_filename(fullname)
        code: types.CodeType = self.source_to_code(self.get_data(path), path)
        return code


LOADERS = ((ExtensionFileLoader, EXTENSION_SUFFIXES), (_Fresh, SOURCE_SUFFIXES))


class _Beside:
    """Modules and packages in the folder: asked when nobody else knows them. Not importlib.abc's:
    that costs each child a tenth of its start."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: object = None
    ) -> ModuleSpec | None:
        return None if path is not None else self._look(fullname, self.folder.path)

    def _look(self, fullname: str, place: str) -> ModuleSpec | None:
        # A finder of its own each time: one that is kept may not see a file that is new.
        spec = FileFinder(place, *LOADERS).find_spec(fullname)
        if spec is not None:
            self.folder.found(spec)
        return spec


class _Below(_Beside):
    """Modules of packages in the folder: asked first, or their cached code would be used."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: object = None
    ) -> ModuleSpec | None:
        for place in path or ():
            if place.startswith(self.folder.path + os.sep):
                spec = self._look(fullname, place)
                if spec is not None:
                    return spec
        return None


def stamp_of(path: str) -> Stamp:
    """Tells whether a file has changed; None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
