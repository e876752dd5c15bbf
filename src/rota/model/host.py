"""The address that a process listens on."""

from __future__ import annotations


def is_loopback_host(host: str) -> bool:
    """True if the address can be reached from this machine only."""
    if host == "localhost":
        return True
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
