"""The keys of the body of a job, for executors whose body is not in files or functions."""

from __future__ import annotations

from typing import Final

SHELL_KEYS: Final = ("command", "env", "cwd", "stdin", "ok_codes")
HTTP_KEYS: Final = ("method", "url", "headers", "body", "json", "ok_codes", "redirects")
KEYS: Final = {"shell": SHELL_KEYS, "http": HTTP_KEYS}
# The keys that a folder of jobs adds to every spec.
OF_FILES: Final = ("folder", "files", "version", "params", "tags")
