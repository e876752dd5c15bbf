"""A rule taken away is a campaign that fails: the harness can see what it looks for."""

from pathlib import Path

import pytest

from tests.fault.bench import Bench
from tests.fault.campaign import Failed
from tests.fault.checker import check
from tests.fault.history import History
from tests.fault.weaken import WEAKENED, _reworded
from tests.fault.zygote import Zygote
from tests.support.archives import unpack

pytestmark = pytest.mark.timeout(240)

NOW = {"sqlite": ":now", "postgres": "clock_timestamp()"}

# The fault that brings it to light, how often, and the rules of which one must be found broken.
SHOWN_BY = {
    "settle without fence": ("zombies", 6, {"I3", "I5"}),
    "cursor moved without comparing": ("sleepers", 6, {"I1", "I8"}),
    "one more than the key allows": ("kills", 10, {"I6", "I7"}),
    "rescue that does not look at the lease": ("kills", 6, {"I5", "I6"}),
}

SEEDS = range(3, 9)

# The last one never comes to rest, and that takes its time to be sure of.
LONG = "rescue that does not look at the lease"
CASES = [
    pytest.param(
        engine,
        rule,
        marks=pytest.mark.long if rule == LONG or engine == "postgres" else (),
    )
    for engine in ("sqlite", "postgres")
    for rule in WEAKENED
]


@pytest.mark.parametrize(("engine", "rule"), CASES)
def test_the_campaign_fails_without_a_rule(
    engine: str, rule: str, zygote: Zygote, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    part, times, expected = SHOWN_BY[rule]
    server = request.getfixturevalue("postgres_server") if engine == "postgres" else None
    bench = Bench(zygote, tmp_path / "work", server, archives=tmp_path / "kept")
    seed, told = _first_failure(bench, part, engine, times, rule)
    assert f"python scripts/faults.py --part {part} --engine {engine} --seed {seed}" in told
    (archive,) = (tmp_path / "kept").iterdir()
    assert str(archive) in told
    unpack(archive, tmp_path / "again")
    violations = check(History.load(tmp_path / "again"))
    assert {one.rule for one in violations} & expected, told


def _first_failure(bench: Bench, part: str, engine: str, times: int, rule: str) -> tuple[int, str]:
    """Whether a fault hits the moment that the rule guards is chance: a few tries find it."""
    for seed in SEEDS:
        try:
            bench.run(part, engine, seed=seed, times=times, environment={"ROTA_TEST_WEAKEN": rule})
        except Failed as failed:
            return seed, str(failed)
    pytest.fail(f"{rule}: nothing was broken in {len(SEEDS)} tries")


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
@pytest.mark.parametrize("rule", WEAKENED)
def test_each_rule_is_still_in_the_statements(engine: str, rule: str) -> None:
    """Else a rule that was reworded would not be taken away, and that would be seen late."""
    load = _reworded(WEAKENED[rule])
    assert load(engine, {"prefix": "p_", "views": "v_", "now": NOW[engine]})
