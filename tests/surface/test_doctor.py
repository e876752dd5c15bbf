"""Every ill that `rota doctor` knows, planted for real in a real store: it is found, with its fix.

What takes time to go wrong is written by a store whose clock is behind: the rows are as old as they
would be, and nobody waits.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

import rota
from rota.flow import doctor, doctor_store
from rota.flow.home import adopt, check_home
from rota.flow.worker import tzdata_version
from rota.life import open_local_socket
from rota.model.job import Job
from rota.model.schedule import Schedule
from rota.storage import operations
from rota.storage.operations import installation as facts
from rota.storage.operations.audit import Actor
from rota.storage.operations.firing import Broken
from rota.storage.store import Store, open_store
from rota.version import VERSION
from tests.conformance.support import claim_one, enqueue
from tests.support.postgres import Server
from tests.surface.conftest import Cli, shop

ME = Actor(by="ada", via="test")
LONG_AGO = timedelta(hours=2)


@dataclass
class Patient:
    """A store with the job `job`, in which ills can be planted."""

    url: str
    cli: Cli

    def open(self, ago: timedelta = timedelta(0)) -> Store:
        """As a process saw it that far in the past; negative is the future."""
        return open_store(self.url, clock=lambda: datetime.now(UTC) - ago)

    def plant(self, ill: Callable[[Store], object], ago: timedelta = timedelta(0)) -> None:
        store = self.open(ago)
        try:
            ill(store)
        finally:
            store.close()

    def findings(self, check: str | None = None) -> list[dict[str, Any]]:
        answer = self.cli("doctor", "--json")
        told = json.loads(answer.out)
        problems = any(one["status"] == "problem" for one in told["findings"])
        assert answer.code == (1 if problems else 0), answer.err
        assert told["ok"] is not problems
        assert all((one["fix"] is None) == (one["status"] == "ok") for one in told["findings"])
        return [one for one in told["findings"] if check in (None, one["check"])]

    def worse(self, check: str) -> dict[str, Any]:
        """The one finding of this check that is not ok."""
        (found,) = [one for one in self.findings(check) if one["status"] != "ok"]
        return found


def worker(store: Store, **told: object) -> None:
    """The row of a worker that is alive and knows the job."""
    row = {
        "id": "w-1", "host": "here", "pid": 1, "version": VERSION, "tzdata": tzdata_version(),
        "origin": None, "jobs": '["job"]', "queues": "[]", "slots": 4, "stuck": 0, **told,
    }  # fmt: skip
    store.write(operations.put_worker, row)


def put_schedule(store: Store, name: str = "often", **options: Any) -> Schedule:
    told = {"job": "job", "kind": "every", "expr": "10s", **options}
    return store.write(operations.put_schedule, Schedule(name=name, **told), ME)


@pytest.fixture(scope="session")
def migrated(postgres_server: Server) -> Iterator[str]:
    with postgres_server.database() as url:
        store = open_store(url)
        store.migrate()
        store.close()
        yield url


@pytest.fixture
def postgres(
    cli: Cli, postgres_server: Server, migrated: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Patient]:
    with postgres_server.database(template=migrated) as url:
        monkeypatch.setenv("ROTA_DATABASE", url)
        patient = Patient(url, cli)
        patient.plant(lambda store: adopt(store, None, ME))  # a copy of another one
        patient.plant(lambda store: store.write(operations.put_jobs, [Job(name="job")]))
        yield patient


@pytest.fixture
def sqlite(cli: Cli) -> Patient:
    patient = Patient("sqlite:///rota.db", cli)
    patient.plant(
        lambda store: (store.migrate(), store.write(operations.put_jobs, [Job(name="job")]))
    )
    return patient


@pytest.fixture(params=["sqlite", "postgres"])
def patient(request: pytest.FixtureRequest) -> Patient:
    found: Patient = request.getfixturevalue(request.param)
    return found


def test_a_healthy_store_is_well(patient: Patient) -> None:
    patient.plant(worker)
    patient.plant(put_schedule)
    found = patient.findings()
    assert [one for one in found if one["status"] == "problem"] == []
    looked = {one["check"] for one in found}
    assert looked >= {
        "settings", "database", "home", "clock", "zones", "versions", "dispatch", "workers",
        "scheduler", "leases", "queues", "jobs", "schedules", "address",
    }  # fmt: skip
    own = {"wal", "disk", "modes"}
    server = {"connections", "vacuum", "transactions"}
    assert looked >= (own if patient.url.startswith("sqlite") else server)
    assert looked & (server if patient.url.startswith("sqlite") else own) == set()


def test_people_see_the_fix(patient: Patient) -> None:
    patient.plant(lambda store: store.write(operations.set_dispatch, False, "moving\nhouse", ME))
    answer = patient.cli("doctor")
    assert answer.code == 1
    (line,) = [one for one in answer.out.splitlines() if one.startswith("problem")]
    assert line.split(None, 2) == [
        "problem", "dispatch", "paused by ada: moving\\nhouse: no process begins a run"
    ]  # fmt: skip
    assert "fix: rota resume --dispatch\n" in answer.out
    assert "1 problem, " in answer.err


def test_work_without_a_worker(patient: Patient) -> None:
    assert patient.worse("workers")["status"] == "warning"
    patient.plant(put_schedule)
    found = patient.worse("workers")
    assert found["says"] == "none is alive; nothing waits now, and schedules will make runs"
    patient.plant(enqueue)
    found = patient.worse("workers")
    assert (found["status"], found["fix"]) == ("problem", "rota up [MODULE:APP]")
    assert found["says"] == "none is alive, and 1 run waits"


def test_a_worker_that_went_away(patient: Patient) -> None:
    patient.plant(worker)
    patient.plant(lambda store: worker(store, id="w-2"), ago=timedelta(minutes=5))
    assert "1 worker went away" in patient.worse("workers")["says"]


def test_a_worker_whose_slots_are_stuck(patient: Patient) -> None:
    patient.plant(lambda store: worker(store, stuck=2))
    found = patient.worse("workers")
    assert "ignore their timeout" in found["says"]
    assert "isolation" in found["fix"]


def test_versions_and_zones_that_differ(patient: Patient) -> None:
    patient.plant(lambda store: worker(store, version="0.0.1", tzdata="1999a"))
    assert "0.0.1" in patient.worse("versions")["says"]
    found = patient.worse("zones")
    assert (found["status"], "1999a" in found["says"]) == ("problem", True)


def test_a_clock_that_is_wrong(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong:
        @staticmethod
        def time() -> float:
            return (datetime.now(UTC) + timedelta(minutes=7)).timestamp()

    monkeypatch.setattr(facts, "time", Wrong)
    assert patient.worse("clock")["says"] == (
        "the clock of the database is 7m behind that of this machine"
    )


def test_a_process_whose_clock_is_ahead(patient: Patient) -> None:
    patient.plant(worker, ago=timedelta(minutes=-5))
    assert "w-1 wrote with a clock that is ahead" in patient.worse("clock")["says"]


def test_a_schedule_that_nobody_fires(patient: Patient) -> None:
    patient.plant(lambda store: put_schedule(store, expr="1m"), ago=LONG_AGO)
    found = patient.worse("scheduler")
    assert "a schedule is due since 1h59m" in found["says"]
    assert "--only scheduler" in found["fix"]


def test_a_run_that_nobody_promotes(patient: Patient) -> None:
    later = datetime.now(UTC) - timedelta(hours=1)
    patient.plant(lambda store: enqueue(store, due_at=later), ago=LONG_AGO)
    assert "a run is due since 1h" in patient.worse("scheduler")["says"]


def test_a_lease_that_nobody_takes_over(patient: Patient) -> None:
    patient.plant(lambda store: (enqueue(store), claim_one(store)), ago=LONG_AGO)
    found = patient.worse("leases")
    assert found["says"].startswith("1 run of workers that are gone, the first since 1h59m")


def test_a_queue_that_nobody_serves(patient: Patient) -> None:
    patient.plant(lambda store: worker(store, queues='["mail"]'))
    patient.plant(enqueue)
    found = patient.worse("queues")
    assert found["says"] == "queue default: 1 run waiting, and no live worker serves it"
    assert found["fix"] == "rota up --queue default"


def test_a_queue_that_is_paused(patient: Patient) -> None:
    patient.plant(
        lambda store: (enqueue(store), store.write(operations.pause_queue, "default", None, ME))
    )
    found = patient.worse("queues")
    assert (found["status"], found["fix"]) == ("warning", "rota resume --queue default")


def test_a_queue_that_does_not_keep_up(patient: Patient) -> None:
    patient.plant(worker)
    patient.plant(enqueue, ago=LONG_AGO)
    found = patient.worse("queues")
    assert "the oldest since 2h" in found["says"]
    assert "--slots" in found["fix"]


def test_a_queue_of_a_broken_job_needs_no_slots(patient: Patient) -> None:
    patient.plant(lambda store: worker(store, jobs='["other"]'))
    patient.plant(
        lambda store: store.write(
            operations.put_jobs, [Job(name="job", error="jobs.d/x.py: line 3: no")]
        )
    )
    patient.plant(enqueue, ago=LONG_AGO)
    assert patient.findings("jobs")[0]["says"] == "job job: jobs.d/x.py: line 3: no"
    assert [one["status"] for one in patient.findings("queues")] == ["ok"]


def test_a_broken_job(patient: Patient) -> None:
    patient.plant(
        lambda store: store.write(
            operations.put_jobs, [Job(name="job", error="jobs.d/x.py: line 3: no")]
        )
    )
    found = patient.worse("jobs")
    assert found["says"] == "job job: jobs.d/x.py: line 3: no"


def put_file(store: Store) -> None:
    store.write(operations.put_jobs, [Job(name="gone", source="file", origin="jobs.d")])


def retire(store: Store) -> None:
    """As a folder does when the files of the job are gone."""
    assert store.write(operations.retire_job, "gone", "jobs.d", None, ME, live_seconds=30)


def test_a_job_whose_files_were_removed_is_no_problem(patient: Patient) -> None:
    patient.plant(put_file)
    patient.plant(retire)
    (found,) = patient.findings("jobs")
    assert (found["status"], found["says"]) == ("ok", "1 job, none broken; 1 retired")
    assert [one["name"] for one in patient.cli("jobs", "--json").json] == ["job"]
    (gone,) = patient.cli("jobs", "--status", "retired", "--json").json
    assert gone["name"] == "gone"
    assert "retired: " in patient.cli("show", "gone").out


def test_what_waits_for_a_job_whose_files_were_removed(patient: Patient) -> None:
    patient.plant(put_file)
    patient.plant(lambda store: put_schedule(store, job="gone"))
    patient.plant(lambda store: enqueue(store, job="gone"))
    patient.plant(retire)
    queued, schedule = (one for one in patient.findings("jobs") if one["status"] == "warning")
    assert queued["says"] == "runs of job gone wait, and its files are gone"
    assert schedule["says"] == "schedule often makes runs of job gone, whose files are gone"
    for found in (queued, schedule):  # the fixes work
        fix = found["fix"].split(", ")[0].split()[1:]
        assert patient.cli(*fix, *(["--yes"] if "--all" in fix else [])).code == 0
    assert [one["status"] for one in patient.findings("jobs")] == ["ok"]


def test_a_job_that_no_worker_knows(patient: Patient) -> None:
    patient.plant(lambda store: worker(store, jobs='["other"]'))
    assert patient.worse("jobs")["status"] == "warning"
    patient.plant(put_schedule)
    found = patient.worse("jobs")
    assert (found["status"], "no live worker knows job" in found["says"]) == ("problem", True)
    assert found["fix"].endswith("or drop what is not wanted any more: rota drop often")


def test_a_broken_schedule(patient: Patient) -> None:
    def park(store: Store) -> None:
        made = put_schedule(store)
        assert made.next_fire_at is not None
        store.write(
            operations.disable_broken_schedules,
            [Broken(made.id, made.next_fire_at, 0, "it goes back in time")],
        )

    patient.plant(park)
    assert patient.worse("schedules")["says"] == "schedule often: it goes back in time"


def test_a_schedule_without_its_job(patient: Patient) -> None:
    patient.plant(lambda store: put_schedule(store, job="gone"))
    assert "the job of often does not exist" in patient.worse("schedules")["says"]


def test_a_store_that_was_moved(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    homes: list[str] = []
    patient.plant(lambda store: check_home(store, "berlin"))
    monkeypatch.setenv("ROTA_CLUSTER", "paris")
    found = patient.worse("home")
    assert "cluster was berlin, is paris" in found["says"]
    patient.plant(lambda store: homes.append(store.read(operations.meta)["cluster"]))
    assert homes == ["berlin"]  # looking changed nothing


def test_an_address_without_a_token(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_HOST", "0.0.0.0")
    found = patient.worse("address")
    assert "there is no token: it will not start" in found["says"]
    assert patient.cli(*found["fix"].split(", ")[0].split()[1:]).code == 0  # the fix works
    assert [one["status"] for one in patient.findings("address")] == ["ok"]


def test_an_address_without_tls(sqlite: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sqlite.findings("tls") == []
    monkeypatch.setenv("ROTA_HOST", "0.0.0.0")
    found = sqlite.worse("tls")
    assert (found["status"], "unencrypted" in found["says"]) == ("warning", True)
    assert "behind a proxy with TLS, or set tls_certificate" in found["fix"]
    monkeypatch.setenv("ROTA_TLS_CERTIFICATE", "here.pem")
    assert [one["status"] for one in sqlite.findings("tls")] == ["ok"]


# SQLite and its files


def test_a_store_that_others_can_write(sqlite: Patient) -> None:
    os.chmod("rota.db", 0o666)
    found = sqlite.worse("modes")
    assert (found["status"], "mode 0666" in found["says"]) == ("problem", True)
    assert found["fix"].startswith("chmod go-w ")


def test_a_store_that_others_can_read(sqlite: Patient, tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o755)
    os.chmod("rota.db", 0o644)
    assert sqlite.worse("modes")["status"] == "warning"
    os.chmod("rota.db", 0o600)
    assert [one["status"] for one in sqlite.findings("modes")] == ["ok"]


def test_a_log_that_cannot_be_cut_back(sqlite: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_store, "WAL_BYTES", 10_000)
    reader = sqlite3.connect("rota.db")
    try:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM _rota_runs").fetchone()
        sqlite.plant(lambda store: [enqueue(store) for _ in range(20)])
        assert "the write-ahead log holds" in sqlite.worse("wal")["says"]
    finally:
        reader.close()


def test_a_disk_that_is_nearly_full(sqlite: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_store, "FREE_BYTES", 2**62)
    assert "are free" in sqlite.worse("disk")["says"]


def test_files_with_secrets_that_others_can_open(
    sqlite: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(".rota").mkdir()
    Path(".rota/token").write_text("secret")
    os.chmod(".rota/token", 0o644)
    found = sqlite.worse("token")
    assert (found["status"], found["fix"].split(";")[0]) == ("problem", "chmod 600 .rota/token")
    assert "secret" not in found["says"]
    os.chmod(".rota/token", 0o600)
    assert [one["status"] for one in sqlite.findings("token")] == ["ok"]


def test_settings_with_a_password_that_others_can_read(
    postgres: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROTA_DATABASE")
    Path("rota.toml").write_text(f'database = "{postgres.url}"\n')
    os.chmod("rota.toml", 0o644)
    found = postgres.worse("settings")
    assert "which holds the password of the database" in found["says"]


def test_a_target_that_cannot_be_opened(sqlite: Patient) -> None:
    Path("rota.toml").write_text('[targets]\nwarehouse = "sqlite:///no/such/w.db"\n')
    found = sqlite.worse("targets")
    assert found["says"] == "the folder of target warehouse does not exist: no/such"
    Path("rota.toml").write_text('jobs_dir = "elsewhere.d"\n')
    assert sqlite.worse("folder")["says"] == "jobs_dir elsewhere.d does not exist"


# PostgreSQL


def test_rows_that_nobody_removes(postgres: Patient) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("ALTER TABLE rota_data.audit SET (autovacuum_enabled = false)")
        connection.execute(
            "INSERT INTO rota_data.audit (at, by, via, action, thing) "
            "SELECT now(), 'x', 'x', 'x', 'x' FROM generate_series(1, 60000)"
        )
        connection.execute("DELETE FROM rota_data.audit")
        # What a session did is counted when it ends, or after a while; before 15 by a process of
        # its own that may take its time.
        if connection.info.server_version >= 150_000:
            connection.execute("SELECT pg_stat_force_next_flush()")
    found = postgres.worse("vacuum")
    assert re.match(r"table rota_data.audit holds 60,\d{3} dead rows and ", found["says"])
    assert found["fix"].startswith("VACUUM rota_data.audit;")


def test_a_transaction_that_does_not_end(
    postgres: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [one["status"] for one in postgres.findings("transactions")] == ["ok"]
    monkeypatch.setattr(doctor_store, "LONG_TRANSACTION", timedelta(0))
    with psycopg.connect(postgres.url, application_name="report") as connection:
        connection.execute("SELECT 'a secret in the text of a query'")
        found = postgres.worse("transactions")
        pid = connection.info.backend_pid
    assert f"process {pid} (report of " in found["says"]
    assert "is idle in transaction in a transaction" in found["says"]
    assert "secret" not in found["says"]
    assert f"pg_terminate_backend({pid})" in found["fix"]


def test_a_database_that_cannot_be_written(postgres: Patient) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    found = postgres.worse("database")
    assert "it cannot be written" in found["says"]


def test_a_server_without_connections_to_spare(
    postgres: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_store, "CONNECTIONS_SHARE", 0.0)
    assert "max_connections" in postgres.worse("connections")["fix"]


# What cannot be asked


def test_no_store_exits_2(cli: Cli) -> None:
    answer = cli("doctor")
    assert answer.code == 2
    assert "problem  database  no store at rota.db\n" in answer.out
    assert "fix: start one with `rota up [MODULE:APP]`" in answer.out
    assert os.listdir() == []


def test_a_server_that_is_away_exits_2_and_hides_the_password(cli: Cli) -> None:
    url = "postgresql://me:geheim@127.0.0.1:1/shop"
    answer = cli("doctor", "--database", url, "--json")
    assert answer.code == 2
    assert '"asked": false' in answer.out
    assert "does not answer" in answer.out
    assert "geheim" not in answer.out + answer.err


def test_wrong_settings_exit_2(cli: Cli) -> None:
    Path("rota.toml").write_text("slotz = 3\n")
    answer = cli("doctor")
    assert answer.code == 2
    assert "did you mean 'slots'?" in answer.error


def test_a_variable_that_sets_nothing(sqlite: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("ROTA_HOSTNAME", "shop")
    monkeypatch.setenv("ROTA_SLOTS", "3")
    found = sqlite.findings("settings")
    assert [(one["status"], one["says"]) for one in found[1:]] == [
        ("warning", "variable ROTA_HOSTNAME sets nothing"),
        ("warning", "variable ROTA_SERVICE_HOST sets nothing"),
    ]
    assert found[1]["fix"] == "did you mean ROTA_HOST?"
    assert "ROTA_SLOTS" in found[0]["says"]
    assert "ROTA_SERVICE_HOST" not in found[0]["says"]
    monkeypatch.setenv("ROTA_SCHEDULER_PACE", "bogus")
    answer = sqlite.cli("doctor")
    assert answer.code == 2
    assert "variable ROTA_SCHEDULER_PACE sets nothing" in answer.error


def test_a_store_of_another_version_exits_2(sqlite: Patient) -> None:
    connection = sqlite3.connect("rota.db")
    connection.execute("UPDATE _rota_meta SET value = '99' WHERE key = 'schema_version'")
    connection.commit()
    connection.close()
    answer = sqlite.cli("doctor")
    assert answer.code == 2
    assert "made by a newer Rota" in answer.out
    assert "fix: upgrade Rota on this machine" in answer.out


def test_a_store_of_another_development_version_exits_2(sqlite: Patient) -> None:
    connection = sqlite3.connect("rota.db")
    connection.execute("UPDATE _rota_meta SET value = 'another' WHERE key = 'schema'")
    connection.commit()
    connection.close()
    answer = sqlite.cli("doctor")
    assert answer.code == 2
    assert "was made by another development version of Rota" in answer.out
    assert "fix: create it anew: move the file away, or set `schema`" in answer.out
    for command in (("migrate",), ("migrate", "--plan"), ("jobs",), ("up", "--only", "scheduler")):
        answer = sqlite.cli(*command)
        assert answer.code == 2, command
        assert "another development version of Rota; create it anew: move the file" in answer.error
        assert "\n" not in answer.error


def test_a_store_behind_its_door(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("duckdb")
    monkeypatch.setenv("ROTA_DATABASE", "duckdb:///shop.duckdb")
    app = shop()
    door = open_local_socket(app)
    assert door is not None
    try:
        app.control.pause_dispatch("lunch")
        found = {one["check"]: one for one in Patient("", cli).findings()}
    finally:
        door.stop()
        app.close()
    assert found["dispatch"]["status"] == "problem"
    assert found["database"]["says"].startswith("DuckDB ")
    assert {"wal", "disk", "modes"} <= set(found)


def test_a_check_that_fails_keeps_no_other_from_its_turn(
    sqlite: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_luck(seen: doctor.Look) -> Iterator[Any]:
        raise rota.StorageError("no luck")
        yield

    monkeypatch.setattr(doctor, "CHECKS", (check_luck, doctor.check_dispatch))
    assert sqlite.worse("luck")["says"] == "could not be looked at: no luck"
    assert sqlite.findings("dispatch")
