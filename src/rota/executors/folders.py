"""Import finders for modules beside a job's file.

While code of a folder runs, its modules can be imported. The folder is searched last, so that a
job called `email.py` does not hide the standard library. Other code does not see the folder: two
folders may each have a `util.py`. When a file changes, all modules of its folder are loaded again.

`sys.path` does not change. No `__pycache__` is read or written beside the files: Python considers
cached code current when a file has changed within the same second without changing its size.
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
    """The modules loaded from a folder. `generation` rises when they are discarded."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.generation = 0
        self._modules: dict[str, types.ModuleType] = {}
        self._stamps: dict[str, Stamp] = {}
        self._hidden: dict[str, types.ModuleType] = {}
        self._finders = (_SiblingFinder(self), _SubmoduleFinder(self))
        self._depth = 0

    def changed(self) -> bool:
        """Discard all modules if a loaded file has changed since; True if so."""
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
        """Record the state of a file. Called before it is read, so that no edit is missed."""
        self._stamps[path] = stamp_of(path)

    def expect(self, spec: ModuleSpec) -> None:
        """Record a module that is about to be imported from this folder."""
        if spec.origin is not None and spec.has_location:
            self.watch(spec.origin)
        if spec.name not in self._modules:
            self._modules[spec.name] = types.ModuleType(spec.name)  # until leave() has the real one

    def put(self, name: str, module: types.ModuleType) -> None:
        """Register a module of this folder, so that it can be imported by name."""
        if name in sys.modules and name not in self._modules:
            self._hidden[name] = sys.modules[name]
        self._modules[name] = sys.modules[name] = module

    def enter(self) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        for name, module in self._modules.items():
            if name in sys.modules:  # imported from elsewhere: leave() restores it
                self._hidden[name] = sys.modules[name]
            sys.modules[name] = module
        siblings, submodules = self._finders
        sys.meta_path.insert(0, submodules)
        sys.meta_path.append(siblings)

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
    """Folders by path. Hold `guard` to load from any: all threads share `sys.modules`."""

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
        """Run the block with the folder's modules importable, one thread at a time."""
        with self.guard:
            folder.enter()
            try:
                yield
            finally:
                folder.leave()


class _UncachedLoader(SourceFileLoader):
    """Compiles the file, without cached code."""

    def get_code(self, fullname: str) -> types.CodeType:
        path = self.get_filename(fullname)
        code: types.CodeType = self.source_to_code(self.get_data(path), path)
        return code


LOADERS = ((ExtensionFileLoader, EXTENSION_SUFFIXES), (_UncachedLoader, SOURCE_SUFFIXES))


class _SiblingFinder:
    """Finds modules and packages in the folder, after all other finders.

    Not a subclass of importlib.abc's: that import is a tenth of a child's start time."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: object = None
    ) -> ModuleSpec | None:
        return None if path is not None else self._find(fullname, self.folder.path)

    def _find(self, fullname: str, directory: str) -> ModuleSpec | None:
        # A new FileFinder each time: it caches the directory and may miss a new file.
        spec = FileFinder(directory, *LOADERS).find_spec(fullname)
        if spec is not None:
            self.folder.expect(spec)
        return spec


class _SubmoduleFinder(_SiblingFinder):
    """Finds modules of packages in the folder, before all other finders.

    Those would use cached code."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: object = None
    ) -> ModuleSpec | None:
        for directory in path or ():
            if directory.startswith(self.folder.path + os.sep):
                spec = self._find(fullname, directory)
                if spec is not None:
                    return spec
        return None


def stamp_of(path: str) -> Stamp:
    """Modification time, size and inode of a file; None if it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
