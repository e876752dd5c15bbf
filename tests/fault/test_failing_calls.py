"""Each database call of a whole life fails once: whoever asked asks again, and nothing is lost."""

from pathlib import Path

import pytest

from tests.fault.bench import Bench
from tests.fault.life import Life
from tests.fault.points import Nth

pytestmark = pytest.mark.timeout(240)


def test_a_call_that_fails_on_sqlite_breaks_no_promise(postgres_bench: Bench) -> None:
    assert (
        postgres_bench.run("failing-calls", "sqlite", seed=1, times=1).counts["failing call"] > 40
    )


def test_a_call_that_fails_on_postgres_breaks_no_promise(postgres_bench: Bench) -> None:
    assert (
        postgres_bench.run("failing-calls", "postgres", seed=1, times=1).counts["failing call"] > 40
    )


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_every_call_that_fails_breaks_no_promise(postgres_bench: Bench, engine: str) -> None:
    assert postgres_bench.run("failing-calls", engine, seed=1, times=7).counts["failing call"] > 300


def test_a_call_that_fails_again_and_again_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The life asks again a few times, not for ever."""
    life = Life(f"sqlite:///{tmp_path / 'rota.db'}", tmp_path, number=200)
    monkeypatch.setattr(Nth, "__call__", always_at("read.due_schedules.before", life))
    with pytest.raises(AssertionError, match="again and again"):
        life.live()


def always_at(where: str, life: Life):  # type: ignore[no-untyped-def]
    def probe(self: Nth, point: str) -> None:
        if point == where:
            life._fail()

    return probe
