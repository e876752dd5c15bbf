"""Every example of docs/sql.md, as it stands there, on every engine; and nothing is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from rota.flow.answer import Answer
from rota.flow.prune import ANSWER_AGE, ANSWERS
from rota.model import limits
from rota.model.limits import CONTROL_BYTES, CONTROL_CHANGES, CONTROL_SECONDS, STATEMENT_LENGTH
from rota.model.views import VIEWS
from rota.sql.execute import VIA, Statements
from rota.sql.options import ALIASES, JOB_OPTIONS, OPTIONS
from rota.sql.parser import parse, parse_one
from rota.sql.statements import Select
from rota.storage.operations.audit import Actor
from rota.storage.store import open_store
from tests.api.support import Driven, plain
from tests.conformance.support import CONTROL
from tests.unit.test_sql_grammar import GOOD

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
# In the order of the page.
_, STATEMENTS, CONTROL_ROWS, FUNCTIONS, ROLES, VIEWS_PART = re.split(
    r"^## .*$", PAGE.read_text("utf-8"), flags=re.MULTILINE
)


# What stands for what in a synopsis.
MEANT = {
    "'cron'": "'0 3 * * *'", "'duration'": "'5m'", "'instant'": "'2099-01-01T00:00:00Z'",
    "'json'": """'{"day": 1}'""", "$$sql$$": "$$SELECT 1$$", "SELECT query": "SELECT id FROM runs",
    "COUNT n": "COUNT 3", "option = value": "priority = 1", "argument = value": "day = 1",
    ", …": ", owner = 'ana'",
}  # fmt: skip


def examples(part: str, kind: str = "sql") -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)


def written_out(synopsis: str) -> Iterator[str]:
    """Every statement that it stands for: with and without each `[ ]`, with each of `{ | }`."""
    found = re.search(r"\[([^][{}]*)]|{([^][{}]*)}", synopsis)
    if found is None:
        for sign, meant in MEANT.items():
            synopsis = synopsis.replace(sign, meant)
        yield synopsis
        return
    for choice in ["", found[1]] if found[1] is not None else found[2].split(" | "):
        yield from written_out(synopsis[: found.start()] + choice + synopsis[found.end() :])


def test_every_synopsis_is_understood() -> None:
    lines = [line for text in examples(STATEMENTS, "text") for line in text.splitlines()]
    told = {type(parse_one(one, "postgres")) for line in lines for one in written_out(line)}
    assert told == {type(statement) for statement in GOOD.values()} - {Select}
    with pytest.raises(rota.Invalid):
        parse_one(next(written_out("SHOW {RUNNING | PAUSED} JOBS")), "postgres")


def test_the_statements_do_what_the_page_says(driven: Driven, engine: str) -> None:
    @driven.app.job
    def rollup(day: str = "") -> None: ...

    driven.app.load()
    known = Statements(driven.app.control_as(Actor(by="reader", via=VIA)), targets=["store"])
    results = [list(known.run(text)) for text in examples(STATEMENTS)]
    made, (cleanup,), altered, looks, changes, runs, dispatch, queries = results
    assert [one.rows[0][1] for one in (*made, cleanup)] == ["nightly", "often", "once", "cleanup"]
    assert len(altered) == 3
    shown = looks[0].records()
    assert [one["label"] for one in shown] == ["cleanup", "nightly", "often", "once"]
    assert [one["command"] for one in shown if one["label"] == "cleanup"] == [
        "DELETE FROM sessions"
    ]
    (recreated,) = looks[4].records()
    assert parse(recreated["create_statement"], engine)
    assert len(looks[9].records()) >= 10
    assert [len(one.rows) for one in changes] == [1, 1, 1, 1, 1, 0]
    assert [one.records()[0].get("runs") for one in runs] == [None, None, None, 1, 1, 1]
    assert "failover" in dispatch[0].rows[0][0]
    assert {one["name"] for one in queries[0].records()} == {"cleanup", "nightly", "often"}


def test_the_queries_over_views_can_be_asked(driven: Driven, engine: str) -> None:
    if engine == "sqlite":
        return  # the page says how they read there; tests/conformance/test_views.py asks them
    (text,) = examples(VIEWS_PART)
    if engine == "duckdb":
        text = text.replace("rota.", "_rota.")
    known = Statements(driven.app.control_as(Actor(by="reader", via=VIA)))
    assert [result.rows for result in known.run(text)] == [(), (), ()]


def test_control_rows_are_answered_as_the_page_says(
    driven: Driven, database: str, engine: str
) -> None:
    @driven.app.job
    def rollup(day: str = "") -> None: ...

    driven.app.schedule("nightly", job="rollup", every="1d")
    driven.app.load()
    asked, answers = examples(CONTROL_ROWS)
    with plain(database) as connection:
        for statement in asked.replace("rota.control", CONTROL[engine]).strip().split(";\n"):
            connection.execute(statement)
    Answer(driven.store, planner=driven.app._planner, interval=1.0).step()
    with plain(database) as connection:
        found = connection.execute(answers.replace("rota.control", CONTROL[engine])).fetchall()
        described = connection.execute(f"SELECT * FROM {CONTROL[engine]}").description
    assert [(row[1], row[3]) for row in found] == [("done", None)] * 2
    assert driven.control.schedule("nightly").paused_reason == "moving the warehouse"
    assert len(driven.control.runs(job="rollup")) == 1
    columns = re.findall(r"^\| `(\w+)` \|", CONTROL_ROWS, re.MULTILINE)
    assert columns == [column[0] for column in described]


def test_the_limits_of_control_rows_are_those_of_the_page() -> None:
    for limit in (STATEMENT_LENGTH, limits.CONTROL_ROWS, CONTROL_CHANGES, ANSWERS):
        assert f"{limit:,}" in CONTROL_ROWS, limit
    assert f"{CONTROL_SECONDS:g} seconds" in CONTROL_ROWS
    assert (CONTROL_BYTES, "64 kB" in CONTROL_ROWS) == (64 * 1024, True)
    assert (ANSWER_AGE.days, "seven days" in CONTROL_ROWS) == (7, True)


def test_the_functions_do_what_the_page_says(postgres_database: str) -> None:
    app = rota.Rota(postgres_database)

    @app.job
    def rollup(day: str = "") -> None: ...

    app.schedule("nightly", job="rollup", every="1d")
    app.load()
    transaction, calls = examples(FUNCTIONS)
    with plain(postgres_database) as connection:
        connection.execute("CREATE TABLE orders (id integer)")
        connection.execute(transaction)
        connection.execute(calls)
        orders = connection.execute("SELECT id FROM orders").fetchall()
        named = connection.execute(
            "SELECT proname, proargnames FROM pg_proc WHERE pronamespace = 'rota'::regnamespace"
        ).fetchall()
    assert orders == [(7,)]
    states = [run.state for run in app.control.runs(job="rollup")]
    assert sorted(states) == ["cancelled", "held", "queued"]
    actions = [change["action"] for change in app.control.changes("nightly")]
    assert actions == ["resume", "pause", "create"]
    app.close()
    for function, options in named:
        assert f"`{function}(" in FUNCTIONS, function
        for option in options:
            assert re.search(rf"\b{option}\b", FUNCTIONS), option


def test_the_roles_can_be_granted_as_the_page_says(postgres_database: str) -> None:
    store = open_store(postgres_database)
    with plain(postgres_database) as connection, connection.transaction(force_rollback=True):
        connection.execute(store.roles_sql)
        connection.execute(examples(ROLES)[0])
        found = connection.execute(
            "SELECT pg_has_role('analyst', 'rota_viewer', 'MEMBER'), "
            "pg_has_role('app', 'rota_viewer', 'MEMBER'), "
            "pg_has_role('analyst', 'rota_operator', 'MEMBER')"
        ).fetchone()
    store.close()
    assert found == (True, True, False)


def test_nothing_is_left_out() -> None:
    for option in (*OPTIONS, *ALIASES, *JOB_OPTIONS):
        assert f"`{option}`" in STATEMENTS, option
    for view in VIEWS:
        assert f"### `{view}`" in VIEWS_PART, view
    told = {type(one) for text in examples(STATEMENTS) for one in parse(text, "postgres")}
    assert {type(statement) for statement in GOOD.values()} <= told
