"""Where parts are run: a zygote, a place for databases, and an archive for what fails."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from tests.fault.campaign import Campaign, Failed, Impossible, NotReached, Verdict
from tests.fault.checker import SHOWN
from tests.fault.parts import PARTS
from tests.fault.zygote import Zygote
from tests.support.postgres import Server

ROOT = Path(__file__).resolve().parents[2]
ARCHIVES = Path(os.environ.get("ROTA_TEST_ARCHIVES", ROOT / "build" / "faults"))


class Bench:
    def __init__(
        self, zygote: Zygote, folder: Path, server: Server | None, *, archives: Path = ARCHIVES
    ) -> None:
        self.zygote, self.folder, self.server, self.archives = zygote, folder, server, archives
        self.numbers = 0

    @contextmanager
    def campaign(
        self,
        engine: str,
        *,
        seed: int,
        lease: float = 2.0,
        environment: Mapping[str, str] | None = None,
    ) -> Iterator[Campaign]:
        """A campaign in an empty database."""
        self.numbers += 1
        folder = self.folder / f"{engine}-{seed}-{self.numbers}"
        folder.mkdir(parents=True)
        with (
            self.database(engine, folder) as url,
            Campaign(
                self.zygote, url, folder, seed=seed, lease=lease, environment=environment
            ) as campaign,
        ):
            yield campaign

    @contextmanager
    def database(self, engine: str, folder: Path) -> Iterator[str]:
        if engine == "sqlite":
            yield f"sqlite:///{folder / 'rota.db'}"
        elif engine == "duckdb":
            yield f"duckdb:///{folder / 'store.duckdb'}"
        else:
            assert self.server is not None
            with self.server.database() as url:
                yield url

    def run(
        self,
        name: str,
        engine: str,
        *,
        seed: int,
        times: int,
        environment: Mapping[str, str] | None = None,
    ) -> Verdict:
        """One part. A broken promise is archived, and the error says how to try it again."""
        part = PARTS[name]
        with self.campaign(
            engine, seed=seed, lease=part.lease, environment=environment
        ) as campaign:
            missing = None
            try:
                try:
                    verdict = part.run(campaign, times, self)
                except NotReached as why:  # what was tried until then is judged all the same
                    missing, verdict = why, campaign.finish()
            except Impossible:
                raise
            except Exception as fault:
                raise Failed(self.explain(campaign, name, engine, times, [repr(fault)])) from fault
            if verdict.violations:
                raise Failed(self.explain(campaign, name, engine, times, verdict.violations))
            if missing is not None:
                raise missing
        shutil.rmtree(campaign.folder)
        return verdict

    def explain(
        self, campaign: Campaign, name: str, engine: str, times: int, broken: list[str]
    ) -> str:
        archive = campaign.archive(self.archives / f"{name}-{engine}-{campaign.seed}.tar.gz")
        replay = "".join(f"{key}={quote(value)} " for key, value in campaign.asked.items())
        replay += f"python scripts/faults.py --part {name} --engine {engine} "
        replay += f"--seed {campaign.seed} --times {times}"
        shown = "\n".join(broken[:SHOWN])
        return f"{len(broken)} violations, such as\n{shown}\nkept: {archive}\nagain: {replay}"
