"""Log lines and progress of running handlers, gathered here and written a few times a second."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import msgspec

from rota.errors import Unavailable
from rota.model.limits import LOG_LINE_LENGTH, LOG_LINES
from rota.model.redact import redact_json, shorten
from rota.model.run import ClaimedRun
from rota.model.secrets import NO_SECRETS, Secrets
from rota.storage import operations
from rota.storage.operations.claiming import LogLine
from rota.storage.store import Store

FLUSH_SECONDS = 0.3


class Notes:
    def __init__(self, store: Store) -> None:
        self.store = store
        self._guard = threading.Lock()
        self._lines: list[LogLine] = []
        self._progress: dict[tuple[int, int], str] = {}
        self._counts: Counter[tuple[int, int]] = Counter()

    def log(self, run: ClaimedRun, line: dict[str, Any], secrets: Secrets = NO_SECRETS) -> None:
        key = (run.seq, run.attempt)
        with self._guard:
            self._counts[key] += 1
            count = self._counts[key]
        if count > LOG_LINES + 1:
            return
        text, level = line["text"], line["level"]
        if count == LOG_LINES + 1:
            text, level = f"more than {LOG_LINES:,} lines; the rest is not kept", "WARNING"
        told = LogLine(
            run_seq=run.seq,
            attempt=run.attempt,
            at=datetime.fromtimestamp(line["at"], UTC),
            level=level,
            text=shorten(text, LOG_LINE_LENGTH, secrets),
        )
        with self._guard:
            self._lines.append(told)

    def progress(self, run: ClaimedRun, params: dict[str, Any]) -> None:
        with self._guard:
            self._progress[run.seq, run.attempt] = redact_json(msgspec.json.encode(params).decode())

    def ended(self, run: ClaimedRun) -> None:
        if self._counts:  # most handlers say nothing
            with self._guard:
                self._counts.pop((run.seq, run.attempt), None)

    def step(self) -> float:
        with self._guard:
            lines, self._lines = self._lines, []
            progress, self._progress = self._progress, {}
        try:
            if lines:
                self.store.write(operations.insert_logs, lines)
                lines = []
            for (seq, attempt), told in progress.items():
                self.store.write(operations.set_progress, seq, attempt, told)
        except Exception as fault:
            with self._guard:
                self._lines = (lines + self._lines)[:LOG_LINES]
                if isinstance(fault, Unavailable):  # told once more, what was told since wins
                    self._progress = progress | self._progress
            raise
        return FLUSH_SECONDS
