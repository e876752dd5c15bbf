"""What is to be put and what is to be retired, as a decision without a folder or a store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rota.jobsd.quiet import StableFiles
from rota.jobsd.reconcile import ORPHAN_SECONDS, Orphans, Plan, reconcile
from rota.model.definition import Registered

THEN = datetime(2026, 1, 1, tzinfo=UTC)


def known(*names: str, error: str | None = None) -> dict[str, Registered]:
    return {
        name: Registered(name=name, version="1", version_at=THEN, error=error) for name in names
    }


def plan(wanted: set[str], registered: dict[str, Registered], **options: Any) -> Plan:
    told: dict[str, Any] = {
        "changed": set(), "gone": set(), "elsewhere": set(), "orphans": Orphans(), "now": 0.0,
        "first": False, "complete": True, **options,
    }  # fmt: skip
    return reconcile(wanted, registered, **told)


def test_nothing_changed_is_nothing_to_do() -> None:
    assert plan({"a"}, known("a")) == Plan()


def test_what_changed_is_put_and_is_the_latest() -> None:
    assert plan({"a", "b"}, known("a"), changed={"a", "b"}).anew == {"a", "b"}


def test_at_first_what_others_have_may_be_later_than_ours() -> None:
    made = plan({"a", "b"}, known("a"), changed={"a", "b"}, elsewhere={"a"}, first=True)
    assert (made.put, made.anew) == ({"a", "b"}, {"b"})


def test_what_the_store_lost_is_put_again() -> None:
    registered = known("b", error="retired: gone")
    made = plan({"a", "b"}, registered)
    assert (made.put, made.anew) == ({"a", "b"}, frozenset())


def test_what_is_gone_from_here_is_retired_unless_another_has_it() -> None:
    assert plan(set(), known("a", "b"), gone={"a", "b"}, elsewhere={"b"}).retire == {"a"}


def test_what_went_while_all_were_down_is_retired_at_first() -> None:
    assert plan(set(), known("a"), first=True).retire == {"a"}
    assert plan(set(), known("a"), first=True, elsewhere={"a"}).retire == frozenset()
    assert plan(set(), known("a"), first=True, complete=False).retire == frozenset()


def test_what_nobody_has_is_retired_after_a_while() -> None:
    orphans = Orphans()
    assert not plan(set(), known("a"), orphans=orphans, now=0.0).retire
    assert not plan(set(), known("a"), orphans=orphans, now=ORPHAN_SECONDS - 1).retire
    # Its worker is back, and goes again: counted from there.
    assert not plan(set(), known("a"), orphans=orphans, now=ORPHAN_SECONDS, elsewhere={"a"}).retire
    assert not plan(set(), known("a"), orphans=orphans, now=ORPHAN_SECONDS + 1).retire
    late = 2 * ORPHAN_SECONDS + 1
    assert plan(set(), known("a"), orphans=orphans, now=late).retire == {"a"}


def test_what_is_retired_is_not_retired_again() -> None:
    assert plan(set(), known("a", error="retired: gone"), first=True) == Plan()


# Keeping still


def test_a_unit_is_ready_when_it_has_kept_still() -> None:
    stable = StableFiles(1.0)
    assert stable.update({"a": 1}, 0.0) == ([], 1.0)
    assert stable.update({"a": 2}, 0.75) == ([], 1.0)
    assert stable.update({"a": 2}, 1.25) == ([], 0.5)
    assert stable.update({"a": 2}, 1.75) == (["a"], None)
    stable.mark_read(["a"], {"a": 2})
    assert stable.update({"a": 2}, 9.0) == ([], None)


def test_a_storm_in_one_corner_delays_no_other() -> None:
    stable = StableFiles(1.0)
    for moment in range(4):
        ready, _ = stable.update({"storm": moment, "calm": 0}, moment / 2)
    assert ready == ["calm"]


def test_what_is_gone_is_ready_after_the_same_time() -> None:
    stable = StableFiles(1.0)
    stable.mark_read(["a"], {"a": 1})
    assert stable.update({"a": 1}, 0.0) == ([], None)
    assert stable.update({}, 1.0) == ([], 1.0)
    assert stable.update({"a": 1}, 1.5) == ([], None)  # it was replaced: never gone
    assert stable.update({}, 2.0) == ([], 1.0)
    assert stable.update({}, 3.0) == (["a"], None)
    stable.mark_read(["a"], {})
    assert stable.update({}, 9.0) == ([], None)
