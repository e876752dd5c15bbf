"""The live OpenAPI document, tried out by schemathesis: every route, every check, no finding."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.web.support import Site, serving

RULES = Path(__file__).with_name("schemathesis.toml")
COMMAND = Path(sys.executable).with_name("schemathesis")
# They have no end; test_streams.py is about them. A token that is revoked would end all the rest.
STREAMS = r"(^/events|/stream)$"
NOT_TRIED = r"(^/events|/stream|/tokens/.token.)$"
LARGE = r"/schedules(/.schedule.)?$|/jobs/.job./runs$|/runs/(cancel|redo|delete|pause|resume)$"
# A busy machine is slow, and no finding.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def busy(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    """Something of everything, and somebody who works on it."""
    database = request.getfixturevalue("database") if "database" in request.fixturenames else None
    with serving(tmp_path, database, parts=("scheduler", "worker", "web")) as site:
        for name in ("greet", "broken", "chatty"):
            site.app.enqueue(name)
        site.app.enqueue("greet", delay="1h")
        yield site


def try_out(
    site: Site, *options: str, role: str | None = "admin", examples: int = 1, workers: str = "2"
) -> None:
    shown = [] if role is None else ["-H", f"Authorization: Bearer {site.tokens[role]}"]
    done = subprocess.run(
        [
            COMMAND, "--config-file", RULES, "run", f"{site.url}/api/v1/openapi.json", *shown,
            "--checks", "all", "--max-examples", str(examples), "--seed", "1", "--workers", workers,
            "--generation-database", "none", "--suppress-health-check", "all", "--no-shrink",
            "--request-timeout", "30", "--warnings", "off", "--no-color", *options,
        ],
        capture_output=True,
        text=True,
        cwd=site.app.settings.jobs_folder.absolute().parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    assert "No test cases were generated" not in done.stdout


def test_with_a_token_nothing_is_found(busy: Site) -> None:
    try_out(busy, "--phases", "examples,coverage", "--exclude-path-regex", f"{NOT_TRIED}|{LARGE}")


def test_what_has_a_large_body_is_tried_with_what_fits(busy: Site) -> None:
    """Everything that does not fit is tried too where there is time: in the long test."""
    try_out(busy, "--phases", "examples,coverage", "--mode", "positive",
            "--include-path-regex", LARGE)  # fmt: skip


def test_without_a_token_nothing_is_found(busy: Site) -> None:
    try_out(busy, "--phases", "examples,coverage", "--mode", "positive",
            "--exclude-path-regex", STREAMS, role=None)  # fmt: skip


def test_a_token_that_is_revoked_on_the_way_is_no_finding(busy: Site) -> None:
    try_out(busy, "--include-path-regex", "/tokens/.token.$")


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("role", ["admin", "operator", "viewer", None])
def test_long_and_on_every_engine_nothing_is_found(
    database: str, busy: Site, role: str | None
) -> None:
    # One worker: with more, Python 3.11's parser ends now and then in an error of its own.
    try_out(busy, "--exclude-path-regex", NOT_TRIED, role=role, examples=30, workers="1")
