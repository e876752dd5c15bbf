"""The keys that say what a command or a request is, by executor. Those of SQL and Python are files
and functions."""

from __future__ import annotations

from typing import Final

SHELL_KEYS: Final = ("command", "env", "cwd", "stdin", "ok_codes")
HTTP_KEYS: Final = ("method", "url", "headers", "body", "json", "ok_codes", "redirects")
KEYS: Final = {"shell": SHELL_KEYS, "http": HTTP_KEYS}
# What a folder of jobs adds to every spec.
OF_FILES: Final = ("folder", "files", "version", "params", "tags")
