"""Pages are told with the command line of the surface tests."""

from __future__ import annotations

from tests.surface.conftest import cli

__all__ = ["cli"]
