"""The http executor: sends a request, follows redirects, and checks the response.

| response | the attempt |
|---|---|
| one of `ok_codes` | succeeded; its result has the status, some headers and a part of the body |
| 408, 425, 429, 5xx, or none | failed; retried by the job's policy, not before `Retry-After` |
| any other | failed for good: the same request would get the same response |
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from rota.errors import Invalid
from rota.executors.attempt import conclude
from rota.executors.context import Context
from rota.executors.http.answer import excerpt, result_of, retry_after
from rota.executors.http.request import Request, request_of
from rota.executors.http.spec import check_spec, is_ok
from rota.executors.http.wire import Cut, Exchange, NoResponse, Resolve, Response, resolve
from rota.executors.later import Timer
from rota.executors.networks import parse_network
from rota.model.duration import format_duration
from rota.model.job import Job
from rota.model.limits import ANSWER_SECONDS
from rota.model.outcome import Outcome

REDIRECTED = (301, 302, 303, 307, 308)
TRANSIENT = (408, 425, 429)  # the 4xx statuses for which a retry may help


class HttpExecutor:
    name = "http"

    def __init__(
        self,
        *,
        allow: Iterable[str] = (),
        resolve: Resolve = resolve,
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        """`allow` are networks that may be used though they are not public.

        `seconds` is the timeout of a job that sets none."""
        self.allowed = tuple(map(parse_network, allow))
        self.resolve, self.seconds = resolve, seconds
        self._timer = Timer("rota-http")

    def check(self, job: Job) -> None:
        """Refuse a job that no worker could run. Its host is resolved when it runs."""
        check_spec(job, self.allowed)

    def run(self, context: Context) -> Outcome:
        if context.stop_reason is not None:
            return conclude(None, context)
        try:
            request = request_of(context)
        except Invalid as fault:  # a retry would find the same spec
            return _failed(str(fault), final=True)
        context.add_secrets(request.secrets)
        return self._run(context, request)

    def close(self) -> None:
        self._timer.close()

    def _run(self, context: Context, request: Request) -> Outcome:
        span = context.timeout or timedelta(seconds=self.seconds)
        exchange = Exchange(
            seconds=span.total_seconds(), allowed=self.allowed, resolve=self.resolve
        )
        context.on_stop(lambda reason: exchange.cut())
        if context.timeout is None:  # otherwise the worker stops it
            self._timer.call(span.total_seconds(), exchange.cut)
        try:
            response, last = self._send(context, exchange, request)
        except Cut:
            return self._cut(context, span)
        except NoResponse as fault:
            return conclude(_failed(str(fault)), context)
        except Invalid as fault:
            return conclude(_failed(str(fault), final=True), context)
        return conclude(self._outcome(context, response, last), context)

    def _send(
        self, context: Context, exchange: Exchange, request: Request
    ) -> tuple[Response, Request]:
        """The final response, and the request that it answers."""
        redirects_left = context.definition.spec.get("redirects", 0)
        while True:
            response = exchange.send(request)
            context.logger.info(
                "%s %s: %d %s",
                request.method, request.url.redacted, response.status, response.reason,
            )  # fmt: skip
            location = response.headers.get("location")
            if not redirects_left or response.status not in REDIRECTED or location is None:
                return response, request
            redirects_left -= 1
            try:
                request = request.redirected(response.status, location)
            except Invalid as fault:
                raise Invalid(f"a redirect of {request.url.redacted} is refused: {fault}") from None

    def _outcome(self, context: Context, response: Response, request: Request) -> Outcome:
        if is_ok(response.status, context.definition.spec):
            return Outcome(kind="succeeded", result=result_of(response, context.secrets))
        message = f"{request.url.redacted} answered {response.status} {response.reason}".rstrip()
        if response.status in REDIRECTED and "location" in response.headers:
            message += "; redirects = 3 would follow it"
        if text := excerpt(response, context.secrets):
            message += f": {text}"
        final = response.status < 500 and response.status not in TRANSIENT
        after = None if final else retry_after(response)
        return _failed(message, final=final, after=after)

    def _cut(self, context: Context, span: timedelta) -> Outcome:
        if context.stop_reason is None:
            message = f"no whole answer within {format_duration(span)}"
            hint = "" if context.timeout else "; a job that may take longer sets a timeout"
            return Outcome(kind="timed_out", error=message + hint)
        return conclude(None, context)


def _failed(message: str, *, final: bool = False, after: timedelta | None = None) -> Outcome:
    return Outcome(kind="failed", error=message, final=final, after=after)
