"""Tokens: who may use this API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from rota.model.token import Token
from rota.web.models import END, Instant, Limit, Name, Page, RequestModel, ResponseModel
from rota.web.routing import Ask

Role = Literal["viewer", "operator", "admin"]
TokenId = Annotated[str, Meta(pattern=f"^[0-9a-f]{{16}}{END}")]


class TokensQuery(RequestModel):
    after: Annotated[str, Meta(pattern=f"^[0-9a-f]{{0,16}}{END}")] = ""
    limit: Limit = 100


class NewToken(RequestModel):
    """`expires`: a duration from now, or an instant; never if it is null."""

    name: Annotated[Name, Meta(examples=["ci"])]
    role: Role
    expires: Annotated[str, Meta(max_length=64, examples=["90d"])] | None = None


class TokenOut(ResponseModel):
    id: str
    name: str
    role: Role
    created_at: Instant
    created_by: str
    expires_at: Instant | None
    revoked_at: Instant | None
    revoked_by: str | None


class MadeToken(TokenOut):
    """`token` is shown once: only its hash is kept."""

    token: str


def list_tokens(ask: Ask, query: TokensQuery) -> Page[TokenOut]:
    """Every token that was ever made, without its secret."""
    tokens = ask.control.tokens(**query.given())
    items = [TokenOut(**_fields(token)) for token in tokens]
    return Page(items=items, next=tokens[-1].id if len(tokens) == query.limit else None)


def create_token(ask: Ask, body: NewToken) -> MadeToken:
    """Make a token. The answer is the only place where it can be read."""
    made, text = ask.control.create_token(body.name, body.role, expires=body.expires)
    return MadeToken(**_fields(made), token=text)


def revoke_token(ask: Ask, token: TokenId) -> TokenOut:
    """Revoke a token at once and for good; its sessions end, too."""
    return TokenOut(**_fields(ask.control.revoke_token(token)))


def _fields(token: Token) -> dict[str, Any]:
    return {name: getattr(token, name) for name in Token.__dataclass_fields__}
