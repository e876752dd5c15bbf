"""One source of chance: the flow asks the seed for ids, luck and time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from types import SimpleNamespace
from unittest.mock import patch
from uuid import UUID

from tests.simulation.clock import VirtualClock


@contextmanager
def one_source_of_chance(seed: int, clock: VirtualClock) -> Iterator[None]:
    """Also makes rare housekeeping frequent enough to meet the rest."""
    chance = random.Random(seed + 1)
    time = SimpleNamespace(monotonic=clock.monotonic)

    def new_run_ids(count: int) -> list[str]:
        return [str(UUID(int=chance.getrandbits(128), version=4)) for _ in range(count)]

    replaced = {
        "rota.flow.fire.random": chance,
        "rota.flow.enqueue.new_run_ids": new_run_ids,
        "rota.flow.claim.time": time,
        "rota.flow.run.time": time,
        "rota.flow.worker.time": time,
        "rota.executors.context.time": time,
        "rota.flow.rescue.SWEEP_EVERY": 3,
        "rota.flow.prune.LEDGER_AGE": timedelta(seconds=20),
        "rota.model.on_error.FIRST_RETRY": timedelta(seconds=2),
    }
    with ExitStack() as patches:
        for name, value in replaced.items():
            patches.enter_context(patch(name, value))
        yield
