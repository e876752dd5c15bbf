"""Files that outlive their run: `ctx.storage` in a thread, on the loop and in a child process."""

from __future__ import annotations

import json
from typing import Any

import pytest

import rota
from tests.api import handlers
from tests.api.support import Driven, Watch


@pytest.mark.each_engine
@pytest.mark.parametrize(
    ("handler", "isolation"),
    [(handlers.keep, "thread"), (handlers.keep_async, "thread"), (handlers.keep, "process")],
    ids=["thread", "loop", "child"],
)
def test_a_file_is_kept_read_listed_and_deleted(
    app: rota.Rota, watch: Watch, handler: Any, isolation: str
) -> None:
    task = app.job("keeper", isolation=isolation, max_attempts=1)(handler)
    app.start()
    made = task.enqueue()
    run = watch.end(made.id)
    assert run.state == "succeeded", run.error
    told = json.loads(run.result or "")
    assert told == {
        "same": True,
        "types": ["text/csv", "text/plain; charset=utf-8"],
        "by": ["keeper", True],
        "kept_for": 86_400.0,
        "page": True,
        "deleted": [True, False],
        "gone": None,
        "other": told["other"],
    }
    (left,) = app.control.files()
    assert (left["id"], left["name"], left["size"]) == (told["other"], "notes", 9)
    assert app.control.file_content(left["id"]) == "für alle".encode()
    assert app.control.delete_file(left["id"])
    assert app.control.files() == []
    assert app.control.audit()[0]["action"] == "delete_file"


@pytest.mark.parametrize("isolation", ["thread", "process"])
@pytest.mark.parametrize(
    ("handler", "told"),
    [
        (handlers.keep_too_much, "Invalid: file 'huge' has 8,388,609 bytes; the limit is"),
        (handlers.read_nothing, "Unknown: file 'nothing' is not kept, or no longer"),
    ],
)
def test_what_cannot_be_done_fails_the_attempt(
    app: rota.Rota, watch: Watch, handler: Any, told: str, isolation: str
) -> None:
    task = app.job("keeper", isolation=isolation, max_attempts=1)(handler)
    app.start()
    run = watch.end(task.enqueue().id)
    assert run.state == "dead"
    assert told in str(run.error)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"name": 5, "content": b""}, "file name 5 must be text"),
        ({"name": "n", "content": 5}, "its content is a int; pass bytes or text"),
        ({"name": "n", "content": "\ud800"}, "half of a surrogate pair"),
        ({"name": "n", "content": b"", "ttl": "-1s"}, "ttl"),
        ({"name": "n", "content": b"", "content_type": "x" * 600}, "content_type"),
    ],
)
def test_a_bad_file_is_refused(driven: Driven, given: dict[str, Any], told: str) -> None:
    caught: list[str] = []

    @driven.app.job()
    def keep(ctx: rota.Context) -> None:
        with pytest.raises(rota.Invalid, match=told) as error:
            ctx.storage.put(**given)
        caught.append(str(error.value))

    keep.enqueue()
    (run,) = driven.drain()
    assert run.state == "succeeded", run.error
    assert caught
    assert driven.app.control.files() == []


@pytest.mark.parametrize("limit", [0, 501, "x", True])
def test_a_page_has_its_limit(driven: Driven, limit: Any) -> None:
    @driven.app.job(max_attempts=1)
    def look(ctx: rota.Context) -> None:
        ctx.storage.list(limit=limit)

    look.enqueue()
    (run,) = driven.drain()
    assert "must be a whole number from 1 to 500" in str(run.error)
