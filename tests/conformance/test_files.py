"""Files that handlers keep: bytes as they were, pages that hold still, an end in time."""

from __future__ import annotations

import hashlib
import threading
from typing import Any
from uuid import uuid4

import pytest

from rota.errors import Invalid
from rota.flow import prune
from rota.flow.prune import Prune
from rota.model.files import KeptFile, NewFile
from rota.model.limits import KEPT_FILE_BYTES
from rota.storage import operations
from rota.storage.operations import stored_files as files
from rota.storage.store import Store
from tests.conformance.support import BEGINNING, ME, PATIENCE, Place, VirtualClock, together

BYTES = bytes(range(256)) + b"\0'\\x00--"


def put(store: Store, name: str = "report.csv", content: bytes = b"x", **options: Any) -> KeptFile:
    told = {"content_type": "text/csv", **options}
    return store.write(operations.put_file, NewFile(name=name, content=content, **told))


def test_what_is_kept_comes_back_as_it_was(store: Store, clock: VirtualClock) -> None:
    run_id = str(uuid4())
    made = put(store, "a'b %.csv", BYTES, job="job", run_id=run_id, ttl_seconds=1.5)
    assert made == KeptFile(
        id=made.id,
        name="a'b %.csv",
        content_type="text/csv",
        size=len(BYTES),
        sha256=hashlib.sha256(BYTES).hexdigest(),
        created_at=BEGINNING,
        until=clock.after("1500ms"),
        job="job",
        run_id=run_id,
    )
    assert store.read(operations.kept_file, made.id) == made
    assert store.read(operations.file_content, made.id) == BYTES


@pytest.mark.parametrize("content", [b"", b"\0" * 1_000_000], ids=["nothing", "a megabyte"])
def test_any_size_within_the_limit_is_kept(store: Store, content: bytes) -> None:
    made = put(store, content=content)
    assert (made.size, made.until) == (len(content), None)
    assert store.read(operations.file_content, made.id) == content


def test_there_is_nothing_under_another_id(store: Store) -> None:
    put(store)
    assert store.read(operations.kept_file, "nothing") is None
    assert store.read(operations.file_content, "nothing") is None
    assert store.write(operations.delete_file, "nothing") is False


def test_a_deleted_file_is_gone(store: Store) -> None:
    made, other = put(store), put(store)
    assert store.write(operations.delete_file, made.id) is True
    assert store.write(operations.delete_file, made.id) is False
    assert store.read(operations.kept_file, made.id) is None
    assert store.read(operations.list_files, limit=9) == [other]
    assert store.read(operations.list_audit, limit=9) == []


def test_what_an_operator_deletes_is_audited(store: Store) -> None:
    made = put(store)
    assert store.write(operations.delete_file, made.id, ME)
    assert not store.write(operations.delete_file, made.id, ME)
    (told,) = store.read(operations.list_audit, limit=9)
    assert (told["action"], told["thing"], told["before"], told["by"]) == (
        "delete_file", made.id, "report.csv", "operator",
    )  # fmt: skip


def test_pages_hold_still_while_files_come_and_go(store: Store, clock: VirtualClock) -> None:
    made = []
    for number in range(6):
        made.append(put(store, f"{'abab'[number % 4]}/{number}"))
        clock.advance("1us")
    first = store.read(operations.list_files, limit=2)
    store.write(operations.delete_file, first[-1].id)
    store.write(operations.delete_file, made[3].id)
    rest = store.read(operations.list_files, after=first[-1].id, limit=9)
    assert [one.name for one in (*first, *rest)] == ["a/0", "b/1", "a/2", "a/4", "b/5"]
    assert [one.name for one in store.read(operations.list_files, prefix="b/", limit=9)] == ["b/5"]


@pytest.mark.parametrize("prefix", ["%", "_", "a%", "\\", "A"])
def test_a_prefix_is_only_text(store: Store, prefix: str) -> None:
    put(store, "a_b")
    assert store.read(operations.list_files, prefix=prefix, limit=9) == []


