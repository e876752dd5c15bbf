"""Every file, command and answer of the guides."""

from __future__ import annotations

import socket
import socketserver
import threading
from pathlib import Path
from typing import Self

import pytest

from tests.docs.story import Story, blocks, matches

GUIDES = Path(__file__).parents[2] / "docs" / "guide"
# How many files and commands each has, so that none is passed over in silence.
SIZES = {"sql-jobs.md": (16, 25), "crontab.md": (12, 33), "celery-team.md": (5, 23)}
TEAMS = "postgresql://shop:secret@db.example.org/shop"


class Mailbox:
    """A mail server that takes everything."""

    def __init__(self) -> None:
        self._mails: list[str] = []
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), self._converse)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def mails(self) -> list[str]:
        return self._mails

    def _converse(self, request: socket.socket, *_: object) -> None:
        with request.makefile("rwb") as line:
            line.write(b"220 here\r\n")
            line.flush()
            for said in line:
                match said.split()[0].upper():
                    case b"DATA":
                        line.write(b"354 go on\r\n")
                        line.flush()
                        text = iter(line.readline, b".\r\n")
                        self._mails.append(b"".join(text).decode())
                        line.write(b"250 taken\r\n")
                    case b"QUIT":
                        line.write(b"221 bye\r\n")
                        line.flush()
                        return
                    case _:
                        line.write(b"250 yes\r\n")
                line.flush()


def test_the_guide_for_sql_is_true(story: Story) -> None:
    story.tell(GUIDES / "sql-jobs.md")
    assert (story.files, story.commands) == SIZES["sql-jobs.md"]


def test_the_guide_for_one_box_is_true_and_its_mail_arrives(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Mailbox() as mailbox:
        monkeypatch.setenv("MAILTO", "ops@example.org")
        monkeypatch.setenv("SMTP", mailbox.address)
        story.tell(GUIDES / "crontab.md")
        mails = mailbox.mails()
    assert (story.files, story.commands) == SIZES["crontab.md"]
    # The first death was mended before anybody looked.
    assert len(mails) == 1
    assert "Subject: 1 runs died" in mails[0]
    assert "sh exited with code 1" in mails[0]


def test_the_guide_for_a_team_is_true(story: Story, postgres_url: str) -> None:
    story.stands_for[TEAMS] = postgres_url
    story.tell(GUIDES / "celery-team.md")
    assert (story.files, story.commands) == SIZES["celery-team.md"]


@pytest.mark.parametrize("name", sorted(SIZES))
def test_nothing_of_a_guide_is_left_out(name: str) -> None:
    told = blocks(GUIDES / name)
    assert (GUIDES / name).read_text("utf-8").count("```") == 2 * len(told)
    assert {one.kind for one in told if one.path is None} == {"text", "console"}


def test_every_guide_is_told() -> None:
    assert {one.name for one in GUIDES.glob("*.md")} == set(SIZES)


@pytest.mark.parametrize(
    ("wanted", "told", "alike"),
    [
        ("a  b\n", "a    b\n", True),
        ("run … is dead: x\n", "run 12 is dead: x\n", True),
        ("run … is dead: x\n", "run 12 is dead: y\n", False),
        ("a\n…\n", "a\nb\nc\n", True),
        ("a\n…\n", "b\nc\n", False),
        ("a\n", "a\nb\n", False),
        ("a\nb\n", "a\n", False),
    ],
)
def test_answers_are_compared(wanted: str, told: str, alike: bool) -> None:
    assert matches(wanted, told) is alike
