"""Sessions: how a browser shows its token once."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from rota.model.limits import SESSION_HOURS
from rota.web.errors import Refused
from rota.web.models import RequestModel, ResponseModel
from rota.web.routing import Answer, Ask
from rota.web.who import NOBODY, Who, no_token

TokenText = Annotated[str, Meta(max_length=200, examples=["rota_9f2c41d07a3be85c_Jt0…"])]


class Login(RequestModel):
    """With a token; without one only where --open-local is on, from this machine."""

    token: TokenText | None = None


class WhoAmI(ResponseModel):
    """`csrf` goes into the header X-Rota-CSRF of whatever changes something; null without a
    session. `open_local`: POST without a token begins one here."""

    kind: Literal["nobody", "local", "token", "session"]
    name: str
    role: Literal["viewer", "operator", "admin"] | None
    csrf: str | None
    open_local: bool


def who_am_i(ask: Ask) -> WhoAmI:
    """Who asks, and what they may do."""
    return _out(ask, ask.who)


def begin_session(ask: Ask, body: Login) -> Answer[WhoAmI]:
    """Begin a session. The answer sets a cookie that no script can read."""
    keeper, request = ask.doorkeeper, ask.request
    address = ask.who.address
    if body.token is None:
        if not keeper.open_local or not request.state.local:
            raise no_token()
        token = None
    else:
        token = keeper.check(body.token, address)
    cookie, session = keeper.begin(token)
    who = keeper.of_session(session, address, local=request.state.local)
    if who is None:
        raise Refused(401, "unauthenticated", "this token was revoked just now")
    return Answer(body=_out(ask, who), headers={"Set-Cookie": _cookie(ask, cookie)})


def end_session(ask: Ask) -> Answer[None]:
    """End the session, if there is one."""
    ask.doorkeeper.end(ask.request.headers)
    return Answer(body=None, headers={"Set-Cookie": _cookie(ask, "", seconds=0)})


def _out(ask: Ask, who: Who) -> WhoAmI:
    fields = {
        "kind": who.kind,
        "name": who.name if who.kind != NOBODY else "nobody",
        "role": who.role,
        "csrf": None if who.session is None else who.session.csrf,
        "open_local": ask.doorkeeper.open_local and ask.request.state.local,
    }
    return msgspec.convert(fields, WhoAmI)


def _cookie(ask: Ask, value: str, seconds: int = SESSION_HOURS * 3600) -> str:
    secure = "; Secure" if ask.request.url.scheme == "https" else ""
    return (
        f"{ask.doorkeeper.cookie}={value}; Path=/; HttpOnly; SameSite=Strict; "
        f"Max-Age={seconds}{secure}"
    )
