"""The server: a thread of its own with an event loop, started and stopped with its app.

`prepare` takes the address and says what is wrong with it, before anything runs. Nothing here needs
the framework until `start`: it is loaded in the thread, beside the first runs.

A server that ends without a request to stop closes its sockets at once, so that clients are refused
and do not wait, and is started again on the same port after a pause that doubles.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.app import Rota
from rota.config import PORT, Settings
from rota.errors import Conflict, Invalid, MissingExtra, RotaError
from rota.extras import how_to_install, missing
from rota.flow.doctor_files import ENCRYPT, IN_CLEAR
from rota.model.host import is_loopback_host
from rota.model.limits import REASON_LENGTH
from rota.model.redact import shorten
from rota.storage import operations
from rota.web.first_token import TOKEN_FILE, ensure_token

if TYPE_CHECKING:
    import uvicorn

    from rota.web.feed import Feed

log = logging.getLogger("rota.web")

BACKLOG = 512
START_SECONDS = 60.0
# After the streams have ended: who has not taken its answer by then does not get it.
STOP_SECONDS = 3
KEEP_ALIVE_SECONDS = 15
# Before a server that has ended is started again; doubled each time.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0


class Web:
    """`error` says why it does not run, None while it does."""

    def __init__(self, app: Rota, *, wrong_tokens: int | None = None) -> None:
        self._app, self._settings = app, app.settings
        self._wrong_tokens = wrong_tokens
        self._socket: socket.socket | None = None
        self._port = 0
        self._thread: threading.Thread | None = None
        self._server: uvicorn.Server | None = None
        self._feed: Feed | None = None
        self._ready = threading.Event()
        self._draining = threading.Event()
        self._begun_at: float | None = None
        self.error: str | None = None
        self.note: str | None = None
        self.token_file: Path | None = None

    # Before

    def prepare(self) -> None:
        """Take the address. Refuses one that others can reach while there is no token."""
        if self._socket is not None:
            return
        check_installed()
        settings = self._settings
        _context(settings)  # says what is wrong with the certificate
        public = not is_loopback_host(settings.host)
        if public and not self._app.storage.read(operations.tokens_there)[1]:
            self.refuse_others()
        self._socket = self._bind(settings)
        self._port = self._socket.getsockname()[1]
        if public and settings.tls_certificate is None:
            log.warning("host %s: %s; %s", settings.host, IN_CLEAR, ENCRYPT)
        if not public:
            self.token_file = ensure_token(self._app, Path(TOKEN_FILE))

    def refuse_others(self) -> None:
        """Refuses an address that others can reach, for a store without a token."""
        check_installed()
        host = self._settings.host
        if not is_loopback_host(host):
            raise Invalid(
                f"host {host!r} can be reached by others, and there is no token yet; make one "
                "with `rota migrate` and `rota token create NAME --role admin`, or leave the host "
                "at 127.0.0.1"
            )

    def _bind(self, settings: Settings) -> socket.socket:
        try:
            return _listen(settings.host, settings.port)
        except OSError as fault:
            if fault.errno != errno.EADDRINUSE:
                raise Invalid(
                    f"host {settings.host!r}, port {settings.port}: {fault.strerror or fault}"
                ) from None
        if settings.port != PORT:
            raise Conflict(
                f"port {settings.port} is in use, perhaps by another `rota up`; stop that, or "
                "choose another port (--port 0 picks a free one)"
            )
        self.note = f"port {PORT} is in use, so this is another one; set `port` to choose"
        return _listen(settings.host, 0)

    @property
    def port(self) -> int:
        """The port of every server of this app: a later one takes the same."""
        assert self._port, "not prepared"
        return self._port

    @property
    def url(self) -> str:
        """Where a browser on this machine finds it."""
        scheme = "http" if self._settings.tls_certificate is None else "https"
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self._settings.host, self._settings.host)
        shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
        return f"{scheme}://{shown}:{self.port}"

    # Living

    def start(self) -> None:
        self.prepare()
        self._thread = threading.Thread(target=self._live, name="rota-web", daemon=True)
        self._thread.start()

    def wait_ready(self) -> None:
        """For those who ask at once."""
        if not self._ready.wait(START_SECONDS):
            raise Conflict("the web server did not start")
        if self.error is not None:
            raise Conflict(self.error)

    def drain(self) -> None:
        """The process is about to stop: streams end, and it is ready for nothing new. What is
        under way can still be looked at."""
        self._draining.set()
        if self._feed is not None:
            self._feed.stop()

    @property
    def draining(self) -> bool:
        return self._draining.is_set()

    def stop(self) -> None:
        """May be called again."""
        self.drain()
        thread, self._thread = self._thread, None
        if thread is not None:
            self._ready.wait(START_SECONDS)  # a server that just starts ends right after
            if self._server is not None:
                self._server.should_exit = True
            thread.join(STOP_SECONDS + 2)
        self._close()

    def _live(self) -> None:
        """Serve until a request to stop. A server that ends before is followed by another."""
        ends = 0
        while not self.draining:
            self._begun_at = None
            fault = self._serve()
            self._close()
            if not self.draining:
                ends = 1 if self._worked_for() > LONGEST_PAUSE else ends + 1
                self._explain_end(fault, ends)
            self._ready.set()
            self._draining.wait(pause_after(ends))

    def _serve(self) -> BaseException | None:
        """Serve once; what ended it, None for an end without a fault."""
        try:
            if self._socket is None:
                self._socket = self._listen_again()
            server = self._server = self._make_server()
            # After the assignment: a stop either finds this server or is seen here.
            if not self.draining:
                # The loop of asyncio. A program that wants another sets its policy.
                asyncio.run(_serve_until_end(server, self._socket))
        except BaseException as fault:
            if self.draining:
                log.exception("the web server has ended with an error")
            return fault
        return None

    def _listen_again(self) -> socket.socket:
        try:
            return _listen(self._settings.host, self._port)
        except OSError as fault:
            if fault.errno != errno.EADDRINUSE:
                raise
            raise Conflict(f"port {self._port} is in use by another program") from None

    def _worked_for(self) -> float:
        return 0.0 if self._begun_at is None else time.monotonic() - self._begun_at

    def _explain_end(self, fault: BaseException | None, ends: int) -> None:
        """In `error`, and in the log, which `rota up` has on its screen."""
        what = "could not start" if self._begun_at is None else "has ended"
        why = "no reason is known" if fault is None else f"{type(fault).__name__}: {fault}"
        self.error = shorten(f"the web server {what}: {why}", REASON_LENGTH)
        # A fault that stays must not fill the log.
        cause = fault if ends == 1 and not isinstance(fault, RotaError) else None
        log.error(
            "%s; everything else goes on, and port %d is served again in %.0f s",
            self.error, self._port, pause_after(ends), exc_info=cause,
        )  # fmt: skip

    def _close(self) -> None:
        """The next client is refused, and nothing reads the store for streams that are gone."""
        listener, self._socket = self._socket, None
        if listener is not None:
            listener.close()
        if self._feed is not None:
            self._feed.stop()

    def _make_server(self) -> uvicorn.Server:
        import uvicorn

        from rota.web.api import make_api
        from rota.web.feed import Feed
        from rota.web.guard import Guard
        from rota.web.protocol import HEAD_BYTES, Protocol

        settings = self._settings
        tls = settings.tls_certificate is not None
        self._feed = Feed(lambda: self._app.storage)
        api = make_api(self._app, self, self._feed, wrong_tokens=self._wrong_tokens)
        hosts = {*settings.hosts, socket.gethostname(), settings.host}
        guard = Guard(api, hosts=hosts, any_address=not is_loopback_host(settings.host), tls=tls)
        config = uvicorn.Config(
            guard,
            http=Protocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=HEAD_BYTES,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=STOP_SECONDS,
            backlog=BACKLOG,
        )
        config.load()
        config.ssl = _context(settings)
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        return uvicorn.Server(config)

    def begun(self) -> None:
        """Called by the loop once it answers."""
        self._begun_at = time.monotonic()
        if self.error is not None:
            log.info("the web server answers again on port %d", self._port)
        self.error = None
        self._ready.set()


async def _serve_until_end(server: uvicorn.Server, listener: socket.socket) -> None:
    """uvicorn closes its sockets when it is asked to stop, and only then."""
    try:
        await server.serve(sockets=[listener])
    finally:
        for listening in getattr(server, "servers", ()):
            listening.close()
        listener.close()
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # the next round of the loop closes what was aborted


def pause_after(ends: int) -> float:
    """Seconds before the next start of a server that has ended so many times in a row."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(ends - 1, 10))


def check_installed() -> None:
    """MissingExtra if the packages of the extra `web` are not there."""
    if absent := missing("web"):
        raise MissingExtra(f"the HTTP API needs {' and '.join(absent)}: {how_to_install('web')}")


def _listen(host: str, port: int) -> socket.socket:
    family, kind, proto, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    made = socket.socket(family, kind, proto)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(BACKLOG)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made


def _context(settings: Settings) -> Any:
    if settings.tls_certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    except (OSError, ssl.SSLError) as fault:
        raise Invalid(
            f"tls_certificate {settings.tls_certificate!r} or its tls_key cannot be used: {fault}"
        ) from None
    return context
