"""Tokens of the HTTP API: what an admin may do with them."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

from rota.errors import Invalid
from rota.model.duration import parse_duration, parse_instant
from rota.model.limits import PAGE, check_name, check_whole
from rota.model.roles import check_role
from rota.model.token import ID_BYTES, SECRET_BYTES, Token, hash_secret, read_token, write_token
from rota.storage import operations
from rota.storage.operations.audit import Actor
from rota.storage.store import AnyStore

LONGEST_EXPIRY = timedelta(days=10 * 366)


class TokenControl:
    """A part of Control."""

    store: AnyStore
    actor: Actor

    def create_token(
        self, name: str, role: str, *, expires: str | None = None
    ) -> tuple[Token, str]:
        """A new token, and its text, which nobody can read again. `expires` is a duration from
        now (`90d`) or an instant."""
        return self._keep(name, role, new_text(), self._expiry(expires))

    def adopt_token(self, name: str, role: str, text: str) -> Token:
        """Make a text that stands in a file a token of this store."""
        return self._keep(name, role, text, None)[0]

    def tokens(self, *, after: str = "", limit: int = PAGE) -> list[Token]:
        """All tokens that were ever made, by their id; never their secrets."""
        return self.store.read(
            operations.list_tokens, after=after, limit=check_whole(limit, "limit", 1, PAGE)
        )

    def revoke_token(self, which: str) -> Token:
        """End a token at once and for good, by its id or its name."""
        return self.store.write(operations.revoke_token, which, self.actor)

    def _keep(
        self, name: str, role: str, text: str, expires_at: datetime | None
    ) -> tuple[Token, str]:
        read = read_token(text)
        if read is None:
            raise Invalid("this is not the text of a token; `rota token create` makes one")
        token_id, secret = read
        made = self.store.write(
            operations.put_token,
            token_id,
            hash_secret(secret),
            name=check_name(name, "token name"),
            role=check_role(role),
            expires_at=expires_at,
            actor=self.actor,
        )
        return made, text

    def _expiry(self, expires: str | None) -> datetime | None:
        if expires is None:
            return None
        now = self.store.now()
        try:
            expires_at = now + parse_duration(expires, "expires")
        except (Invalid, OverflowError):
            try:
                expires_at = parse_instant(expires, "expires")
            except Invalid:
                raise Invalid(
                    f"expires {expires!r} is neither a duration nor an instant; use 90d or "
                    "2027-01-31T00:00:00Z"
                ) from None
        if not now < expires_at <= now + LONGEST_EXPIRY:
            raise Invalid(
                f"expires {expires!r} must be later than now and within ten years, "
                "such as 90d or 2027-01-31T00:00:00Z"
            )
        return expires_at


def new_text() -> str:
    """A token that nobody has seen."""
    secret = secrets.token_urlsafe(SECRET_BYTES)
    return write_token(secrets.token_hex(ID_BYTES), secret)
