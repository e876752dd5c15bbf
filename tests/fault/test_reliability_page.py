"""The page that the campaign writes says everything that a reader needs to believe it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from scripts import faults
from scripts.reliability import page, seeds
from tests.fault.campaign import NotReached
from tests.fault.parts import PARTS

ABOUT = {
    "commit": "0123456789ab",
    "rota": "1.2.3",
    "python": "3.12.1",
    "sqlite": "3.45.0",
    "psycopg": "3.2.0",
    "postgresql": "17.1",
    "system": "Linux 6.1, x86_64",
}


def result(part: str, engine: str, seed: int, **told: Any) -> dict[str, Any]:
    return {
        "task": {"part": part, "engine": engine, "seed": seed, "times": told.pop("times", 100)},
        "day": told.pop("day", "2026-03-01"),
        "commit": told.pop("commit", "0123456789ab"),
        "seconds": 90.0,
        "counts": told.pop("counts", {}),
        "violations": told.pop("violations", []),
        **told,
    }


RESULTS = [
    result("kills", "sqlite", 1, counts={"SIGKILL": 1_500, "runs": 70_000}),
    result("kills", "sqlite", 2, counts={"SIGKILL": 500, "runs": 30_000, "database is locked": 0}),
    result("kills", "postgres", 1, counts={"SIGKILL": 1_600, "runs": 9}, day="2026-03-02"),
    result("simulation", "sqlite", 0, counts={"simulated seeds": 100}),
    result("soak", "postgres", 1, figures={"memory MB early": 60.1, "memory MB late": 61.0}),
]


def test_it_names_date_commit_versions_and_what_is_left() -> None:
    told = page(ABOUT, RESULTS, left=3)
    assert "2026-03-01 to 2026-03-02, commit 0123456789ab" in told
    for version in ("Rota 1.2.3", "Python 3.12.1", "SQLite 3.45.0", "PostgreSQL 17.1",
                    "psycopg 3.2.0", "Linux 6.1, x86_64"):  # fmt: skip
        assert version in told
    assert "parts of the plan not run yet: 3" in told
    assert "the whole plan was run" in page(ABOUT, RESULTS, left=0)


def test_parts_of_another_commit_are_named() -> None:
    later = result("crash-points", "duckdb", 1, commit="ba9876543210")
    told = page(ABOUT, [*RESULTS, later], left=0)
    assert "commit 0123456789ab and commit ba9876543210 for crash-points on DuckDB" in told


def test_faults_are_counted_by_engine_and_seeds_are_all_named() -> None:
    told = page(ABOUT, RESULTS, left=0)
    assert "| SIGKILL | 2,000 | 1,600 |  |" in told
    assert "| runs | 100,000 | 9 |  |" in told
    assert "| database is locked | 0 |  |  |" in told
    assert "| kills | SQLite | 1-2 | 100 | 3 | 0 |" in told
    assert "| simulation | SQLite | 0-99 | 100 |" in told
    assert "| soak | PostgreSQL | 100 s | memory MB late | 61.0 |" in told


def test_a_violation_is_counted_and_shown_with_its_seed() -> None:
    assert "**violations: 0**" in page(ABOUT, RESULTS, left=0)
    broken = result("zombies", "sqlite", 7, violations=["2 violations, such as\nI3: twice"])
    told = page(ABOUT, [*RESULTS, broken], left=0)
    assert "**violations: 1**" in told
    assert "`zombies`, SQLite, seed 7" in told
    assert "I3: twice" in told


def test_it_promises_what_can_be_defended_and_tells_how_to_run_it_again() -> None:
    told = " ".join(page(ABOUT, RESULTS, left=0).split())
    assert (
        "Exactly one run per occurrence, at-least-once execution, at most one terminal transition "
        "(per redo); exactly-once effect for SQL steps on a PostgreSQL, SQLite or DuckDB store "
        "itself." in told
    )
    assert "a loss of power of the machine is not" in told
    assert "make faults" in told


def test_nothing_was_run_is_a_page_too() -> None:
    assert "No campaign is recorded here" in page(ABOUT, [], left=9)


def test_seeds_that_were_left_out_are_not_claimed() -> None:
    tasks = [{"part": "kills", "seed": seed, "times": 1} for seed in (1, 2, 5)]
    assert seeds(tasks) == "1-2, 5"


def test_every_part_is_in_the_plan_on_each_of_its_engines() -> None:
    planned = {(task.part, task.engine) for task in faults.plan()}
    known = {(name, engine) for name, part in PARTS.items() for engine in part.engines}
    assert known == {one for one in planned if one[0] != faults.SIMULATION}


def test_the_plan_is_as_large_as_was_promised() -> None:
    total: dict[str, int] = {}
    for task in faults.plan():
        total[task.part] = total.get(task.part, 0) + task.times
    assert total["kills"] >= 3_000
    assert total["server-crashes"] >= 200
    assert total["zombies"] >= 1_000
    assert total["simulation"] >= 20_000
    for engine in ("sqlite", "postgres", "duckdb"):
        points = [
            one for one in faults.plan() if (one.part, one.engine) == ("crash-points", engine)
        ]
        assert sum(one.times for one in points) >= 3


def test_a_fault_that_nobody_met_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a kept promise nor a broken one: it stays in the plan."""

    def nobody(self: faults.Runner, task: faults.Task) -> None:
        raise NotReached("nobody came to settle.admit_run.after")

    monkeypatch.setattr(faults.Runner, "_run", nobody)
    state = faults.State(tmp_path / "state.json", fresh=True)
    with ExitStack() as stack:
        runner = faults.Runner(stack, tmp_path, state)
        assert not runner.run(faults.Task("crash-points", "duckdb", 3, 1))
    assert state.done() == set()
    assert "crash-points duckdb seed 3 x 1: not done, nobody came" in capsys.readouterr().out
