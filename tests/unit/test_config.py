"""Settings: which place wins, what is unknown, and what each bad value is told."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rota import config
from rota.app import Rota
from rota.config import (
    Executors,
    Scheduler,
    Settings,
    Switch,
    load_settings,
    make_settings,
    stray_variables,
)
from rota.errors import Invalid


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rota.toml"


def test_what_is_said_nowhere_is_one_file_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_settings(environment={}) == Settings()
    assert Settings().database == "sqlite:///rota.db"
    assert (Settings().slots, Settings().lease, Settings().max_lost) == (10, timedelta(0, 30), 3)
    assert Settings().grace == timedelta(seconds=30)
    assert Settings().scheduler == Scheduler(enabled=True, pace=timedelta(0, 60))


@pytest.mark.parametrize(
    ("name", "in_file", "in_environment", "as_flag", "values"),
    [
        ("slots", "slots = 1", "2", 3, (1, 2, 3)),
        (
            "database", "database = 'sqlite:///a'", "sqlite:///b", "sqlite:///c",
            ("sqlite:///a", "sqlite:///b", "sqlite:///c"),
        ),
        (
            "lease", "lease = '10s'", "20s", 30,
            (timedelta(0, 10), timedelta(0, 20), timedelta(0, 30)),
        ),
        ("queues", "queues = ['a', 'b']", "c, d,", ["e"], (("a", "b"), ("c", "d"), ("e",))),
        ("timezone", "timezone = 'Asia/Tokyo'", "Europe/Berlin", "UTC",
         ("Asia/Tokyo", "Europe/Berlin", "UTC")),
        ("grace", "grace = '5s'", "none", "0s", (timedelta(0, 5), None, timedelta(0))),
        ("max_lost", "max_lost = 1", "2", 3, (1, 2, 3)),
        ("keep_last", "keep_last = 1", "2", 0, (1, 2, 0)),
        ("schema", "schema = 'a'", "b", "c", ("a", "b", "c")),
        ("origin", "origin = 'a'", "b", "c", ("a", "b", "c")),
    ],
)  # fmt: skip
def test_flags_win_over_the_environment_over_the_file(
    file: Path, name: str, in_file: str, in_environment: str, as_flag: object, values: Any
) -> None:
    file.write_text(in_file)
    told = {f"ROTA_{name.upper()}": in_environment}
    seen = (
        load_settings(file=file, environment={}),
        load_settings(file=file, environment=told),
        load_settings({name: as_flag}, file=file, environment=told),
    )
    assert tuple(getattr(settings, name) for settings in seen) == values


def test_a_flag_that_was_not_given_changes_nothing(file: Path) -> None:
    file.write_text("slots = 5")
    assert load_settings({"slots": None}, file=file, environment={}).slots == 5


def test_the_file_in_this_folder_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rota.toml").write_text("slots = 7")
    monkeypatch.chdir(tmp_path)
    assert load_settings(environment={}).slots == 7


def test_tables_of_the_file(file: Path) -> None:
    file.write_text(
        "[retention]\nsucceeded = '1d'\n[scheduler]\nenabled = false\npace = '5s'\n"
        "max_fires_per_tick = 9\nstart_delay = '1s'"
    )
    settings = load_settings(file=file, environment={})
    assert settings.retention == {
        "succeeded": timedelta(1), "dead": timedelta(30), "cancelled": timedelta(7),
    }  # fmt: skip
    assert settings.scheduler == Scheduler(
        enabled=False, pace=timedelta(0, 5), max_fires_per_tick=9, start_delay=timedelta(0, 1)
    )


def write(file: Path, text: str, *, seconds_ago: float = 60.0) -> None:
    """A file that was changed long ago is whole."""
    file.write_text(text)
    at = time.time() - seconds_ago
    os.utime(file, (at, at))


def test_the_scheduler_is_switched_by_its_file(
    file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "SETTLED_SECONDS", 60.0)  # however slowly this test goes on
    write(file, "[scheduler]\nenabled = true", seconds_ago=100)
    enabled = Switch(True, file)
    assert enabled()
    write(file, "[scheduler]\nenabled = false", seconds_ago=90)
    assert not enabled()
    assert "the scheduler is off now" in caplog.text
    write(file, "[scheduler]\nenabled = tr", seconds_ago=80)
    assert not enabled()
    assert "the scheduler stays off" in caplog.text
    write(file, "", seconds_ago=0)
    assert not enabled(), "it may be half written"
    write(file, "", seconds_ago=70)
    assert enabled(), "as without the setting"
    write(file, "[scheduler]\nenabled = false", seconds_ago=65)
    assert not enabled()
    file.unlink()
    monkeypatch.setattr(config, "SETTLED_SECONDS", 0.0)
    assert not enabled(), "nobody said that it may"
    assert f"{file} does not exist" in caplog.text


def test_what_the_program_says_is_not_switched_by_a_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    assert Rota("sqlite://:memory:").settings_file == file
    assert Rota("sqlite://:memory:", scheduler={"enabled": False}).settings_file is None
    assert not Switch(False, None)()


def test_executors_are_switched_on_one_by_one(file: Path) -> None:
    assert Settings().executors == Executors(shell=False, http=False, http_allow=())
    file.write_text("[executors]\nshell = true\nhttp_allow = ['10.0.0.0/8', '[::1]:8080']")
    told = {"ROTA_EXECUTORS_HTTP": "1"}
    settings = load_settings(file=file, environment=told)
    assert settings.executors == Executors(
        shell=True, http=True, http_allow=("10.0.0.0/8", "[::1]:8080")
    )
    told = {"ROTA_EXECUTORS_SHELL": "0", "ROTA_EXECUTORS_HTTP_ALLOW": "127.0.0.1:80, ::1"}
    flags = {"executors": {"http": True}}
    settings = load_settings(flags, file=file, environment=told)
    assert settings.executors == Executors(http=True, http_allow=("127.0.0.1:80", "::1"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slotz = 1", "setting 'slotz' is unknown; did you mean 'slots'?"),
        ("zzz = 1", "setting 'zzz' is unknown; known are "),
        ("[scheduler]\npase = '1s'", "setting 'scheduler.pase' is unknown; did you mean 'pace'?"),
        ("[executors]\nshel = true", "setting 'executors.shel' is unknown; did you mean 'shell'?"),
        ("[retention]\nfailed = '1d'", "retention of 'failed' is unknown; use succeeded, dead"),
    ],
)
def test_unknown_names_are_refused_with_a_suggestion(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(Invalid) as caught:
        load_settings(file=file, environment={})
    assert str(caught.value).removeprefix(f"{file}: ").startswith(message)


IN_FILE = "there is no variable for it: write it into rota.toml, "


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("ROTA_SLOTT", "did you mean ROTA_SLOTS?"),
        ("ROTA_DATABASE_URL", "did you mean ROTA_DATABASE?"),
        ("ROTA_EXECUTORS_SHEL", "did you mean ROTA_EXECUTORS_SHELL?"),
        ("ROTA_SCHEDULER_PACE", IN_FILE + "[scheduler] pace = …"),
        ("ROTA_SCHEDULER__ENABLE", IN_FILE + "[scheduler] enabled = …"),
        ("ROTA_RETENTION_DEAD", IN_FILE + "[retention] dead = …"),
        ("ROTA_RETENTION", IN_FILE + "[retention] …"),
        ("ROTA_EXECUTORS", IN_FILE + "[executors] …"),
        ("ROTA_TARGETS_SHOP", IN_FILE + "[targets] shop = …"),
    ],
)  # fmt: skip
def test_a_variable_that_was_meant_as_a_setting_is_refused(file: Path, name: str, fix: str) -> None:
    file.write_text("")
    with pytest.raises(Invalid) as caught:
        load_settings(file=file, environment={name: "3"})
    assert str(caught.value) == f"variable {name} sets nothing; {fix}"


def test_variables_of_others_change_nothing_and_are_told(file: Path) -> None:
    file.write_text("")
    ours = dict.fromkeys(
        ["ROTA_RUN_ID", "ROTA_JOB_NAME", "ROTA_ATTEMPT", "ROTA_SCHEDULED_AT", "ROTA_ARGS"], "x"
    )
    others = {
        "ROTA_SERVICE_HOST": "10.0.0.1",  # Kubernetes, for a service called rota
        "ROTA_SERVICE_PORT": "80",
        "ROTA_PORT_7682_TCP_ADDR": "10.0.0.1",
        "ROTA_SCHEDULER_PORT": "tcp://10.0.0.2:80",  # and for one called rota-scheduler
        "ROTA_CRASH_AT": "x",
        "ROTA_TOKEN": "secret",
    }
    assert load_settings(file=file, environment={**ours, **others, "PATH": "/bin"}) == Settings()
    assert [one.name for one in stray_variables({**ours, **others})] == sorted(others)
    assert stray_variables({"ROTA_TEST_SEEDS": "5"}) == []


@pytest.mark.parametrize("protocol", ["tcp", "udp", "sctp"])
def test_what_kubernetes_makes_for_a_service_called_rota_sets_nothing(
    file: Path, protocol: str
) -> None:
    link, kind = f"{protocol}://10.0.0.1:7682", protocol.upper()
    made = {
        "ROTA_SERVICE_HOST": "10.0.0.1",
        "ROTA_SERVICE_PORT": "7682",
        "ROTA_SERVICE_PORT_HTTP": "7682",
        "ROTA_PORT": link,
        f"ROTA_PORT_7682_{kind}": link,
        f"ROTA_PORT_7682_{kind}_PROTO": protocol,
        f"ROTA_PORT_7682_{kind}_PORT": "7682",
        f"ROTA_PORT_7682_{kind}_ADDR": "10.0.0.1",
    }
    file.write_text("port = 8000\n")
    assert load_settings(file=file, environment=made).port == 8000
    assert load_settings({"port": 9000}, file=file, environment=made).port == 9000
    told = {one.name: one for one in stray_variables(made)}
    assert sorted(told) == sorted(made)
    assert "enableServiceLinks: false" in told["ROTA_PORT"].fix


def test_a_port_that_is_none_is_refused_where_somebody_set_it(file: Path) -> None:
    file.write_text("")
    assert load_settings(file=file, environment={"ROTA_PORT": "80"}).port == 80
    assert stray_variables({"ROTA_PORT": "80"}) == []
    for value in ("http://10.0.0.1:80", "tcp", ""):
        with pytest.raises(Invalid, match=r"port .* must be a whole number"):
            load_settings(file=file, environment={"ROTA_PORT": value})
    with pytest.raises(Invalid, match=r"port .* must be a whole number"):
        load_settings({"port": "tcp://10.0.0.1:80"}, file=file, environment={})
    with pytest.raises(Invalid, match="default_target"):
        load_settings(file=file, environment={"ROTA_DEFAULT_TARGET": "tcp://10.0.0.1:80"})


BAD = [
    ({"slots": 0}, "slots 0 must be a whole number from 1 to 10000"),
    ({"slots": "many"}, "slots 'many' must be a whole number"),
    ({"slots": True}, "slots True must be a whole number"),
    ({"slots": 2.5}, "slots 2.5 must be a whole number"),
    ({"max_lost": -1}, "max_lost -1 must be a whole number from 1"),
    ({"keep_last": "-1"}, "keep_last '-1' must be a whole number"),
    ({"database": "rota.db"}, "database 'rota.db' is not a URL; use sqlite:///rota.db or"),
    ({"database": 5}, "database 5 is not a URL"),
    ({"schema": "a b"}, "schema 'a b' is not a plain name; use up to 48 lower-case letters"),
    ({"schema": "pg_x"}, "schema 'pg_x' is not a plain name"),
    ({"schema": "x; DROP TABLE y"}, "schema 'x; DROP TABLE y' is not a plain name"),
    ({"schema": 5}, "schema 5 is not a plain name"),
    ({"origin": "a b"}, "origin 'a b' is not a valid name"),
    ({"timezone": "Mars/Olympus"}, "timezone 'Mars/Olympus' is unknown"),
    ({"timezone": 5}, "timezone 5 must be text, such as 'Europe/Berlin'"),
    ({"queues": 5}, "queues 5 must be names, such as"),
    ({"queues": [5]}, "queue 5 is not a valid name"),
    ({"queues": "a b"}, "queue 'a b' is not a valid name"),
    ({"lease": "soon"}, "lease 'soon' is not a duration; use text like"),
    ({"lease": "500ms"}, "lease 500ms must be at least 1s"),
    ({"grace": "never"}, "grace 'never' is not a duration"),
    ({"executors": 5}, r"executors is a table, such as \[executors\] shell = true"),
    ({"executors": {"shell": "maybe"}}, "executors.shell 'maybe' must be true or false"),
    ({"executors": {"shell": 1}}, "executors.shell 1 must be true or false"),
    ({"executors": {"http_allow": 5}}, "executors.http_allow 5 must be a list"),
    ({"executors": {"http_allow": ["example.org"]}}, "executors.http_allow: 'example.org' is not"),
    ({"executors": {"http_allow": ["10.0.0.1/8"]}}, "executors.http_allow: '10.0.0.1/8' is not"),
    ({"executors": {"http_allow": ["10.0.0.1:0"]}}, "executors.http_allow: '10.0.0.1:0' is not"),
    ({"executors": {"http_allow": [5]}}, "executors.http_allow: 5 is not an address"),
    ({"retention": 5}, r"retention is a table, such as \[retention\] succeeded = '7d'"),
    ({"retention": {"dead": "x"}}, "retention.dead 'x' is not a duration"),
    ({"scheduler": 5}, r"scheduler is a table, such as \[scheduler\] pace = '60s'"),
    ({"scheduler": {"pace": 0}}, "scheduler.pace 0 must be above zero"),
    ({"scheduler": {"enabled": "yes"}}, "scheduler.enabled 'yes' must be true or false"),
    ({"scheduler": {"max_fires_per_tick": -1}}, "scheduler.max_fires_per_tick -1 must be a whole"),
    ({"scheduler": {"start_delay": -1}}, "scheduler.start_delay -1 must be zero or more"),
]


@pytest.mark.parametrize(("told", "message"), BAD)
def test_each_bad_value_is_named(told: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=f"^{message}"):
        make_settings(told)


def test_a_file_that_is_not_toml_is_named_with_the_place(file: Path) -> None:
    file.write_text("slots = 1\nslots == 2\n")
    with pytest.raises(Invalid) as caught:
        load_settings(file=file, environment={})
    assert f"settings file {file} is not valid TOML" in str(caught.value)
    assert "line 2" in str(caught.value)


def test_a_file_that_is_not_text_is_named(file: Path) -> None:
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Invalid, match=r"settings file .*rota\.toml cannot be read"):
        load_settings(file=file, environment={})


def test_a_file_that_was_asked_for_must_exist(file: Path) -> None:
    with pytest.raises(Invalid, match=r"settings file .*rota\.toml does not exist"):
        load_settings(file=file, environment={})


def test_a_bad_value_in_the_environment_is_named(file: Path) -> None:
    file.touch()
    with pytest.raises(Invalid, match=r"^slots 'x' must be a whole number$"):
        load_settings(file=file, environment={"ROTA_SLOTS": "x"})


def test_other_variables_of_the_environment_are_left_alone(file: Path) -> None:
    file.touch()
    told = {"ROTA_TEST_POSTGRES_URL": "x", "SLOTS": "5", "rota_slots": "x", "PATH": "y"}
    assert load_settings(file=file, environment=told) == Settings()
