"""Tokens of the HTTP API as rows: made, found by their id, revoked; never deleted."""

from __future__ import annotations

from datetime import datetime

from rota.errors import Conflict, Unknown
from rota.model.token import Token, is_secret
from rota.storage.engine import Row, Transaction
from rota.storage.operations.audit import Actor, audit


def put_token(
    tx: Transaction,
    token_id: str,
    kept_hash: str,
    *,
    name: str,
    role: str,
    expires_at: datetime | None,
    actor: Actor,
) -> Token:
    """Keep a new token. The name is one that no other live token has, so that the audit says
    who it was."""
    tx.all("lock_tokens")
    if tx.one("live_token_named", name=name) is not None:
        raise Conflict(f"token {name!r} exists; choose another name, or `rota token revoke {name}`")
    tx.all("retire_token_name", name=name)
    row = tx.one(
        "insert_token",
        id=token_id,
        hash=kept_hash,
        name=name,
        role=role,
        created_by=actor.by,
        expires_at=expires_at,
    )
    assert row is not None
    audit(tx, actor, "create_token", name, after=role)
    return Token(**row)


def known_token(tx: Transaction, token_id: str, secret: str) -> Token | None:
    """The live token with this id and secret."""
    row = tx.one("token_by_id", id=token_id)
    # A wrong id costs the time of a wrong secret.
    right = is_secret(secret, row["hash"] if row is not None else "")
    return _token(row) if row is not None and right and row["live"] else None


def live_token(tx: Transaction, token_id: str) -> Token | None:
    """A token whose secret was seen before, as long as it is good."""
    row = tx.one("token_by_id", id=token_id)
    return _token(row) if row is not None and row["live"] else None


def list_tokens(tx: Transaction, *, after: str = "", limit: int) -> list[Token]:
    found = tx.all("list_tokens", after=after, limit=limit)
    return [Token(**row) for row in found]


def revoke_token(tx: Transaction, which: str, actor: Actor) -> Token:
    """By its id, or by the name of a live one. What is revoked stays so."""
    named = tx.one("live_token_named", name=which)
    token_id = which if named is None else named["id"]
    row = tx.one("revoke_token", id=token_id, by=actor.by)
    if row is None:
        before = tx.one("token_by_id", id=token_id)
        if before is None:
            raise Unknown(f"token {which!r} does not exist; `rota token list` has them")
        return _token(before)
    audit(tx, actor, "revoke_token", row["name"], before=row["role"])
    return Token(**row)


def tokens_there(tx: Transaction) -> tuple[int, bool]:
    """How many tokens were ever made, and whether one of them is good."""
    row = tx.one("any_token")
    assert row is not None
    return row["tokens"], bool(row["live"])


def _token(row: Row) -> Token:
    return Token(**{name: row[name] for name in Token.__dataclass_fields__})
