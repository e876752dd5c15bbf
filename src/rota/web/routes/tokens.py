"""Tokens: who may use this API."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import Field

from rota.model.token import Token
from rota.web.routing import Answer, Asked, Routes
from rota.web.shapes import Asking, BodyName, Limit, Page, Telling

routes = Routes("tokens")

Role = Literal["viewer", "operator", "admin"]
TokenId = Annotated[str, Path(pattern="^[0-9a-f]{16}$")]


class NewToken(Asking):
    """`expires`: a duration from now, or an instant; never if it is null."""

    name: BodyName = Field(examples=["ci"])
    role: Role
    expires: Annotated[str | None, Field(max_length=64, examples=["90d"])] = None


class TokenOut(Telling):
    id: str
    name: str
    role: Role
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None


class MadeToken(TokenOut):
    """`token` is shown once: only its hash is kept."""

    token: str


@routes.get("/tokens", Page[TokenOut])
def list_tokens(
    ask: Asked,
    after: Annotated[str, Query(pattern="^[0-9a-f]{0,16}$")] = "",
    limit: Limit = 100,
) -> Any:
    """Every token that was ever made, without its secret."""
    found = ask.control.tokens(after=after, limit=limit)
    items = [_told(one) for one in found]
    return {"items": items, "next": found[-1].id if len(found) == limit else None}


@routes.post("/tokens", MadeToken, status_code=201)
def create_token(ask: Asked, new: NewToken) -> Any:
    """Make a token. The answer is the only place where it can be read."""
    made, text = ask.control.create_token(new.name, new.role, expires=new.expires)
    return Answer(body={**_told(made), "token": text}, status=201)


@routes.delete("/tokens/{token}", TokenOut)
def revoke_token(ask: Asked, token: TokenId) -> Any:
    """Revoke a token at once and for good; its sessions end, too."""
    return _told(ask.control.revoke_token(token))


def _told(token: Token) -> dict[str, Any]:
    return {name: getattr(token, name) for name in Token.__dataclass_fields__}
