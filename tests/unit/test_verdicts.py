"""What a handler may say about its run."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.errors import Invalid
from rota.model.verdicts import Cancel, Retry, Snooze


def test_a_snooze_takes_any_way_to_write_a_duration() -> None:
    for said in ("30s", 30, timedelta(seconds=30)):
        assert Snooze(said).after == timedelta(seconds=30)


@pytest.mark.parametrize("value", ["soon", 0, "0s", -1, None])
def test_a_snooze_without_a_duration_is_refused(value: object) -> None:
    with pytest.raises(Invalid, match=r"^Snooze "):
        Snooze(value)


def test_a_cancel_may_say_why() -> None:
    assert (Cancel().reason, Cancel("sold out").reason) == ("", "sold out")


def test_a_retry_is_raised_and_may_choose_its_wait() -> None:
    assert isinstance(Retry(), Exception)
    assert Retry().after is None
    assert Retry(after="5m", reason="busy").after == timedelta(minutes=5)
    assert Retry(after=0).after == timedelta(0)
    assert str(Retry(reason="busy")) == "busy"
    with pytest.raises(Invalid, match=r"^Retry after 'soon' is not a duration"):
        Retry(after="soon")
