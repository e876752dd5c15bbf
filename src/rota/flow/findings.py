"""What an examination found: one line for each thing that was looked at."""

from __future__ import annotations

from dataclasses import dataclass

# `warning`: worth to know, and nothing has to be done today. `problem`: something does not work.
OK, WARNING, PROBLEM = "ok", "warning", "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`check` is what was looked at; `fix` is what to do, None where all is well."""

    check: str
    status: str
    says: str
    fix: str | None = None


def ok(check: str, says: str) -> Finding:
    return Finding(check=check, status=OK, says=says)


def warning(check: str, says: str, fix: str) -> Finding:
    return Finding(check=check, status=WARNING, says=says, fix=fix)


def problem(check: str, says: str, fix: str) -> Finding:
    return Finding(check=check, status=PROBLEM, says=says, fix=fix)
