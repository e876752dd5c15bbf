"""Who asks: by token, by session, from this machine, or nobody we know.

A token comes in the header `Authorization: Bearer rota_…` and needs nothing else. A browser shows a
token once and has a session from then on: a cookie that no script can read, and a second secret
that it sends along in `X-Rota-CSRF`. Sessions are kept in memory, by the hash of their cookie: a
process that starts anew asks for the token again, and a token that is revoked ends its sessions.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from starlette.datastructures import Headers

from rota.model.limits import KEY_LENGTH, SESSION_HOURS, SESSIONS, WRONG_TOKENS, clip
from rota.model.roles import OPERATOR, VIEWER
from rota.model.token import Token, read_token
from rota.storage import operations
from rota.storage.operations.audit import Actor
from rota.storage.store import Store
from rota.web.errors import Refused

COOKIE = "rota_session"
CSRF_HEADER = "X-Rota-CSRF"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
MINUTE = 60.0
ADDRESSES = 10_000  # whose wrong tokens are remembered
GOOD_TOKENS = 1_000  # that an address with many wrong ones may go on using

T = TypeVar("T")

NOBODY, LOCAL, TOKEN, SESSION = "nobody", "local", "token", "session"


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """`role` None may use nothing but what is public."""

    kind: str
    name: str
    role: str | None
    address: str
    session: Session | None = None

    @property
    def actor(self) -> Actor:
        """As the audit has it: who, and from where."""
        return Actor(by=self.name, via=clip(f"http {self.address}", KEY_LENGTH))


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """`token_id` None: given to a browser on this machine, by --open-local."""

    csrf: str
    token_id: str | None
    until: float


class Doorkeeper:
    """`open_local` gives browsers of this machine a session without a token."""

    def __init__(
        self,
        storage: Callable[[], Store],
        *,
        port: int = 0,
        open_local: bool = False,
        wrong_tokens: int = WRONG_TOKENS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._storage, self.open_local, self._monotonic = storage, open_local, monotonic
        # Browsers hand a cookie to every port of a machine: each Rota has a name of its own for it.
        self.cookie = f"{COOKIE}_{port}"
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._good: OrderedDict[str, None] = OrderedDict()
        self._wrong = WrongTokens(wrong_tokens, monotonic)
        self._guard = threading.Lock()

    def identify(self, headers: Headers, address: str, *, local: bool) -> Who:
        """Reads the store where a token or a session is shown. A wrong token is refused; a session
        that is over is as good as none. `local`: from this machine, and nobody in between."""
        told = headers.get("authorization")
        if told is not None:
            scheme, _, text = told.partition(" ")
            if scheme.lower() != "bearer":
                raise _unauthenticated("show a token in the header Authorization as `Bearer TOKEN`")
            token = self.check(text.strip(), address)
            return Who(kind=TOKEN, name=token.name, role=token.role, address=address)
        session = self._session(headers)
        if session is not None:
            who = self.of_session(session, address, local=local)
            if who is not None:
                return who
        return of_place(address, local=local)

    def check(self, text: str, address: str) -> Token:
        """The token, if it is a good one. An address that showed too many wrong ones is not even
        looked at for a while, but for what was good before."""
        mark = _digest(text)
        with self._guard:
            known = mark in self._good
        if not known and (seconds := self._wrong.blocked(address)):
            raise Refused(
                429,
                "too-many-wrong-tokens",
                f"too many wrong tokens from {address}; try again in {seconds} s",
                {"Retry-After": str(seconds)},
            )
        read = read_token(text)
        token = None if read is None else self._storage().peek(operations.known_token, *read)
        with self._guard:
            if token is None:
                self._good.pop(mark, None)
            else:
                _keep(self._good, mark, None, GOOD_TOKENS)
        if token is None:
            self._wrong.add(address)
            raise _unauthenticated(
                "this token is wrong, revoked or expired; `rota token list` shows the good ones, "
                "`rota token create NAME` makes another"
            )
        return token

    # Sessions

    def begin(self, token: Token | None) -> tuple[str, Session]:
        """(what the cookie holds, the session)."""
        cookie = secrets.token_urlsafe(32)
        session = Session(
            csrf=secrets.token_urlsafe(32),
            token_id=None if token is None else token.id,
            until=self._monotonic() + SESSION_HOURS * 3600,
        )
        with self._guard:
            _keep(self._sessions, _digest(cookie), session, SESSIONS)
        return cookie, session

    def end(self, headers: Headers) -> None:
        cookie = self._cookie(headers)
        if cookie is not None:
            with self._guard:
                self._sessions.pop(_digest(cookie), None)

    def _cookie(self, headers: Headers) -> str | None:
        # By hand: other programs of this machine leave cookies here that no parser likes.
        for part in headers.get("cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == self.cookie:
                return value
        return None

    def _session(self, headers: Headers) -> Session | None:
        cookie = self._cookie(headers)
        if cookie is None:
            return None
        # Found by a hash: how long it takes says nothing about the cookies there are.
        mark = _digest(cookie)
        with self._guard:
            session = self._sessions.get(mark)
            if session is not None and session.until < self._monotonic():
                del self._sessions[mark]
                return None
        return session

    def of_session(self, session: Session, address: str, *, local: bool) -> Who | None:
        if session.token_id is None:
            if not local or not self.open_local:
                return None
            return Who(kind=SESSION, name="local", role=OPERATOR, address=address, session=session)
        token = self._storage().peek(operations.live_token, session.token_id)
        if token is None:
            return None
        return Who(kind=SESSION, name=token.name, role=token.role, address=address, session=session)


class WrongTokens:
    """How many wrong tokens an address showed in its current minute."""

    def __init__(self, most: int, monotonic: Callable[[], float]) -> None:
        self._most, self._monotonic = most, monotonic
        self._seen: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._guard = threading.Lock()

    def blocked(self, address: str) -> int:
        """Seconds until it may try again; 0 if it may now."""
        with self._guard:
            began, count = self._seen.get(address, (0.0, 0))
            left = began + MINUTE - self._monotonic()
            return int(left) + 1 if count >= self._most and left > 0 else 0

    def add(self, address: str) -> None:
        with self._guard:
            now = self._monotonic()
            began, count = self._seen.get(address, (now, 0))
            if now - began > MINUTE:
                began, count = now, 0
            _keep(self._seen, address, (began, count + 1), ADDRESSES)


def of_place(address: str, *, local: bool) -> Who:
    """Who shows nothing: somebody on this machine, or nobody we know."""
    if local:
        return Who(kind=LOCAL, name="local", role=VIEWER, address=address)
    return Who(kind=NOBODY, name="nobody", role=None, address=address)


def check_csrf(headers: Headers, who: Who) -> None:
    """A cookie comes along with whatever a browser sends, so a session proves that it is its own
    page that asks."""
    if who.session is None:
        return
    shown = headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(shown.encode(), who.session.csrf.encode()):
        raise Refused(
            403, "csrf", f"a session must send its secret in {CSRF_HEADER}; GET /api/v1/session"
        )


def is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)


def _unauthenticated(detail: str) -> Refused:
    return Refused(401, "unauthenticated", detail, {"WWW-Authenticate": 'Bearer realm="rota"'})


def no_token() -> Refused:
    return _unauthenticated(
        "this needs a token in the header Authorization as `Bearer TOKEN`; the first start wrote "
        "one to .rota/token, and `rota token create` makes others"
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _keep(kept: OrderedDict[str, T], name: str, value: T, most: int) -> None:
    """The newest `most` of them."""
    kept[name] = value
    kept.move_to_end(name)
    while len(kept) > most:
        kept.popitem(last=False)
