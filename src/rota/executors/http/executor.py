"""The http executor: send one request, follow redirects if asked to, and judge the answer.

| answer | the attempt |
|---|---|
| one of `ok_codes` | succeeded; its result is the status, some headers and a part of the body |
| 408, 425, 429, 5xx, or none | failed, tried again as the job's retries say; `Retry-After` counts |
| any other | failed for good: the same request would be answered in the same way |
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from rota.errors import Invalid
from rota.executors.attempt import conclude
from rota.executors.context import Context
from rota.executors.http.answer import kept, retry_after, said
from rota.executors.http.request import Request, request_of
from rota.executors.http.spec import check_spec, is_ok
from rota.executors.http.wire import Answer, Cut, Resolve, Unanswered, Wire, resolve
from rota.executors.later import Later
from rota.executors.networks import parse_network
from rota.model.duration import format_duration
from rota.model.job import Job
from rota.model.limits import ANSWER_SECONDS
from rota.model.outcome import Outcome

REDIRECTED = (301, 302, 303, 307, 308)
PASSING = (408, 425, 429)  # of the answers that blame the request, those that time may change


class HttpExecutor:
    name = "http"

    def __init__(
        self,
        *,
        allow: Iterable[str] = (),
        resolve: Resolve = resolve,
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        """`allow` are networks that are not public, and may be used all the same; `seconds` is
        how long an answer may take where a job has no timeout."""
        self.allowed = tuple(parse_network(one) for one in allow)
        self.resolve, self.seconds = resolve, seconds
        self._later = Later("rota-http")

    def check(self, job: Job) -> None:
        """Refuse a job that no worker could run. A name is resolved when it runs."""
        check_spec(job, self.allowed)

    def run(self, context: Context) -> Outcome:
        if context.stop_reason is not None:
            return conclude(None, context)
        try:
            request = request_of(context)
        except Invalid as fault:  # what the job says stays as it is: to try again is no use
            return _failed(str(fault), final=True)
        context.add_secrets(request.secrets)
        return self._run(context, request)

    def close(self) -> None:
        self._later.close()

    def _run(self, context: Context, request: Request) -> Outcome:
        span = context.timeout or timedelta(seconds=self.seconds)
        wire = Wire(seconds=span.total_seconds(), allowed=self.allowed, resolve=self.resolve)
        context.on_stop(lambda reason: wire.cut())
        if context.timeout is None:  # else the worker watches, and stops it
            self._later.call(span.total_seconds(), wire.cut)
        try:
            answer, last = self._exchange(context, wire, request)
        except Cut:
            return self._cut(context, span)
        except Unanswered as fault:
            return conclude(_failed(str(fault)), context)
        except Invalid as fault:
            return conclude(_failed(str(fault), final=True), context)
        return conclude(self._judge(context, answer, last), context)

    def _exchange(self, context: Context, wire: Wire, request: Request) -> tuple[Answer, Request]:
        left = context.definition.spec.get("redirects", 0)
        while True:
            answer = wire.send(request)
            context.logger.info(
                "%s %s: %d %s", request.method, request.place.shown, answer.status, answer.reason
            )
            location = answer.headers.get("location")
            if not left or answer.status not in REDIRECTED or location is None:
                return answer, request
            left -= 1
            try:
                request = request.redirected(answer.status, location)
            except Invalid as fault:
                raise Invalid(f"a redirect of {request.place.shown} is refused: {fault}") from None

    def _judge(self, context: Context, answer: Answer, request: Request) -> Outcome:
        if is_ok(answer.status, context.definition.spec):
            return Outcome(kind="succeeded", result=kept(answer, context.secrets))
        told = f"{request.place.shown} answered {answer.status} {answer.reason}".rstrip()
        if answer.status in REDIRECTED and "location" in answer.headers:
            told += "; redirects = 3 would follow it"
        if text := said(answer, context.secrets):
            told += f": {text}"
        final = answer.status < 500 and answer.status not in PASSING
        after = None if final else retry_after(answer)
        return _failed(told, final=final, after=after)

    def _cut(self, context: Context, span: timedelta) -> Outcome:
        if context.stop_reason is None:
            told = f"no whole answer within {format_duration(span)}"
            hint = "" if context.timeout else "; a job that may take longer sets a timeout"
            return Outcome(kind="timed_out", error=told + hint)
        return conclude(None, context)


def _failed(told: str, *, final: bool = False, after: timedelta | None = None) -> Outcome:
    return Outcome(kind="failed", error=told, final=final, after=after)
