"""What a run returned, as people read it."""

from __future__ import annotations

from typing import Any

import pytest

from rota.cli.results import say_result


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ({"columns": ["a", "b"], "rows": [[1, None]], "more": False}, "a  b\n1  -\n"),
        ({"columns": ["a"], "rows": [["x"]], "more": True}, "a\nx\n"),
        ({"columns": ["a"], "rows": [[1, 2]], "more": False}, None),
        ({"columns": ["a"], "rows": "no", "more": False}, None),
        ({"labels": 3}, '{"labels": 3}\n'),
        ("go", '"go"\n'),
    ],
)
def test_rows_are_a_table_and_the_rest_is_json(
    result: Any, told: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    say_result(result)
    out = capsys.readouterr().out
    assert out.startswith("{") if told is None else out == told


def test_that_there_are_more_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    say_result({"columns": ["a"], "rows": [[1], [2]], "more": True})
    assert "the first 2 rows" in capsys.readouterr().err
