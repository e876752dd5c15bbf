"""The folder of jobs as its app sees it; the room of jobs.d, above the app, implements it."""

from __future__ import annotations

from typing import Protocol


class JobsFolder(Protocol):
    """The folder of jobs of an app."""

    def prepare(self) -> None:
        """Run the scripts of initdb.d and startdb.d, once per start of the app."""

    def load(self, *, again: bool = False, patient: bool = True) -> None:
        """Register all jobs, also those that changed a moment ago; `again` reads all files anew.
        Without `patient`, Python files whose import is slow are registered a little later."""

    def start(self) -> None:
        """Watch for changes from now on."""

    def stop(self) -> None: ...

    def status(self) -> dict[str, str | None]:
        """The last error of its loop, by name."""

    def faults(self) -> list[str]:
        """The errors of its files now."""
