"""What an app knows of its folder of jobs; the room of jobs.d, above it, is where it is made."""

from __future__ import annotations

from typing import Protocol


class JobsFolder(Protocol):
    """The folder of jobs, as its app knows it."""

    def prepare(self) -> None:
        """Run the scripts of initdb.d and startdb.d, once in a life."""

    def load(self, *, again: bool = False, patient: bool = True) -> None:
        """Register what is there, also what changed a moment ago; `again` reads all of it anew.
        Who is not `patient` has Python files whose import is slow a little later."""

    def start(self) -> None:
        """Follow its changes from now on."""

    def stop(self) -> None: ...

    def status(self) -> dict[str, str | None]:
        """The last error of its loop, by name."""

    def faults(self) -> list[str]:
        """What is wrong with its files now."""
