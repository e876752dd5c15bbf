"""The health check of the container, beside real processes: plain, with a certificate, a worker."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.surface.conftest import environment
from tests.surface.test_up import Up

CHECK = Path(__file__).resolve().parents[2] / "deploy" / "healthcheck.py"


def check(process: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CHECK), str(process)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )


@contextmanager
def up(*args: str) -> Iterator[Up]:
    process = Up(*args)
    try:
        yield process
    finally:
        process.stop()


def free_port() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_process_that_answers_is_healthy_until_it_answers_no_more() -> None:
    with up("--port", free_port(), "--json") as process:
        read_screen(process)
        assert check(process.process.pid).returncode == 0
        process.process.send_signal(signal.SIGSTOP)
        try:
            failed = check(process.process.pid)
        finally:
            process.process.send_signal(signal.SIGCONT)
    assert failed.returncode == 1
    assert failed.stderr.startswith("not healthy: ")
    assert "Traceback" not in failed.stderr


def test_a_process_with_a_certificate_is_asked_over_tls(folder: Path) -> None:
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out",
         "cert.pem", "-days", "1", "-subj", "/CN=rota.example"],
        cwd=folder, capture_output=True,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("no openssl to make a certificate with")
    (folder / "rota.toml").write_text(f"port = {free_port()}\n")
    with up("--tls-certificate=cert.pem", "--tls-key", "key.pem", "--json") as process:
        read_screen(process)
        assert check(process.process.pid).returncode == 0


def test_a_worker_that_listens_nowhere_is_healthy() -> None:
    with up("--only", "worker,scheduler", "--json") as process:
        read_screen(process)
        assert check(process.process.pid).returncode == 0


def test_no_process_is_not_healthy() -> None:
    assert check(2**22 + 1).returncode == 1


def read_screen(process: Up) -> None:
    """The screen comes when the address is taken; it ends with the object that --json prints."""
    assert process.process.stdout is not None
    for line in process.process.stdout:
        if line == "}\n":
            return
    raise AssertionError(process.lines)
