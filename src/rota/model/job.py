"""A job: what to do, by name, with its policies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import Any

from rota.errors import Invalid
from rota.model.duration import format_duration, parse_duration
from rota.model.limits import CONCURRENCY, PRIORITY, check_key, check_name, check_whole
from rota.model.policies import ISOLATION, choose
from rota.model.retry import Retry
from rota.model.signature import Signature

# Paths of a file job on this machine. The version is a hash of content only, so it omits them.
PATH_KEYS = frozenset({"folder", "file"})
# Beginning of the error of a job whose files are gone.
RETIRED = "retired: "
# For messages: the file is broken and an earlier version was valid.
LAST_GOOD = "the last good version stays in use"
# For messages: a file is gone without which there is no job.
REMOVED = "the job is removed until then"
DEFAULT_QUEUE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """`spec` is what the executor needs (a function's address, SQL files, a URL): plain JSON."""

    name: str
    executor: str = "python"
    source: str = "code"
    origin: str | None = None
    spec: Mapping[str, Any] = field(default_factory=dict)
    signature: Signature = field(default_factory=Signature)
    description: str = ""
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    timeout: timedelta | None = None
    retry: Retry = field(default_factory=Retry)
    isolation: str = "thread"
    concurrency_key: str | None = None
    concurrency_limit: int = 1
    enabled: bool = True
    error: str | None = None
    version_at: datetime | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "job name")
        try:
            self._check()
        except Invalid as fault:
            raise Invalid(f"job {self.name!r}: {fault}") from None

    def _check(self) -> None:
        check_name(self.queue, "queue")
        check_whole(self.priority, "priority", -PRIORITY, PRIORITY)
        check_whole(self.concurrency_limit, "concurrency_limit", 1, CONCURRENCY)
        if self.concurrency_key is not None:
            check_key(self.concurrency_key, "concurrency_key")
        if self.timeout is not None:
            object.__setattr__(self, "timeout", parse_duration(self.timeout, "timeout"))
        object.__setattr__(self, "isolation", choose(self.isolation, ISOLATION, "isolation"))

    @classmethod
    def from_unreadable_row(cls, fields: Mapping[str, Any], error: str) -> Job:
        """A job from a row that does not pass the checks; missing fields have their defaults."""
        made = cls(name="broken")
        for name, value in {**fields, "error": error}.items():
            object.__setattr__(made, name, value)
        return made

    @property
    def overlap_key(self) -> str:
        """The overlap key of all runs of a file or decorator job, for every schedule of it."""
        return f"job {self.name}"

    @property
    def shared(self) -> bool:
        """True for the SQL job of a CREATE SCHEDULE … AS statement.

        No program or folder defines it, so every worker with its target serves it."""
        return (self.source, self.executor) == ("api", "sql")

    @property
    def retired(self) -> bool:
        """True for a job whose files are gone; its history stays."""
        return self.error is not None and self.error.startswith(RETIRED)

    @property
    def file_path(self) -> str | None:
        """Path of the file or folder of a file job on the machine that registered it."""
        return self.spec.get("file") or self.spec.get("folder")

    @property
    def display_path(self) -> str:
        """The path to show for the file or folder of a file job, such as jobs.d/cleanup.py."""
        path = self.file_path
        if path is None:
            return f"a file of origin {self.origin!r}"
        return "/".join(PurePath(path).parts[-self.name.count("/") - 2 :])

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags that a file gives its job."""
        tags = self.spec.get("tags")
        return tuple(str(tag) for tag in tags) if isinstance(tags, list | tuple) else ()

    @property
    def was_valid(self) -> bool:
        """False for a file job that never had a valid version."""
        return self.error is None or set(self.spec) != {"version"}

    def policies(self) -> dict[str, Any]:
        """The policies that have no column, as JSON for the column `policies`."""
        return {
            **self.retry.to_dict(),
            "isolation": self.isolation,
            "concurrency_key": self.concurrency_key,
            "concurrency_limit": self.concurrency_limit,
        }

    @property
    def version(self) -> str:
        """A hash of the definition: the same text gives the same version on every machine."""
        definition = [
            self.executor, _portable(self.spec), self.signature.to_dict(), self.description,
            self.queue, self.priority, self.timeout and format_duration(self.timeout),
            self.policies(),
        ]  # fmt: skip
        text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _portable(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The spec without paths if it has a `version`, which is the hash of the files."""
    if "version" not in spec:
        return spec
    return {name: value for name, value in spec.items() if name not in PATH_KEYS}
