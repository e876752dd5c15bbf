"""Sessions: how a browser shows its token once."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.responses import Response

from rota.model.limits import SESSION_HOURS
from rota.web.problems import Refused
from rota.web.routing import Answer, Ask, Asked, Routes
from rota.web.shapes import Asking, Telling
from rota.web.who import NOBODY, Session, Who, no_token

routes = Routes("session")


class Login(Asking):
    """With a token; without one only where --open-local is on, from this machine."""

    token: Annotated[str | None, Field(max_length=200, examples=["rota_9f2c41d07a3be85c_Jt0…"])] = (
        None
    )


class WhoAmI(Telling):
    """`csrf` goes into the header X-Rota-CSRF of whatever changes something; null without a
    session. `open_local`: POST without a token begins one here."""

    kind: Literal["nobody", "local", "token", "session"]
    name: str
    role: Literal["viewer", "operator", "admin"] | None
    csrf: str | None
    open_local: bool


@routes.get("/session", WhoAmI)
def who_am_i(ask: Asked) -> Any:
    """Who asks, and what they may do."""
    return _told(ask, ask.who)


@routes.post("/session", WhoAmI)
def begin_session(ask: Asked, login: Login) -> Any:
    """Begin a session. The answer sets a cookie that no script can read."""
    keeper, request = ask.doorkeeper, ask.request
    address = ask.who.address
    if login.token is None:
        if not keeper.open_local or not request.state.local:
            raise no_token()
        token = None
    else:
        token = keeper.check(login.token, address)
    cookie, session = keeper.begin(token)
    who = keeper.of_session(session, address, local=request.state.local)
    if who is None:
        raise Refused(401, "unauthenticated", "this token was revoked just now")
    answer = Answer(body=_told(ask, who), headers={"Set-Cookie": _cookie(ask, cookie)})
    return answer


@routes.delete("/session", status_code=204)
def end_session(ask: Asked) -> Response:
    """End the session, if there is one."""
    ask.doorkeeper.end(ask.request.headers)
    return Response(status_code=204, headers={"Set-Cookie": _cookie(ask, "", seconds=0)})


def _told(ask: Ask, who: Who) -> dict[str, Any]:
    session: Session | None = who.session
    return {
        "kind": who.kind,
        "name": who.name if who.kind != NOBODY else "nobody",
        "role": who.role,
        "csrf": None if session is None else session.csrf,
        "open_local": ask.doorkeeper.open_local and ask.request.state.local,
    }


def _cookie(ask: Ask, value: str, seconds: int = SESSION_HOURS * 3600) -> str:
    secure = "; Secure" if ask.request.url.scheme == "https" else ""
    return (
        f"{ask.doorkeeper.cookie}={value}; Path=/; HttpOnly; SameSite=Strict; "
        f"Max-Age={seconds}{secure}"
    )
