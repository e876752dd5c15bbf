"""One verb for many runs: the filter chooses, a person confirms, a page at a time."""

from __future__ import annotations

import io
import sys

import pytest

from rota.cli import bulk as bulk_command
from rota.errors import Conflict
from rota.flow.control import Control
from tests.surface.conftest import Cli


class Terminal(io.StringIO):
    """A person who types."""

    def isatty(self) -> bool:
        return True


def enqueue(cli: Cli, job: str, *options: str) -> str:
    made: str = cli("enqueue", job, "--json", *options).json["id"]
    return made


def states(store: Control) -> dict[str, str]:
    return {run.id: run.state for run in store.runs()}


@pytest.mark.each_engine
def test_cancel_all_of_a_job(cli: Cli, store: Control) -> None:
    first, second = enqueue(cli, "broken"), enqueue(cli, "broken", "--delay", "1h")
    other = enqueue(cli, "chatty")
    answer = cli("cancel", "--all", "--job", "broken", "--yes", "--reason", "wrong day", "--json")
    assert answer.json == {"verb": "cancel", "done": 2, "left_out": 0, "problem": None}
    assert states(store) == {first: "cancelled", second: "cancelled", other: "queued"}
    assert store.run(first).reason == "wrong day"
    done = [row["thing"] for row in store.audit() if row["action"] == "cancel_run"]
    assert sorted(done) == sorted([first, second])


def test_filters_are_joined(cli: Cli, store: Control) -> None:
    wanted = enqueue(cli, "broken", "--queue", "other")
    kept = enqueue(cli, "broken"), enqueue(cli, "chatty", "--queue", "other")
    assert cli("cancel", "--all", "--job", "broken", "--queue", "other", "--yes").out == (
        "1 run cancelled, or asked to end\n"
    )
    found = states(store)
    assert found.pop(wanted) == "cancelled"
    assert set(found) == set(kept)
    assert set(found.values()) == {"queued"}


def test_redo_means_the_dead_unless_told(cli: Cli, ended: dict[str, str]) -> None:
    answer = cli("redo", "--all", "--yes", "--json").json
    assert (answer["done"], answer["left_out"]) == (1, 0)
    (run,) = cli("runs", "--job", "broken", "--json").json
    assert (run["state"], run["redo"]) == ("waiting", 1)
    assert cli("redo", "--all", "--state", "succeeded", "--yes", "--json").json["done"] == 2


def test_delete_wants_a_state(cli: Cli, ended: dict[str, str]) -> None:
    refused = cli("delete", "--all", "--yes")
    assert refused.code == 2
    assert "say which runs to delete, by their state" in refused.error
    assert cli("delete", "--all", "--state", "dead", "--yes").out == "1 run deleted\n"
    assert {run["job"] for run in cli("runs", "--json").json} == {"greet", "chatty"}


@pytest.mark.each_engine
def test_it_goes_on_over_pages(cli: Cli, store: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_command, "STEP", 2)
    made = [enqueue(cli, "broken") for _ in range(5)]
    answer = cli("cancel", "--all", "--state", "queued", "--yes", "--json").json
    assert answer["done"] == len(made)
    assert set(states(store).values()) == {"cancelled"}


def test_it_asks_first(cli: Cli, store: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue(cli, "broken")
    piped = cli("cancel", "--all", "--job", "broken")
    assert piped.code == 2
    assert piped.error == (
        "rota: cancel 1 run that is waiting or held or queued or running or paused, of job broken: "
        "add --yes to do it"
    )
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    no = cli("cancel", "--all")
    assert (no.code, no.out) == (1, "")
    assert no.err.endswith("[y/N] nothing was done\n")
    assert set(states(store).values()) == {"queued"}
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert cli("cancel", "--all").out == "1 run cancelled, or asked to end\n"


def test_what_cannot_be_done_is_told_and_the_rest_is_done(
    cli: Cli, store: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = enqueue(cli, "broken"), enqueue(cli, "broken")
    real = Control.cancel

    def refuse(self: Control, run_id: str, *args: object, **options: object) -> object:
        if run_id == first:
            raise Conflict("its executor is not installed")
        return real(self, run_id, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Control, "cancel", refuse)
    answer = cli("cancel", "--all", "--yes")
    assert answer.code == 1
    assert answer.err == "1 run left out; the first: its executor is not installed\n"
    assert states(store) == {first: "queued", second: "cancelled"}


def test_nothing_to_do_is_no_failure(cli: Cli, store: Control) -> None:
    answer = cli("redo", "--all", "--job", "broken")
    assert (answer.code, answer.out, answer.err) == (0, "", "no runs match\n")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("redo", "give the id of a run, or --all with what to redo"),
        ("redo 01997f3a --all", "give the id of a run, or --all"),
        ("redo 01997f3a --job greet", "--job belongs to --all"),
        ("redo 01997f3a --yes", "--yes belongs to --all"),
        ("redo --all --from 2 --yes", "--from belongs to one run"),
        ("redo --all --state running --yes", "redo is not possible for runs that are running"),
        ("cancel --all --state lost --yes", "state 'lost' is unknown"),
        ("cancel --all --job nope --yes", "job 'nope' does not exist"),
        ("cancel --all --schedule nope --yes", "schedule 'nope' does not exist"),
    ],
)
def test_wrong_use(cli: Cli, store: Control, args: str, message: str) -> None:
    answer = cli(*args.split())
    assert answer.code == 2
    assert message in answer.error
