"""`rota init`: a folder with two jobs that work, and settings with a word on each."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from rota.cli.options import SHOW, Option, Show
from rota.cli.output import note, say, say_json
from rota.errors import Conflict, Invalid
from rota.extras import how_to_install

SETTINGS = """\
# Settings of Rota. Those outside of a [table] can also be given as ROTA_NAME in the environment.

# Where Rota keeps its own rows: schedules, runs, history. A file is enough for one machine;
# postgresql://user@host/name serves many.
database = "sqlite:///rota.db"

# The folder of jobs. A change in it is live within two seconds.
jobs_dir = "jobs.d"

# The time zone of schedules that name none.
timezone = "UTC"

# The target of SQL jobs that name none; without this line it is the store itself.
default_target = "warehouse"

# Databases that SQL jobs run against, by name; a job.toml picks one with: target = "NAME".
[targets]
warehouse = "duckdb:///warehouse.duckdb"
"""
MANIFEST = """\
# A job: the .sql files beside this one, in the order of their names, each in its own transaction.

schedule = "*/5 * * * *"      # cron; or every = "1h", or at = "2030-01-31T09:00:00Z"
timeout = "10m"
queue_max = 3                 # runs that may wait while one runs; more are dropped
description = "counts who came by"

# More: timezone, overlap, catch_up, max_attempts, target, owner, tags, …; `rota check` knows them.
"""
COLLECT = """\
-- ${NAME} is read from the environment when the job runs; after :- stands what to use without it.
CREATE TABLE IF NOT EXISTS visits (visited_at TIMESTAMPTZ, place TEXT);

INSERT INTO visits VALUES (now(), '${PLACE:-the front door}');
"""
REPORT = """\
-- The first rows of a last SELECT are kept with the run: try `rota run visits --wait`.
SELECT place, count(*) AS visits, max(visited_at) AS last_visit
  FROM visits
 GROUP BY place
 ORDER BY visits DESC;
"""
PYTHON = '''\
"""Keeps the warehouse small: forgets visits that are older than a month."""

schedule = "0 3 * * *"
timezone = "UTC"


def run(ctx):
    ctx.db.execute("CREATE TABLE IF NOT EXISTS visits (visited_at TIMESTAMPTZ, place TEXT)")
    old = "SELECT count(*) FROM visits WHERE visited_at < now() - INTERVAL 30 DAY"
    (count,) = ctx.db.execute(old).fetchone()
    ctx.db.execute("DELETE FROM visits WHERE visited_at < now() - INTERVAL 30 DAY")
    ctx.logger.info("forgot %s old visits", count)
    return {"forgotten": count}
'''
FILES = {
    "rota.toml": SETTINGS,
    "jobs.d/visits/job.toml": MANIFEST,
    "jobs.d/visits/01_collect.sql": COLLECT,
    "jobs.d/visits/02_report.sql": REPORT,
    "jobs.d/cleanup.py": PYTHON,
}


def init(
    folder: Annotated[
        Path, Option("Where; this folder if not given. It is made if it does not exist.", "DIR")
    ] = Path("."),
    /,
    *,
    show: Show = SHOW,
) -> None:
    """Make a folder with two working jobs and commented settings."""
    present = [name for name in FILES if (folder / name).exists()]
    if present:
        raise Conflict(
            f"{folder / present[0]} exists already and is left as it is; "
            "choose another folder: rota init DIR"
        )
    try:
        for name, text in FILES.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "x", encoding="utf-8") as file:
                file.write(text)
    except OSError as fault:
        raise Invalid(f"{fault.filename or folder} cannot be written: {fault.strerror}") from None
    if show.json:
        return say_json({"folder": str(folder), "files": list(FILES)})
    for name in FILES:
        say(f"wrote {folder / name}")
    go = "" if folder == Path(".") else f"cd {folder}, then "
    if find_spec("duckdb") is None:
        note(f"the example SQL runs on DuckDB: {how_to_install('duckdb')}")
    note(f"next: {go}rota check and rota up")
