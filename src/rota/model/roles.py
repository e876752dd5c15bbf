"""Roles: viewer, operator and admin. Each role includes the ones before it."""

from __future__ import annotations

from rota.errors import Invalid

VIEWER, OPERATOR, ADMIN = "viewer", "operator", "admin"
ROLES = (VIEWER, OPERATOR, ADMIN)


def covers(role: str | None, needed: str) -> bool:
    """True if `role` includes `needed`; None is no role."""
    return role in ROLES and ROLES.index(role) >= ROLES.index(needed)


def check_role(value: object) -> str:
    if not isinstance(value, str) or value not in ROLES:
        raise Invalid(f"role {value!r} is unknown; use {', '.join(ROLES)}")
    return value
