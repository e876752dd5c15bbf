"""Nouns as `--json` prints them, and what people see comes from: the keys of every surface."""

from rota.model.records import (
    change_record,
    edits_note,
    job_record,
    run_record,
    schedule_record,
)

__all__ = ["change_record", "edits_note", "job_record", "run_record", "schedule_record"]
