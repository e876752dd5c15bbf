"""docs/migration.md: our side is run, theirs can be read by the language it is in."""

from __future__ import annotations

import ast
from pathlib import Path

from rota.model.cron import Cron
from tests.docs.story import Story, blocks

PAGE = Path(__file__).parents[2] / "docs" / "migration.md"
PEERS = ("cron", "pg_cron", "Celery and Celery beat", "APScheduler")


def test_our_side_works(story: Story) -> None:
    story.tell(PAGE)
    assert (story.files, story.commands) == (6, 9)


def test_their_side_can_be_read() -> None:
    crontab, statement, *python = [one.body for one in blocks(PAGE) if one.kind == "text"]
    Cron.parse(" ".join(crontab.splitlines()[1].split()[:5]))
    assert statement.startswith("SELECT cron.schedule('purge', '0 3 * * *', $$")
    assert len(python) == 2
    for text in python:
        ast.parse(text)


def test_every_peer_has_a_table_what_is_different_and_what_it_does_better() -> None:
    text = PAGE.read_text("utf-8")
    for peer in PEERS:
        part = text.split(f"\n## {peer}\n")[1].split("\n## ")[0]
        assert " | Rota |\n" in part
        assert "**Different.**" in part
        assert f"**What {peer.split()[0]} does better.**" in part
