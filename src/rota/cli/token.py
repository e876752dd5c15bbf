"""`rota token create|list|revoke`: who may use the HTTP API."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from rota.cli.options import HERE, Option, Where
from rota.cli.output import note, say, say_json, say_table
from rota.cli.store import operating, reading
from rota.cli.times import when
from rota.errors import Invalid
from rota.flow.control import Control
from rota.model.limits import PAGE
from rota.model.roles import ROLES, VIEWER
from rota.model.token import Token

ACTIONS = ("create", "list", "revoke")


def token(
    action: Annotated[str, Option("create, list or revoke.", "ACTION", values=ACTIONS)],
    name: Annotated[
        str | None,
        Option(
            "Whose token it is: the audit has this name. To revoke, its id will do, too.", "NAME"
        ),
    ] = None,
    /,
    *,
    role: Annotated[
        str | None,
        Option(
            "With create: viewer, operator or admin. A viewer if not given.", "ROLE", values=ROLES
        ),
    ] = None,
    expires: Annotated[
        str | None,
        Option(
            "With create: how long it is good, such as 90d, or until which instant. For ever if "
            "not given.",
            "DURATION",
        ),
    ] = None,
    where: Where = HERE,
) -> None:
    """Make, list and revoke tokens of the HTTP API."""
    if action not in ACTIONS:
        raise Invalid(f"{action!r} cannot be done to tokens; use {', '.join(ACTIONS)}")
    if action != "create" and (role is not None or expires is not None):
        raise Invalid("--role and --expires belong to create")
    if (name is None) != (action == "list"):
        raise Invalid("list takes no name" if name else f"say which: rota token {action} NAME")
    if name is None:
        _list(where)
    elif action == "create":
        _create(name, role or VIEWER, expires, where)
    else:
        _revoke(name, where)


def _create(name: str, role: str, expires: str | None, where: Where) -> None:
    with operating(where) as control:
        made, text = control.create_token(name, role, expires=expires)
    if where.json:
        return say_json({**_record(made), "token": text})
    note(f"token {made.name} ({made.role}) is made; only its hash is kept, so copy it now:")
    say(text)


def _list(where: Where) -> None:
    with reading(where) as control:
        now, tokens = control.now(), _all(control)
    tokens.sort(key=lambda one: one.created_at)  # their ids are drawn by lot
    if where.json:
        return say_json([_record(one) for one in tokens])
    say_table(
        ("id", "name", "role", "made", "by", "expires", "state"),
        (
            (
                one.id,
                one.name,
                one.role,
                when(one.created_at, now),
                one.created_by,
                "never" if one.expires_at is None else when(one.expires_at, now),
                _state(one, now),
            )
            for one in tokens
        ),
        empty="no tokens; `rota token create NAME --role admin` makes one",
    )


def _all(control: Control) -> list[Token]:
    """Page by page: of who may come in, nobody is left out."""
    found = page = control.tokens(limit=PAGE)
    while len(page) == PAGE:
        page = control.tokens(after=page[-1].id, limit=PAGE)
        found = found + page
    return found


def _revoke(which: str, where: Where) -> None:
    with operating(where) as control:
        revoked = control.revoke_token(which)
    if where.json:
        return say_json(_record(revoked))
    say(f"token {revoked.name} ({revoked.id}) is revoked")


def _state(token: Token, now: datetime) -> str:
    if token.revoked_at is not None:
        return f"revoked by {token.revoked_by}"
    return "good" if token.expires_at is None or token.expires_at > now else "expired"


def _record(token: Token) -> dict[str, Any]:
    return {name: getattr(token, name) for name in Token.__dataclass_fields__}
