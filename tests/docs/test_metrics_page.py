"""docs/metrics.md names every metric, with its type, labels and limits, and no other."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import rota
from rota.cli.up_log import JsonLines
from rota.model import limits
from rota.web.metrics import NAMES, Metrics

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_every_metric_is_in_the_tables_as_it_is_served(tmp_path: Path) -> None:
    rows = re.findall(r"^\| `(rota_\w+)` \| (\w+) \| (.*?) ?\|", PAGE.read_text(), re.MULTILINE)
    told = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    app = rota.Rota(f"sqlite:///{tmp_path}/rota.db")
    app.job("job")(lambda: None)
    app.control.cancel(app.enqueue("job").id)
    served = {}
    for family in Metrics(app).collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        served[name] = (family.type, set(getattr(family, "_labelnames", ())))
    app.close()
    assert told == served
    assert set(told) == set(NAMES)


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    text = " ".join(PAGE.read_text().split())
    for name, words in {
        "METRIC_JOBS": "The first {} jobs",
        "METRIC_QUEUES": "of queues the first {} by name",
        "METRIC_DEPTH": "At most {} runs of each state",
    }.items():
        assert f"`{name}`" in text
        assert words.format(f"{getattr(limits, name):,}") in text


def test_the_names_of_a_log_line_are_on_the_page() -> None:
    record = logging.makeLogRecord({"msg": "x", "name": "library", "levelname": "INFO"})
    logs = PAGE.read_text().split("## Logs")[1].split("## ")[0]
    named = {
        name for row in re.findall(r"^\| (`.*?`) \|", logs, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }  # fmt: skip
    assert named == set(json.loads(JsonLines().format(record)))
