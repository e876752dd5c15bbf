"""A token that authenticates a program or a person: 256 bits, stored as a hash only.

rota_9f2c41d07a3be85c_Jt0…43 characters…   a public id, then the secret
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from datetime import datetime

SECRET_BYTES = 32
ID_BYTES = 8

_SHAPE = re.compile(r"rota_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """The public part of a token, without its secret and its hash."""

    id: str
    name: str
    role: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None


def write_token(token_id: str, secret: str) -> str:
    """The text of a new token, shown once."""
    return f"rota_{token_id}_{secret}"


def read_token(text: str) -> tuple[str, str] | None:
    """(id, secret) of a text in the shape of a token, else None."""
    match = _SHAPE.fullmatch(text)
    return None if match is None else (match[1], match[2])


def hash_secret(secret: str) -> str:
    # A fast hash is enough: 2^256 secrets cannot be tried.
    return hashlib.sha256(secret.encode()).hexdigest()


def is_secret(secret: str, stored_hash: str) -> bool:
    """True if the secret matches; the time does not depend on the difference."""
    return hmac.compare_digest(hash_secret(secret), stored_hash)
