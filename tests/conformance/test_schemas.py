"""Several applications in one database, each with its own schema (a prefix on SQLite)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.errors import Invalid, WrongSchema
from rota.model.job import Job
from rota.model.run import NewRun
from rota.model.schedule import Schedule
from rota.storage import operations
from rota.storage.store import open_store
from tests.conformance.support import ME, Place, VirtualClock

LEASE = timedelta(seconds=30)
RUN = "01997f3a-2c00-7000-8000-00000000000{}"


def test_two_applications_in_one_database_know_nothing_of_each_other(
    place: Place, clock: VirtualClock
) -> None:
    stores = [
        place.keep(open_store(place.url, schema=name, clock=clock)) for name in ("shop", "billing")
    ]
    for number, store in enumerate(stores):
        store.migrate()
        store.write(operations.put_jobs, [Job(name="job")])
        store.write(
            operations.put_schedule, Schedule(name="s", job="job", kind="every", expr="1m"), ME
        )
        store.write(
            operations.enqueue,
            [NewRun(id=RUN.format(number), job="job", queue="default", args="{}")],
        )
    shop, billing = stores
    shop.write(operations.pause_schedule, "s", "only mine", ME)
    shop.write(operations.set_dispatch, False, "only mine", ME)
    assert shop.write(operations.claim, "w", queues=(), jobs=["job"], limit=9, lease=LEASE) == []
    (run,) = billing.write(operations.claim, "w", queues=(), jobs=["job"], limit=9, lease=LEASE)
    assert run.id == RUN.format(1)
    assert not billing.read(operations.schedule_named, "s").paused
    assert (
        shop.read(operations.meta)["installation"] != billing.read(operations.meta)["installation"]
    )


def test_a_schema_that_was_never_migrated_is_no_store(place: Place, clock: VirtualClock) -> None:
    other = place.keep(open_store(place.url, schema="other", clock=clock))
    with pytest.raises(WrongSchema, match="rota migrate"):
        other.check_schema()


def test_a_schema_is_a_plain_name(place: Place) -> None:
    with pytest.raises(Invalid, match="plain name"):
        open_store(place.url, schema='x"; DROP TABLE y; --')
