"""What stands in deploy/ works with this Rota: its commands parse, its options exist, and what it
says of the grace fits."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from rota.cli.main import parse
from rota.config import Settings, load_settings
from rota.errors import Invalid
from rota.model.duration import parse_duration
from tests.surface.conftest import environment

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
UNIT = (DEPLOY / "rota.service").read_text("utf-8")
CONTAINER = (DEPLOY / "Containerfile").read_text("utf-8")
COMPOSE = (DEPLOY / "compose.yaml").read_text("utf-8")
ROTA = "/opt/rota/bin/rota"


def directive(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)


def commands() -> Iterator[list[str]]:
    """Every command of Rota that deploy/ gives, without its name."""
    for line in [*directive("ExecStart"), *directive("ExecStartPre")]:
        program, *rest = shlex.split(line)
        assert program == ROTA
        yield rest
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", CONTAINER, re.MULTILINE)
    assert json.loads(entry) == ["rota"]
    (command,) = re.findall(r"^CMD (.*)$", CONTAINER, re.MULTILINE)
    yield json.loads(command)
    for told in re.findall(r"^ +command: (\[.*\])$", COMPOSE, re.MULTILINE):
        yield json.loads(told)


def test_every_command_is_a_command_with_its_options() -> None:
    found = list(commands())
    assert [words[0] for words in found] == ["up", "migrate", "up", "migrate", "up", "up"]
    for words in found:
        call = parse(words)
        assert call.func.__name__ == words[0]
        assert call.args != (None,) or call.keywords or words in (["up"], ["migrate"])


def test_a_wrong_option_would_be_seen() -> None:
    with pytest.raises(Invalid):
        parse(["up", "--nope"])


def test_the_time_to_stop_is_longer_than_the_grace() -> None:
    grace = load_settings(file=DEPLOY / "rota.toml", environment={}).grace
    assert grace is not None
    (seconds,) = directive("TimeoutStopSec")
    assert float(seconds) > grace.total_seconds()
    (span,) = re.findall(r"stop_grace_period: (\S+)", COMPOSE)
    default = Settings().grace
    assert default is not None
    assert parse_duration(span, "stop_grace_period") > default


def test_signals_and_restarts_are_as_rota_wants_them() -> None:
    assert directive("KillSignal") == ["SIGTERM"]
    assert directive("KillMode") == ["mixed"]  # the first process stops the others itself
    assert directive("Restart") == ["always"]
    assert directive("RestartPreventExitStatus") == ["2"]
    assert "STOPSIGNAL SIGTERM" in CONTAINER


def test_nothing_runs_as_root() -> None:
    assert directive("User") == ["rota"]
    assert directive("NoNewPrivileges") == ["yes"]
    assert directive("ProtectSystem") == ["strict"]
    final = CONTAINER[CONTAINER.rindex("FROM ") :]
    assert re.search(r"^USER [1-9]\d*$", final, re.MULTILINE)
    assert final.index("\nUSER ") < final.index("\nENTRYPOINT ")
    assert "HEALTHCHECK" in final


def test_variables_are_settings() -> None:
    known = {f"ROTA_{one.name.upper()}" for one in fields(Settings)}
    assert set(re.findall(r"\bROTA_[A-Z_]+", COMPOSE + CONTAINER)) <= known


def test_the_composition_is_whole() -> None:
    yaml = pytest.importorskip("yaml")
    told = yaml.safe_load(COMPOSE)
    services = told["services"]
    assert set(services) == {"database", "migrate", "rota", "worker"}
    for name in ("migrate", "rota", "worker"):
        service = services[name]
        assert service["environment"]["ROTA_DATABASE"].startswith("postgresql://rota:")
        assert service["init"] is True
        assert service["depends_on"]["database"] == {"condition": "service_healthy"}
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()
    assert services["rota"]["ports"] == ["127.0.0.1:7682:7682"]
    assert "POSTGRES_PASSWORD:?" in COMPOSE  # none that everybody knows


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_the_lines_for_one_container_lead_to_a_process_that_starts(tmp_path: Path) -> None:
    """What follows the name of the image, in a folder that is as empty as a new volume."""
    lines = re.sub(r"\\\n#", "", CONTAINER).splitlines()
    found = [
        shlex.split(line.partition(" rota ")[2] or "up", comments=True)
        for line in lines
        if line.startswith("#   docker run")
    ]
    (host,) = re.findall(r"ROTA_HOST=(\S+)", CONTAINER)
    *before, last = [words for words in found if words]
    assert [words[0] for words in before] == ["migrate", "token"]
    assert last == ["up"]
    env = {**environment(), "ROTA_HOST": host}
    rota = [sys.executable, "-m", "rota"]
    for words in before:
        subprocess.run([*rota, *words], cwd=tmp_path, env=env, check=True, capture_output=True)
    with subprocess.Popen(
        [*rota, "up", "--port", "0", "--json"],
        cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        screen = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
        process.terminate()
        process.stdout.read()
    assert screen["web"]["url"]
    assert process.returncode == 0


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    # Verify looks for the program, which is not installed there.
    unit = tmp_path / "rota.service"
    unit.write_text(UNIT.replace(ROTA, "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
