"""docs/operations.md: what it says of backups is so, and every command that pages name exists."""

from __future__ import annotations

import re
import shlex
import shutil
import sqlite3
import subprocess
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest

import rota
from rota.cli.commands import GROUPS
from rota.cli.main import parse as parse_line
from rota.cli.reader import Missing
from tests.jobsd.support import wait_until
from tests.support.postgres import Server
from tests.surface.conftest import Cli, shop

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *(ROOT / "docs" / name for name in ("operations.md", "migration.md", "metrics.md")),
    *sorted((ROOT / "docs" / "guide").glob("*.md")),
]


def named_commands(text: str) -> list[list[str]]:
    """Commands in `spans` and at the beginning of lines, as lists of arguments."""
    spans = re.findall(r"`(rota [^`]+)`", text)
    lines = re.findall(r"^(?:\$ )?(?:/opt/rota[a-z-]*/bin/)?(rota [a-z].*)$", text, re.MULTILINE)
    found = [shlex.split(one, comments=True) for one in (*spans, *lines)]
    return [["3" if word == "N" else word for word in words[1:]] for words in found]


def parse(words: list[str]) -> None:
    """A sentence may name a command without what it needs, but none that does not exist."""
    with suppress(Missing):
        parse_line(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_a_page_names_exists(page: Path) -> None:
    found = named_commands(page.read_text("utf-8"))
    assert found
    for words in found:
        parse(words)


def test_a_wrong_option_would_be_seen() -> None:
    for text in ("try `rota runs --nope`", "$ rota jump", "/opt/rota/bin/rota up --slots many"):
        (words,) = named_commands(text)
        with pytest.raises(rota.Invalid):
            parse(words)


class Shop:
    """An app with a schedule, and a run that waits for a sign."""

    def __init__(self, database: str, **settings: str) -> None:
        self.app = rota.Rota(database, **settings)
        self.began, self.go = threading.Event(), threading.Event()
        self.app.job("slow")(self.slow)
        self.app.job("tick", every="1s", overlap="wait")(lambda: None)

    def slow(self) -> None:
        self.began.set()
        assert self.go.wait(20)


def test_a_restored_file_goes_on_where_the_backup_was_made(cli: Cli, tmp_path: Path) -> None:
    before = Shop("sqlite:///rota.db")
    before.app.start()
    run = before.app.enqueue("slow").id
    assert before.began.wait(20)
    with closing(sqlite3.connect("rota.db")) as connection:
        connection.execute("VACUUM INTO 'backup.db'")
    before.go.set()
    wait_until(lambda: before.app.control.run(run).state == "succeeded", "the end")
    later = before.app.enqueue("slow").id
    before.app.stop()
    # Until it is restored the lease of what ran has run out.
    with closing(sqlite3.connect("backup.db")) as connection, connection:
        over = "UPDATE _rota_runs SET lease_until = 1 WHERE id = ? AND state = 'running'"
        assert connection.execute(over, (run,)).rowcount == 1

    after = Shop("sqlite:///backup.db", lease="8s")  # a rescue comes soon
    after.go.set()
    assert cli("pause", "--dispatch", "--database", "sqlite:///backup.db").code == 0
    after.app.start()
    try:
        with pytest.raises(rota.Unknown):
            after.app.control.run(later)
        # That is seen whoever may claim or not; nobody takes it before he is told to.
        wait_until(lambda: after.app.control.run(run).lost == 1, "the lease")
        assert not after.began.is_set()
        assert cli("resume", "--dispatch", "--database", "sqlite:///backup.db").code == 0
        wait_until(lambda: after.app.control.run(run).state == "succeeded", "the run, done again")
        assert after.app.control.run(run).attempt == 2
        ledger = after.app.control.occurrences("tick", limit=50)
        assert len({one["occurrence"] for one in ledger}) == len(ledger)
    finally:
        after.app.stop(grace="0s")


@pytest.mark.skipif(shutil.which("pg_dump") is None, reason="pg_dump is not on this machine")
def test_a_restored_server_waits_until_it_is_adopted(
    cli: Cli, postgres_server: Server, postgres_url: str, tmp_path: Path
) -> None:
    app = rota.Rota(postgres_url)
    app.job("tick", every="1h")(lambda: None)
    app.load()
    run = app.enqueue("tick").id
    app.close()
    dump = ["pg_dump", "--format", "custom", "--schema", "rota", "--schema", "rota_data"]
    done = subprocess.run(
        [*dump, "--file", "rota.dump", postgres_url], capture_output=True, text=True, check=False
    )
    if "server version mismatch" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    with postgres_server.database() as elsewhere:
        subprocess.run(
            ["pg_restore", "--dbname", elsewhere, "rota.dump"], check=True, capture_output=True
        )
        copy = rota.Rota(elsewhere)
        copy.job("tick", every="1h")(lambda: None)
        copy.start(["scheduler"])
        try:
            assert copy.control.run(run).state == "queued"
            wait_until(lambda: copy.control.schedule("tick").paused, "the pause")
            assert cli("adopt", "--database", elsewhere).code == 0
            assert not copy.control.schedule("tick").paused
        finally:
            copy.stop()


def test_the_symptoms_are_asked_with_commands() -> None:
    text = (ROOT / "docs" / "operations.md").read_text("utf-8")
    rows = re.findall(r"^\| (\*\*.*|….*) \| (.*) \| .* \|$", text.split("by symptom:")[1], re.M)
    assert len(rows) > 20
    asked = [ask for _, ask in rows if ask]
    assert all(ask.startswith("`rota ") for ask in asked)
    assert {ask.split()[1].strip("`,") for ask in asked} <= {
        command.name for group in GROUPS.values() for command in group
    }


def test_the_reasons_are_there_where_the_page_looks_for_them(cli: Cli) -> None:
    app = shop()  # saved, and nobody works
    told = " ".join(cli("explain", "nightly").out.split())
    assert "no worker is alive" in told
    cli("pause", "nightly", "--reason", "stocktaking")
    told = cli("explain", "nightly").out
    assert re.search(r"it was paused by \S+ at \S+: stocktaking", told)
    cli("pause", "--queue", "talk", "--reason", "too loud")
    cli("schedule", "loud", "--job", "chatty", "--every", "1h")
    assert "queue 'talk' is paused by" in cli("explain", "loud").out

    run = app.enqueue("broken", concurrency_key="till").id
    assert "no live worker knows the job 'broken'" in cli("show", run).out
    behind = app.enqueue("broken", concurrency_key="till").id
    assert re.search(r"state +held", cli("show", behind).out)
    assert "till" in cli("show", behind).out
    later = app.enqueue("broken", delay="1h").id
    assert re.search(r"state +waiting", cli("show", later).out)
    assert re.search(r"due +in \d+ min", cli("show", later).out)

    # As it stands on the page.
    text = (ROOT / "docs" / "operations.md").read_text("utf-8")
    (words,) = [one for one in named_commands(text) if one[0] == "sql" and "count(*)" in one[-1]]
    assert re.search(r"broken +3\n", cli(*words).out)
    app.close()
