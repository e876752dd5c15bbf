"""A job: each bad field is named, and its version follows its definition."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota.errors import Invalid
from rota.model.job import Job
from rota.model.retry import Retry
from rota.model.signature import Parameter, Signature

JOB = Job(name="send", spec={"function": "a:b"}, timeout=timedelta(minutes=10))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("name", "two words", "job name 'two words' is not a valid name"),
        ("queue", "", "job 'send': queue '' is not a valid name"),
        ("priority", 10**7, "job 'send': priority 10000000 must be a whole number"),
        ("priority", "high", "job 'send': priority 'high' must be a whole number"),
        ("concurrency_limit", 0, "job 'send': concurrency_limit 0 must be a whole number from 1"),
        ("concurrency_key", "", "job 'send': concurrency_key '' must be text"),
        ("timeout", "0s", "job 'send': timeout '0s' must be above zero"),
        ("timeout", "long", "job 'send': timeout 'long' is not a duration"),
        ("isolation", "vm", "job 'send': isolation 'vm' is unknown; use thread, process"),
        ("isolation", "proces", "job 'send': isolation .* did you mean 'process'"),
    ],
)
def test_each_bad_field_is_named(field: str, value: object, message: str) -> None:
    with pytest.raises(Invalid, match=f"^{message}"):
        Job(**{"name": "send", field: value})


def test_values_are_brought_into_one_form() -> None:
    job = Job(name="send", timeout="10m", isolation="PROCESS")  # type: ignore[arg-type]
    assert (job.timeout, job.isolation) == (timedelta(minutes=10), "process")


def test_the_same_definition_has_the_same_version() -> None:
    assert replace(JOB).version == JOB.version
    assert JOB.version == "74d7a5ade9aa18ff"


@pytest.mark.parametrize(
    "change",
    [
        {"executor": "sql"},
        {"spec": {"function": "a:c"}},
        {"signature": Signature((Parameter(name="to"),))},
        {"description": "Send it."},
        {"queue": "mail"},
        {"priority": 1},
        {"timeout": None},
        {"retry": Retry(max_attempts=9)},
        {"isolation": "process"},
        {"concurrency_key": "x"},
        {"concurrency_limit": 2},
    ],
)
def test_another_definition_has_another_version(change: dict[str, Any]) -> None:
    assert replace(JOB, **change).version != JOB.version


@pytest.mark.parametrize(
    "change",
    [{"enabled": False}, {"error": "broken"}, {"version_at": datetime(2026, 1, 1, tzinfo=UTC)},
     {"source": "api"}, {"origin": "elsewhere"}],
)  # fmt: skip
def test_what_is_not_the_definition_leaves_the_version(change: dict[str, Any]) -> None:
    assert replace(JOB, **change).version == JOB.version


def test_runs_of_a_job_overlap_as_a_whole() -> None:
    assert JOB.overlap_key == "job send"
