"""Statements: what is understood, and what is said about the rest."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import RotaError
from rota.model.limits import STATEMENT_LENGTH
from rota.sql.parser import parse, parse_one
from rota.sql.statements import (
    AlterSchedule,
    Body,
    ChangeRuns,
    ChangeSchedules,
    CreateSchedule,
    Dispatch,
    ExecuteSchedule,
    Explain,
    RunJob,
    Select,
    ShowCreate,
    ShowJobs,
    ShowRuns,
    ShowSchedule,
    ShowSchedules,
    Statement,
    Timing,
)

DIALECTS = ("sqlite", "postgres", "duckdb")
EVERY = Timing(kind="every", expr="5m")

GOOD: dict[str, Statement] = {
    "SHOW SCHEDULES": ShowSchedules(),
    "show schedules ;": ShowSchedules(),
    "Show Running Schedules": ShowSchedules(status="RUNNING"),
    "SHOW PAUSED SCHEDULES": ShowSchedules(status="PAUSED"),
    "SHOW SCHEDULE nightly": ShowSchedule(schedule="nightly"),
    "SHOW SCHEDULE 17": ShowSchedule(schedule="17"),
    'SHOW SCHEDULE "a--b"': ShowSchedule(schedule="a--b"),
    "SHOW SCHEDULE maintenance/vacuum.all-2": ShowSchedule(schedule="maintenance/vacuum.all-2"),
    "SHOW CREATE SCHEDULE x": ShowCreate(schedule="x"),
    "SHOW JOBS": ShowJobs(),
    "SHOW JOBS FOR SCHEDULE x": ShowRuns(schedule="x"),
    "SHOW RUNS": ShowRuns(),
    "SHOW RUNS FOR JOB reason": ShowRuns(job="reason"),
    "CREATE SCHEDULE s FOR JOB j EVERY '5m'": CreateSchedule(name="s", job="j", timing=EVERY),
    "CREATE SCHEDULE IF NOT EXISTS s FOR JOB j RECURRING '0 3 * * *'": CreateSchedule(
        name="s", job="j", timing=Timing(kind="cron", expr="0 3 * * *"), if_not_exists=True
    ),
    """CREATE SCHEDULE "if" FOR JOB j AT '2030-01-01T00:00:00Z'""": CreateSchedule(
        name="if", job="j", timing=Timing(kind="at", expr="2030-01-01T00:00:00Z")
    ),
    "CREATE SCHEDULE s AS $$ SELECT 'a;b' $$ EVERY '5m'": CreateSchedule(
        name="s", body=Body(text="SELECT 'a;b'"), timing=EVERY
    ),
    "CREATE SCHEDULE s AS $x$ SELECT $$;$$ $x$ ON warehouse EVERY '5m'": CreateSchedule(
        name="s", body=Body(text="SELECT $$;$$", target="warehouse"), timing=EVERY
    ),
    "CREATE SCHEDULE s AS 'SELECT ''x''' EVERY '5m'": CreateSchedule(
        name="s", body=Body(text="SELECT 'x'"), timing=EVERY
    ),
    """CREATE SCHEDULE s FOR JOB j EVERY '5m' WITH SCHEDULE OPTIONS (
        on_previous_running = skip, ON_EXECUTION_FAILURE = 'pause', queue_max = 3,
        timezone = Europe/Berlin, enabled = false, args = '{"a": 1}', owner = NULL)""":
    CreateSchedule(
        name="s", job="j", timing=EVERY,
        options={
            "overlap": "skip", "on_error": "pause", "queue_max": 3, "timezone": "Europe/Berlin",
            "enabled": False, "args": '{"a": 1}', "owner": None,
        },
    ),
    "CREATE SCHEDULE s AS $$x$$ EVERY '5m' WITH SCHEDULE OPTIONS timeout = 30m, overlap = wait":
    CreateSchedule(
        name="s", body=Body(text="x"), timing=EVERY, options={"timeout": "30m", "overlap": "wait"}
    ),
    "ALTER SCHEDULE s SET EVERY '5m'": AlterSchedule(schedule="s", timing=EVERY),
    "ALTER SCHEDULE s SET overlap = skip, RECURRING '* * * * *', max_attempts = 2": AlterSchedule(
        schedule="s", timing=Timing(kind="cron", expr="* * * * *"),
        options={"overlap": "skip", "max_attempts": 2},
    ),
    "ALTER SCHEDULE s SET AS $$ SELECT 2 $$, ON there": AlterSchedule(
        schedule="s", body=Body(text="SELECT 2", target="there")
    ),
    "ALTER SCHEDULE s SET FOR JOB other": AlterSchedule(schedule="s", job="other"),
    "PAUSE SCHEDULE s": ChangeSchedules(verb="PAUSE", schedule="s"),
    "PAUSE SCHEDULE s REASON 'it''s late'": ChangeSchedules(
        verb="PAUSE", schedule="s", reason="it's late"
    ),
    "RESUME SCHEDULE s": ChangeSchedules(verb="RESUME", schedule="s"),
    "DROP SCHEDULE s": ChangeSchedules(verb="DROP", schedule="s"),
    "DROP SCHEDULE IF EXISTS s": ChangeSchedules(verb="DROP", schedule="s", if_exists=True),
    "PAUSE SCHEDULES (SELECT id FROM schedules WHERE name = ')' OR (1 = 1)) REASON 'r'":
    ChangeSchedules(
        verb="PAUSE", query="SELECT id FROM schedules WHERE name = ')' OR (1 = 1)", reason="r"
    ),
    "DROP SCHEDULES (WITH x AS (SELECT 1) SELECT * FROM x /* ) */);": ChangeSchedules(
        verb="DROP", query="WITH x AS (SELECT 1) SELECT * FROM x /* ) */"
    ),
    "RESUME SCHEDULES SELECT name FROM schedules": ChangeSchedules(
        verb="RESUME", query="SELECT name FROM schedules"
    ),
    "PAUSE JOBS FOR SCHEDULE s": ChangeRuns(verb="PAUSE", schedule="s"),
    "RESUME JOBS FOR SCHEDULE s REASON 'r'": ChangeRuns(verb="RESUME", schedule="s", reason="r"),
    "CANCEL JOBS FOR SCHEDULE s": ChangeRuns(verb="CANCEL", schedule="s"),
    "CANCEL JOBS FOR SCHEDULES (SELECT 1)": ChangeRuns(verb="CANCEL", query="SELECT 1"),
    "EXECUTE SCHEDULE s": ExecuteSchedule(schedule="s"),
    "RUN JOB j": RunJob(job="j"),
    "RUN JOB j WITH (a = 1, b = 'x', c = true, d = NULL, e = -1.5)": RunJob(
        job="j", args={"a": 1, "b": "x", "c": True, "d": None, "e": -1.5}
    ),
    """RUN JOB j WITH '{"a": [1]}'""": RunJob(job="j", args={"a": [1]}),
    "EXPLAIN SCHEDULE s": Explain(schedule="s", count=5),
    "EXPLAIN SCHEDULE s COUNT 20": Explain(schedule="s", count=20),
    "PAUSE DISPATCH": Dispatch(on=False),
    "PAUSE DISPATCH REASON 'r'": Dispatch(on=False, reason="r"),
    "RESUME DISPATCH": Dispatch(on=True),
    "SELECT * FROM runs": Select(sql="SELECT * FROM runs"),
    "with x as (select ';') select * from x;": Select(sql="with x as (select ';') select * from x"),
    "VALUES (1)": Select(sql="VALUES (1)"),
    "/* why */ SHOW -- what\n JOBS -- and nothing else": ShowJobs(),
}  # fmt: skip


@pytest.mark.parametrize("text", GOOD)
def test_good_forms(text: str) -> None:
    for dialect in DIALECTS:
        assert parse_one(text, dialect) == GOOD[text]


BAD = {
    "PAUSE SHEDULE x": "expected SCHEDULE or SCHEDULES after PAUSE, got 'SHEDULE' at 1:7; "
    "did you mean SCHEDULE?",
    "PAUSE": "expected SCHEDULE, SCHEDULES, JOBS or DISPATCH after PAUSE, got the end at 1:6",
    "\n  SHOWW JOBS": "expected SHOW, got 'SHOWW' at 2:3; did you mean SHOW?",
    "SHOW": "expected SCHEDULES, SCHEDULE, JOBS, RUNS, CREATE, RUNNING or PAUSED after SHOW, "
    "got the end at 1:5",
    "SHOW SCHEDULE": "expected the name of a schedule after SCHEDULE, got the end at 1:14",
    "SHOW SCHEDULE x y": "expected the end of the statement after x, got 'y' at 1:17",
    'SHOW SCHEDULE "x y"': "schedule 'x y' is not a valid name",
    "SHOW JOBS FOR JOB x": "expected SCHEDULE after FOR, got 'JOB' at 1:15",
    "PAUSE SCHEDULE x REASON": "expected a reason in '…' after REASON, got the end at 1:24",
    "PAUSE SCHEDULE x BECAUSE 'y'": "expected REASON or the end of the statement after x, got "
    "'BECAUSE' at 1:18",
    "PAUSE SCHEDULES (DELETE FROM x)": "expected SELECT after (, got 'DELETE' at 1:18",
    "PAUSE SCHEDULES (SELECT (1": "the ( before 1:18 is never closed",
    "CREATE SCHEDULE s FOR JOB j": "expected RECURRING, EVERY or AT after j, got the end at 1:28",
    "CREATE SCHEDULE s FOR JOB j EVERY 5m": "expected a duration in '…' after EVERY, got '5m'",
    "CREATE SCHEDULE s EVERY '5m'": "expected FOR or AS after s, got 'EVERY' at 1:19",
    "CREATE SCHEDULE s AS SELECT 1 EVERY '5m'": "expected SQL in $$ … $$ after AS, got 'SELECT'",
    "CREATE SCHEDULE s AS $$ SELECT": "the $$ at 1:22 is never closed",
    "CREATE SCHEDULE s FOR JOB j EVERY '5m' WITH SCHEDULE OPTIONS (overlp = 1)": "option 'overlp' "
    "at 1:63 is unknown; did you mean overlap?",
    "CREATE SCHEDULE s FOR JOB j EVERY '5m' WITH SCHEDULE OPTIONS (timeout = 1)": "option "
    "'timeout' at 1:63 belongs to the job",
    "CREATE SCHEDULE s FOR JOB j EVERY '5m' WITH SCHEDULE OPTIONS (overlap = skip, "
    "on_previous_running = wait)": "option 'overlap' is given twice, again at 1:79",
    "CREATE SCHEDULE s FOR JOB j EVERY '5m' WITH SCHEDULE OPTIONS (overlap skip)": "expected '=' "
    "after overlap, got 'skip' at 1:71",
    "CREATE SCHEDULE s FOR JOB j EVERY '5m' WITH SCHEDULE OPTIONS (overlap = skip": "expected ')' "
    "after skip, got the end",
    "CREATE SCHEDULE s FOR JOB j EVERY '2s' ON FAILURE PAUSE": "expected WITH SCHEDULE OPTIONS or "
    "the end of the statement after '2s', got 'ON' at 1:40",
    "CREATE SCHEDULE s FOR JOB j EVERY '5m' WITH SCHEDULE OPTIONS (on_execution_failure = stop)":
    "on_execution_failure 'stop' at 1:63 is unknown; use RESCHEDULE, RETRY, PAUSE",
    "ALTER SCHEDULE s SET on_previous_running = 5":
    "on_previous_running 5 at 1:22 is unknown; use START, SKIP, WAIT, QUEUE",
    "ALTER SCHEDULE s": "expected SET after s, got the end at 1:17",
    "ALTER SCHEDULE s SET FOR JOB j, AS $$x$$": "FOR a JOB or has SQL of its own",
    "RUN JOB j WITH (a = b)": "expected a value (text stands in quotes: 'b') after =, got 'b'",
    "RUN JOB j WITH ()": "expected the name of an argument after (, got ')' at 1:17",
    "RUN JOB j WITH (a = 1, a = 2)": "argument 'a' is given twice",
    "RUN JOB j WITH '[1]'": "must be a JSON object",
    "RUN JOB j WITH '{'": "WITH is not JSON",
    "EXPLAIN SCHEDULE s COUNT 0": "COUNT 0 must be a whole number from 1 to 500",
    "EXPLAIN SCHEDULE s COUNT many": "COUNT 'many' must be a whole number",
    "EXPLAIN SELECT 1": "expected SCHEDULE after EXPLAIN, got 'SELECT' at 1:9",
    "DELETE FROM runs": "PAUSE, RESUME, DROP, CANCEL",
    "SHOW JOBS SHOW JOBS": "expected the end of the statement after JOBS, got 'SHOW' at 1:11",
    "'": "the ' at 1:1 is never closed",
    "/* x": "the /* at 1:1 is never closed",
    "SELECT 'x": "is never closed",
    "SHOW \0": "NUL character at 1:6",
    "SHOW \ud800": "the text holds half of a surrogate pair",
    "": "one statement is expected here, not none",
    "SHOW JOBS; SHOW JOBS": "one statement is expected here, not 2",
    "SELECT " + "1," * STATEMENT_LENGTH: "the limit is 262,144",
}  # fmt: skip


@pytest.mark.parametrize("text", BAD, ids=lambda text: text[:60])
def test_errors_say_what_and_where(text: str) -> None:
    with pytest.raises(RotaError) as fault:
        parse_one(text, "postgres")
    assert BAD[text] in str(fault.value)


def test_a_text_holds_several_statements() -> None:
    text = ";; SHOW JOBS; SELECT ';';\n-- done\nPAUSE DISPATCH REASON ';' ;"
    assert parse(text, "duckdb") == [
        ShowJobs(), Select(sql="SELECT ';'"), Dispatch(on=False, reason=";"),
    ]  # fmt: skip
    assert parse(" -- nothing\n", "duckdb") == []


def test_there_is_a_limit_to_statements_in_a_text() -> None:
    with pytest.raises(RotaError, match="more than 1,000 statements"):
        parse("SHOW JOBS;" * 1_001, "sqlite")


def test_only_admins_say_which_sql_runs() -> None:
    roles = {text: statement.role for text, statement in GOOD.items()}
    assert roles["SHOW SCHEDULES"] == roles["SELECT * FROM runs"] == "viewer"
    assert roles["EXPLAIN SCHEDULE s"] == "viewer"
    assert roles["PAUSE SCHEDULE s"] == roles["RUN JOB j"] == "operator"
    assert roles["CREATE SCHEDULE s FOR JOB j EVERY '5m'"] == "operator"
    assert roles["CREATE SCHEDULE s AS $$ SELECT 'a;b' $$ EVERY '5m'"] == "admin"
    assert roles["ALTER SCHEDULE s SET AS $$ SELECT 2 $$, ON there"] == "admin"
    assert parse_one("ALTER SCHEDULE s SET run_as = 'root'", "postgres").role == "admin"
    assert parse_one("ALTER SCHEDULE s SET timeout = '1h'", "postgres").role == "operator"


@given(st.text(max_size=200), st.sampled_from(DIALECTS))
def test_any_text_is_understood_or_refused(text: str, dialect: str) -> None:
    try_to_parse(text, dialect)


def test_mutated_statements_give_only_clean_errors() -> None:
    mutate_many(10_000, seed=1)


@pytest.mark.long
def test_many_more_mutated_statements_give_only_clean_errors() -> None:
    mutate_many(100_000, seed=2)


def mutate_many(count: int, seed: int) -> None:
    luck, refused = random.Random(seed), 0
    texts = list(GOOD)
    for _ in range(count):
        text = mutated(luck, luck.choice(texts), texts)
        refused += not try_to_parse(text, luck.choice(DIALECTS))
    assert count * 0.3 < refused < count, refused  # both ways are walked


def try_to_parse(text: str, dialect: str) -> bool:
    """False if it was refused; whatever else is raised fails the test."""
    try:
        for statement in parse(text, dialect):
            assert statement.role in ("viewer", "operator", "admin")
    except RotaError:
        return False
    return True


PIECES = (
    "'", '"', "$$", "$x$", "(", ")", ",", ";", "=", "--", "/*", "*/", "\n", "\0", "\\", "é",
    "\ud800",
    "SELECT", "SCHEDULE", "SET", "IF", "NULL", "-", ".", "9" * 400, "[", "`", "${X}", "e'",
    "\u2028",
)  # fmt: skip


def mutated(luck: random.Random, text: str, others: list[str], *, most: int = 4) -> str:
    for _ in range(luck.randint(1, most)):
        place = luck.randint(0, len(text))
        until = min(len(text), place + luck.randint(0, 8))
        change: Any = luck.randint(0, 6)
        match change:
            case 0:
                text = text[:place] + text[until:]
            case 1:
                text = text[:place] + luck.choice(PIECES) + text[place:]
            case 2:
                text = text[:place] + text[place:until] * 2 + text[until:]
            case 3:
                words = text.split(" ")
                luck.shuffle(words)
                text = " ".join(words)
            case 4:
                text = text[:place] + luck.choice(others)[luck.randint(0, 30) :]
            case 5:
                text = text[:place] + chr(luck.randint(1, 0x2FFF)) + text[until:]
            case _:
                text = text.swapcase()
    return text
