"""Every example of docs/sql.md, as it stands there, on every engine; and nothing is left out."""

from __future__ import annotations

import re
from pathlib import Path

from rota.model.views import VIEWS
from rota.sql.execute import VIA, Statements
from rota.sql.options import ALIASES, JOB_OPTIONS, OPTIONS
from rota.sql.parser import parse
from rota.storage.protocol import Actor
from tests.api.support import Driven
from tests.unit.test_sql_grammar import GOOD

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
STATEMENTS, VIEWS_PART = PAGE.read_text("utf-8").split("\n## Views\n")


def examples(part: str) -> list[str]:
    return re.findall(r"^```sql\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)


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


def test_nothing_is_left_out() -> None:
    for option in (*OPTIONS, *ALIASES, *JOB_OPTIONS):
        assert f"`{option}`" in STATEMENTS, option
    for view in VIEWS:
        assert f"### `{view}`" in VIEWS_PART, view
    told = {type(one) for text in examples(STATEMENTS) for one in parse(text, "postgres")}
    assert {type(statement) for statement in GOOD.values()} <= told
