"""Traces: one from the enqueue to the last span of a handler, whatever process it runs in."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rota
from rota import tracing
from rota.flow.fire import Fire
from rota.model.job import Job
from rota.model.plan import FirePlan
from rota.storage import operations
from rota.storage.operations.firing import Fired
from tests.api import handlers
from tests.api.support import Driven, Watch, wait_until
from tests.support.operations import replace_operation
from tests.surface.conftest import environment


class Spans:
    """What was told, by name."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def named(self, name: str) -> list[ReadableSpan]:
        return [one for one in self._exporter.get_finished_spans() if one.name == name]

    def one(self, name: str) -> ReadableSpan:
        found = self.named(name)
        names = [span.name for span in self._exporter.get_finished_spans()]
        assert len(found) == 1, names
        return found[0]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # A process configures one provider, once; here each test has its own.
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)
    yield Spans(exporter)
    provider.shutdown()


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    assert span.context is not None
    assert parent.context is not None
    same = span.context.trace_id == parent.context.trace_id
    return same and span.parent is not None and span.parent.span_id == parent.context.span_id


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def test_an_attempt_is_a_child_of_what_enqueued_it(driven: Driven, spans: Spans) -> None:
    seen = []
    driven.app.job("work")(lambda: seen.append(trace.get_current_span()))
    with trace.get_tracer("shop").start_as_current_span("request"):
        made = driven.app.enqueue("work")
    driven.drain()
    request, enqueue, run = spans.one("request"), spans.one("enqueue work"), spans.one("run work")
    assert is_child(enqueue, request)
    assert is_child(run, enqueue)
    assert seen[0].get_span_context() == run.context
    assert attributes(enqueue) == {"rota.job": "work", "rota.queue": "default", "rota.runs": 1}
    assert attributes(run) == {
        "rota.job": "work", "rota.queue": "default", "rota.run_id": made.id, "rota.attempt": 1,
        "rota.outcome": "succeeded",
    }  # fmt: skip
    assert not run.status.description


def test_runs_of_one_call_share_its_trace(driven: Driven, spans: Spans) -> None:
    work = driven.app.job("work")(lambda: None)
    work.enqueue_many([{}, {}, {}])
    work.enqueue(key="only")
    driven.app.control.trigger("work")
    driven.drain()
    enqueues, runs = spans.named("enqueue work"), spans.named("run work")
    assert [sum(is_child(run, one) for run in runs) for one in enqueues] == [3, 1, 1]


def test_each_attempt_has_its_span_and_a_failed_one_says_why(driven: Driven, spans: Spans) -> None:
    @driven.app.job(max_attempts=2, delay="1s")
    def work(token: str) -> None:
        raise RuntimeError(f"no bread for {token}")

    work.enqueue(token="canary-value")
    driven.drain()
    driven.advance("2s")
    first, second = spans.named("run work")
    assert [attributes(span)["rota.attempt"] for span in (first, second)] == [1, 2]
    enqueue = spans.one("enqueue work")
    assert is_child(first, enqueue)
    assert is_child(second, enqueue)
    for span in (first, second):
        assert span.status.status_code is trace.StatusCode.ERROR
        assert span.status.description == "RuntimeError: no bread for [redacted]"
        assert not span.events  # no traceback that nobody redacted


def test_a_fire_is_a_trace_of_its_own(driven: Driven, spans: Spans) -> None:
    @driven.app.job(every="1h", overlap="allow")
    def work() -> None:
        pass

    driven.app.load()
    driven.advance("2h")
    fires, runs = spans.named("fire work"), spans.named("run work")
    assert len(fires) == len(runs) == 2
    assert [sum(is_child(run, fire) for run in runs) for fire in fires] == [1, 1]
    assert all(fire.parent is None for fire in fires)
    assert attributes(fires[0]) == {"rota.schedule": "work", "rota.job": "work"}


def test_steps_are_children_of_their_attempt(
    make_app: Callable[..., rota.Rota], spans: Spans, tmp_path: Path
) -> None:
    folder = tmp_path / "jobs.d" / "books"
    folder.mkdir(parents=True)
    (folder / "job.toml").write_text("schedule = false\n")
    (folder / "01_good.sql").write_text("SELECT 1;")
    (folder / "02_bad.sql").write_text("SELECT nothing FROM nowhere;")
    app = make_app(jobs_dir=str(tmp_path / "jobs.d"))
    watch = Watch(app)
    app.start()
    watch.end(app.enqueue("books").id)
    app.stop()
    run = spans.one("run books")
    good, bad = spans.one("step 01_good.sql"), spans.one("step 02_bad.sql")
    assert is_child(good, run)
    assert is_child(bad, run)
    assert good.status.status_code is trace.StatusCode.UNSET
    assert bad.status.status_code is trace.StatusCode.ERROR
    assert "02_bad.sql" in (bad.status.description or "")


@pytest.mark.each_engine
@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_handler_is_inside_of_its_attempt_in_any_process(
    app: rota.Rota, watch: Watch, spans: Spans, isolation: str
) -> None:
    app.job("work", isolation=isolation)(handlers.current_span)
    app.start()
    ended = watch.end(app.enqueue("work").id)
    app.stop()
    context = spans.one("run work").context
    assert context is not None
    assert json.loads(ended.result or "") == {
        "trace": f"{context.trace_id:032x}", "span": f"{context.span_id:016x}",
    }  # fmt: skip