def test_a_file_is_gone_when_its_time_is_over(store: Store, clock: VirtualClock) -> None:
    kept, made = put(store), put(store, ttl_seconds=60)
    clock.advance("59999ms")
    assert store.write(operations.prune_files, limit=9) == 0
    assert store.read(operations.kept_file, made.id) == made
    clock.advance("1ms")
    assert store.read(operations.kept_file, made.id) is None
    assert store.read(operations.file_content, made.id) is None
    assert store.read(operations.list_files, limit=9) == [kept]
    assert store.write(operations.prune_files, limit=9) == 1
    assert store.write(operations.prune_files, limit=9) == 0
    assert store.write(operations.delete_file, made.id) is False


def test_pruning_is_bounded_and_part_of_the_loop(store: Store, clock: VirtualClock) -> None:
    for _ in range(3):
        put(store, ttl_seconds=1)
    clock.advance("1s")
    assert store.write(operations.prune_files, limit=2) == 2
    Prune(store).step()
    assert store.write(operations.prune_files, limit=9) == 0


def test_a_step_that_pruned_all_it_may_is_followed_at_once(
    store: Store, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune, "FILES", 2)
    for _ in range(3):
        put(store, ttl_seconds=1)
    clock.advance("1s")
    steps = Prune(store, interval=60.0)
    assert [steps.step(), steps.step()] == [0.0, 60.0]
    assert store.write(operations.prune_files, limit=9) == 0


@pytest.mark.parametrize("limit", ["KEPT_FILES", "KEPT_FILES_BYTES"])
def test_what_has_run_out_takes_no_room(
    store: Store, clock: VirtualClock, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, limit, 2)
    put(store, ttl_seconds=1)
    put(store)
    clock.advance("1s")
    put(store)
    with pytest.raises(Invalid, match="cannot be kept"):
        put(store)


@pytest.mark.parametrize("limit", ["KEPT_FILES", "KEPT_FILES_BYTES"])
def test_a_full_store_says_so(store: Store, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store)
    monkeypatch.setattr(files, limit, 2)
    put(store)
    with pytest.raises(Invalid, match=r"file 'report\.csv' cannot be kept: .* delete some, or"):
        put(store)
    assert len(store.read(operations.list_files, limit=9)) == 2


@pytest.mark.parametrize("limit", ["KEPT_FILES", "KEPT_FILES_BYTES"])
def test_a_full_store_refuses_a_file_before_it_is_written(
    place: Place, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    points: list[str] = []
    store = place.open(probe=points.append)
    put(store)
    monkeypatch.setattr(files, limit, 1)
    points.clear()
    with pytest.raises(Invalid, match="cannot be kept"):
        put(store)
    assert "stored_files.put_file.file_usage.after" in points
    assert "stored_files.put_file.insert_file.before" not in points


def test_two_that_come_at_once_do_not_both_take_the_last_place(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "KEPT_FILES", 1)
    both_sent = threading.Barrier(2, timeout=PATIENCE)

    def meet(point: str) -> None:
        # On the other engines the second one begins when the first has committed.
        if point == "stored_files.put_file.insert_file.after" and place.engine == "postgres":
            both_sent.wait()

    def keep(store: Store) -> str:
        try:
            return put(store).name
        except Invalid:
            return "refused"

    first, second = place.open(probe=meet), place.open(probe=meet)
    told = together(lambda: keep(first), lambda: keep(second))
    assert sorted(told) == ["refused", "report.csv"]
    assert len(first.read(operations.list_files, limit=9)) == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"name": ""}, "file name '' must be text of 1 to 512 characters"),
        ({"name": "x" * 513}, "must be text of 1 to 512"),
        ({"name": "a\0b"}, "must be text"),
        ({"content_type": ""}, "content_type '' must be text"),
        ({"content": b"x" * (KEPT_FILE_BYTES + 1)}, "has 8,388,609 bytes; the limit is 8,388,608"),
    ],
)
def test_what_cannot_be_kept_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(Invalid, match=told):
        NewFile(**{"name": "n", "content": b"", "content_type": "t", **options})
