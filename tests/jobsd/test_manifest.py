"""What a job.toml may say, and what it is told where it may not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rota.model.schedule import Schedule
from tests.jobsd.support import SEED, Served


def load(served: Served, toml: str | None, name: str = "accounting") -> Schedule:
    served.jobs.sql(name, toml)
    served.load()
    assert served.folder.definitions[name].error is None, served.folder.definitions[name].error
    found: Schedule = served.schedule(name)
    return found


def refused(served: Served, toml: str) -> str:
    served.jobs.sql("accounting", toml)
    served.load()
    error = served.folder.definitions["accounting"].error
    assert error is not None
    assert served.error("accounting") == error
    assert error.startswith("jobs.d/accounting/")
    return error.removeprefix("jobs.d/accounting/")


def test_the_seeds_own_manifest_works_unchanged(served: Served) -> None:
    served.jobs.sql("accounting", SEED, **{"01": "a", "02": "b", "03": "c"})
    served.load()
    schedule = served.schedule("accounting")
    (job,) = served.app.jobs()
    assert (schedule.kind, schedule.expr, schedule.queue_max) == ("cron", "0 */15 * * * *", 3)
    assert (schedule.overlap, schedule.catch_up, schedule.enabled) == ("queue", "one", True)
    assert (job.timeout, job.retry.max_attempts, job.executor) == (timedelta(minutes=30), 1, "sql")
    assert job.spec["files"] == ["01.sql", "02.sql", "03.sql"]
    assert job.spec["folder"] == str(served.jobs.root / "accounting")
    assert (job.source, job.origin) == ("file", "jobs.d")


def test_every_option_is_taken(served: Served) -> None:
    named = {"warehouse": "postgresql://nobody@localhost/w"}
    served.app.settings = replace(served.app.settings, targets=named)
    schedule = load(
        served,
        """
        every = "90m"
        anchor = "delay"
        timezone = "Europe/Berlin"
        dst = "literal"
        overlap = "wait"
        on_error = "retry_soon"
        pause_after = 3
        catch_up = "all"
        catch_up_limit = 7
        misfire_grace = "2m"
        jitter = "5s"
        spread = "1m"
        first_run = 2030-01-01T00:00:00Z
        starts_at = "2029-01-01T00:00:00Z"
        ends_at = 2031-01-01T00:00:00+01:00
        owner = "finance"
        enabled = false
        queue = "slow"
        priority = 5
        timeout = "10m"
        step_timeout = "1m30s"
        max_attempts = 4
        backoff = "exponential"
        delay = "1s"
        max_delay = "10m"
        retry_jitter = "2s"
        concurrency_key = "warehouse"
        concurrency_limit = 2
        description = "closes the books"
        tags = ["finance", "daily"]
        target = "warehouse"
        run_as = "reporter"
        restart = true

        [params]
        day = "today"
        rows = 10
        """,
    )
    (job,) = served.app.jobs()
    assert (schedule.kind, schedule.expr, schedule.anchor) == ("every", "1h30m", "delay")
    assert (schedule.overlap, schedule.on_error, schedule.pause_after) == ("wait", "retry", 3)
    assert (schedule.catch_up, schedule.catch_up_limit) == ("all", 7)
    assert (schedule.timezone, schedule.dst, schedule.owner) == (
        "Europe/Berlin", "literal", "finance",
    )  # fmt: skip
    assert schedule.first_run == datetime(2030, 1, 1, tzinfo=UTC)
    assert not schedule.enabled
    assert schedule.args == {"day": "today", "rows": 10}
    assert (job.queue, job.priority, job.timeout) == ("slow", 5, timedelta(minutes=10))
    assert job.retry.to_dict() == {
        "max_attempts": 4, "backoff": "exponential", "delay": "1s", "max_delay": "10m",
        "jitter": "2s",
    }  # fmt: skip
    assert (job.concurrency_key, job.concurrency_limit) == ("warehouse", 2)
    assert job.description == "closes the books"
    spec = {key: job.spec[key] for key in ("tags", "target", "run_as", "restart", "step_timeout")}
    assert spec == {
        "tags": ["finance", "daily"], "target": "warehouse", "run_as": "reporter",
        "restart": True, "step_timeout": "1m30s",
    }  # fmt: skip
    assert [p.name for p in job.signature.parameters] == ["day", "rows"]
    assert [p.types for p in job.signature.parameters] == [("string",), ("integer",)]


def test_on_demand_only(served: Served) -> None:
    served.jobs.sql("accounting", "schedule = false")
    served.load()
    assert served.app.control.schedules() == []
    assert served.app.enqueue("accounting").created


def test_a_job_on_demand_may_have_the_options_of_a_schedule(served: Served) -> None:
    options = 'schedule = false\noverlap = "skip"\ntimezone = "Europe/Berlin"\nowner = "ada"'
    served.jobs.sql("accounting", options)
    served.load()
    assert served.folder.definitions["accounting"].error is None
    assert served.app.control.schedules() == []


def test_a_python_file_on_demand_is_checked_as_any(served: Served) -> None:
    body = "\ndef run(ctx, needed):\n    pass\n"
    served.jobs.python("good", "schedule = False" + body)
    served.jobs.python("lap", "schedule = False\noverlap = 'bogus'" + body)
    served.jobs.python("zone", "schedule = False\ntimezone = 'Mars/Olympus'" + body)
    served.jobs.python("never", body)
    served.jobs.python("odd", "schedule = 5" + body)
    served.load()
    told = {name: one.error for name, one in served.folder.definitions.items()}
    assert told["good"] is None, "what it needs comes with each run"
    assert "lap.py:2: overlap 'bogus' is unknown" in str(told["lap"])
    assert "zone.py:2: timezone 'Mars/Olympus' is unknown" in str(told["zone"])
    assert "schedule = False runs it on demand only" in str(told["never"])
    assert 'schedule 5 must be a cron expression, as "0 3 * * *", or False' in str(told["odd"])


def test_settings_give_the_zone_that_a_file_leaves_open(
    served: Served,
) -> None:
    served.app.settings = replace(served.app.settings, timezone="Asia/Tokyo")
    assert load(served, 'schedule = "0 3 * * *"').timezone == "Asia/Tokyo"


def test_keys_of_another_executor_are_its_own(served: Served) -> None:
    served.app.executor("letter", served.sql)
    served.jobs.sql("post", 'every = "1h"\nexecutor = "letter"\naddress = "here"')
    (served.jobs.root / "post" / "01.sql").unlink()
    served.load()
    (job,) = served.app.jobs()
    assert (job.executor, job.spec["address"]) == ("letter", "here")


@pytest.mark.parametrize(
    ("toml", "told"),
    [
        ('schedule = "0 3 * * *"\ntimeuot = "1m"', "job.toml:2: option 'timeuot' is unknown; did"),
        ("", "job.toml: say when: add schedule"),
        ('schedule = "61 * * * *"', "job.toml:1: cron '61 * * * *' has minute 61"),
        ("enabled = true\nschedule = 5", "job.toml:2: schedule 5 must be a cron expression"),
        ('schedule = "0 3 30 2 *"', "job.toml:1: cron '0 3 30 2 *' never occurs"),
        ('every = "1h"\nqueue_max = -1', "job.toml:2: queue_max -1 must be a whole number"),
        ('every = "1h"\n\ntimeout = "soon"', "job.toml:3: timeout 'soon' is not a duration"),
        ('every = "1h"\nenabled = "yes"', "job.toml:2: enabled 'yes' must be true or false"),
        ('every = "1h"\nat = "x"', "give one of schedule, every and at"),
        ('schedule = false\nevery = "1h"', "contradict each other"),
        ('schedule = false\noverlap = "bogus"', "job.toml:2: overlap 'bogus' is unknown"),
        ('schedule = false\ntimezone = "Mars/X"', "job.toml:2: timezone 'Mars/X' is unknown"),
        ('schedule = false\nqueue_max = "many"', "job.toml:2: queue_max 'many' must be a whole"),
        ("schedule = false\nowner = 5", "job.toml:2: owner must be text"),
        ('schedule = false\nends_at = "never"', "job.toml:2: ends_at 'never' is not an instant"),
        ("schedule = false\nfirst_run = 5", "job.toml:2: first_run 5 is not an instant"),
        ('every = "1h"\noverlap = "skp"', "job.toml:2: overlap 'skp' is unknown"),
        ('every = "1h"\ntags = "x"', "job.toml:2: tags 'x' must be a list"),
        ('every = "1h"\nqueue = "a b"', "job.toml:2: queue 'a b' is not a valid name"),
        ('every = "1h"\nparams = 3', "job.toml:2: params is a table"),
        ('every = "1h"\nexecutor = "sqll"', "job.toml:2: executor 'sqll' is unknown; did you mean"),
        ('every = "1h"\ntarget = "nowhere"', "job.toml:2: target 'nowhere' is unknown; known are"),
        ('every = "1h"\nmax_attempts = 0', "job.toml:2: max_attempts 0 must be"),
        ("every = ", "job.toml:1: is not valid TOML"),
        (
            'every = "1h"\n\ntimeout = "5m',
            'job.toml:3: is not valid TOML: a text that begins with " is not closed (at line 3)',
        ),
        (
            "every = '1h\nenabled = true",
            "job.toml:1: is not valid TOML: a text that begins with ' is not closed (at line 1)",
        ),
        (
            'every = "1h\nenabled = true\ntimezone = "UTC"',
            'job.toml:1: is not valid TOML: a text that begins with " is not closed (at line 1)',
        ),
        (
            "every = '1h\ntimezone = 'UTC'",
            "job.toml:1: is not valid TOML: a text that begins with ' is not closed (at line 1)",
        ),
        ('a = "1"\nevery = [', "job.toml:2: is not valid TOML"),
        ('every = "1h"\nevery = "2h"', "job.toml:2: is not valid TOML"),
        ('timezone = "Mars/Base"\nschedule = "0 3 * * *"', "job.toml:1: timezone 'Mars/Base'"),
        ('every = "1h"\nends_at = "2020-01-01T00:00:00Z"', "has no occurrence from now on"),
        ('every = "1h"\nrun_as = "bob"', "job.toml:2: run_as 'bob' needs a PostgreSQL target"),
        ('every = "1h"\n[params]\nday = 1\nDAY = 2', "'day' and 'DAY' are one variable, ${DAY}"),
        ('every = "1h"\n[params]\n"a b" = 1', "params: 'a b' cannot be a variable"),
        ('every = "1h"\n[params]\nrota_run_id = 1', "'rota_run_id' cannot be a variable"),
        ("x = " + "[" * 500 + "]" * 500, "nested too deeply"),
        ("# " + "x" * 70_000, "job.toml: has 70,002 bytes; the limit is 65,536"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(served: Served, toml: str, told: str) -> None:
    error = refused(served, toml)
    assert told in error, error


def test_a_secret_in_a_broken_manifest_is_not_shown(served: Served) -> None:
    error = refused(served, 'every = "1h"\ntarget = "postgresql://me:secret@db/x"')
    assert "secret" not in error