def test_async_handlers_that_run_together_keep_their_own(
    app: rota.Rota, watch: Watch, spans: Spans
) -> None:
    import asyncio

    @app.job
    async def work() -> dict[str, str]:
        before = handlers.current_span()
        await asyncio.sleep(0)
        assert handlers.current_span() == before
        return before

    ids = [made.id for made in work.enqueue_many([{}] * 5)]
    app.start()
    told = {json.loads(watch.end(one).result or "")["span"] for one in ids}
    app.stop()
    assert told == {f"{one.context.span_id:016x}" for one in spans.named("run work") if one.context}
    assert len(told) == 5


def test_a_row_with_nonsense_in_it_begins_a_trace_of_its_own(
    driven: Driven, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    driven.app.job("work")(lambda: None)
    monkeypatch.setattr("rota.tracing.traceparent", lambda span: "'; DROP TABLE runs; --")
    driven.app.enqueue("work")
    driven.drain()
    assert spans.one("run work").parent is None


def test_a_fire_of_another_process_and_one_that_makes_nothing(
    driven: Driven, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []
    begin = tracing.begin_fire
    monkeypatch.setattr(tracing, "begin_fire", lambda *told: begun.append(told) or begin(*told))
    for name, options in {
        "ours": {}, "theirs": {}, "nothing": {"catch_up": "none", "misfire_grace": "1s"},
    }.items():  # fmt: skip
        driven.app.job(name, every="1h", **options)(lambda: None)
    driven.app.load()
    driven.clock.now += timedelta(hours=1, minutes=1)
    fire = Fire(driven.store, monotonic=lambda: driven.clock.now.timestamp(), fired=lambda: None)

    def late(
        plain: Callable[..., Fired], plans: list[FirePlan], jobs: Mapping[str, Job], _: object
    ) -> Fired:
        """Another process is first with one of them."""
        plain([plan for plan in plans if plan.schedule.name == "theirs"], jobs)
        return plain(plans, jobs)

    replace_operation(monkeypatch, driven.store, operations.fire, late)
    fire.step()
    assert sorted(begun) == [("ours", "ours"), ("theirs", "theirs")]
    assert "rota.fired" not in attributes(spans.one("fire ours"))
    assert attributes(spans.one("fire theirs"))["rota.fired"] is False

    def away(*asked: object) -> Fired:
        raise rota.Unavailable("away")

    replace_operation(monkeypatch, driven.store, operations.fire, away)
    driven.clock.now += timedelta(hours=1)
    with pytest.raises(rota.Unavailable):
        fire.step()
    assert [attributes(one).get("rota.fired") for one in spans.named("fire ours")] == [None, False]


class Failing(SpanProcessor):
    """Fails at one of the two: the SDK lets its processors fail into the program."""

    def __init__(self, at: str) -> None:
        self.at = at

    def on_start(self, span: object, parent_context: object = None) -> None:
        if self.at == "start":
            raise RuntimeError("no exporter")

    def on_end(self, span: object) -> None:
        if self.at == "end":
            raise RuntimeError("no exporter")


class NoTracer(TracerProvider):
    def get_tracer(self, *told: object, **more: object) -> NoReturn:
        raise RuntimeError("no tracer")


@pytest.mark.parametrize("at", ["start", "end", "tracer"])
def test_a_tracer_that_fails_harms_no_run(
    make_app: Callable[..., rota.Rota],
    tmp_path: Path,
    at: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    provider = NoTracer() if at == "tracer" else TracerProvider()
    provider.add_span_processor(Failing(at))
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)
    monkeypatch.setattr(tracing, "_told", False)
    folder = tmp_path / "jobs.d" / "books"
    folder.mkdir(parents=True)
    (folder / "job.toml").write_text("schedule = false\n")
    (folder / "01.sql").write_text("SELECT 1;")
    app = make_app(jobs_dir=str(tmp_path / "jobs.d"), slots=1)
    watch = Watch(app)
    app.job("plain")(lambda: None)
    app.job("often", every="50ms")(lambda: None)

    @app.job()
    async def on_loop() -> None: ...

    @app.job(max_attempts=1)
    def fail() -> None:
        raise ValueError("no")

    app.start()
    ends = [watch.end(app.enqueue(name).id) for name in ("plain", "on_loop", "books", "fail")]
    told = [(run.state, run.failures, run.lost) for run in ends]
    assert told == [("succeeded", 0, 0)] * 3 + [("dead", 1, 0)]
    wait_until(lambda: app.runs("often"), "a fire")
    app.stop()
    (line,) = [one.getMessage() for one in caplog.records if one.name == "rota.tracing"]
    assert line.startswith("a tracer failed, from now on spans may be missing: RuntimeError: no ")


@pytest.mark.parametrize("setup", ["", "import opentelemetry.trace"])
def test_without_a_provider_nothing_is_traced_or_imported(setup: str, tmp_path: Path) -> None:
    code = f"""
{setup}
import sys, rota
before = set(sys.modules)
app = rota.Rota("sqlite:///{tmp_path}/rota.db")
work = app.job("work")(lambda: None)
run = app.enqueue("work").id
import threading
done = threading.Event()
app.on("job.completed")(lambda event: done.set())
app.start()
assert done.wait(20)
assert app.control.run(run).trace is None
app.stop()
print([name for name in set(sys.modules) - before if name.startswith("opentelemetry")])
"""
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment()
    )
    assert told.stdout.strip() == "[]", told.stderr
