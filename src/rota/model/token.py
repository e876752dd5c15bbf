"""A token: what a program or a person shows to be let in. 256 bits, of which only a hash is kept.

rota_9f2c41d07a3be85c_Jt0…43 characters…   an id that is no secret, then the secret
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
    """A token as people see it: never its secret, nor the hash of that."""

    id: str
    name: str
    role: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None


def write_token(token_id: str, secret: str) -> str:
    """The text that is shown once."""
    return f"rota_{token_id}_{secret}"


def read_token(text: str) -> tuple[str, str] | None:
    """(id, secret) of a text that has the shape of a token."""
    found = _SHAPE.fullmatch(text)
    return None if found is None else (found[1], found[2])


def hash_secret(secret: str) -> str:
    # A plain hash is enough: nobody can try 2^256 secrets, however fast one try is.
    return hashlib.sha256(secret.encode()).hexdigest()


def is_secret(secret: str, kept_hash: str) -> bool:
    """Takes the same time whatever differs."""
    return hmac.compare_digest(hash_secret(secret), kept_hash)
