"""The addresses a request may go to: public ones, and those that a setting names.

An IPv4 address inside an IPv6 address is checked too: IPv6 has several notations for it, and each
of them reaches the IPv4 address on some network.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rota.errors import Invalid

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Ports below 1024 belong to services that an HTTP request could misuse: mail, files, shells.
PLAIN_PORTS = (80, 443)
LOWEST_PORT = 1024

# IPv6 prefixes that contain an IPv4 address, and its distance in bits from the end.
_CARRIERS = (
    (ipaddress.IPv6Network("::/96"), 0),  # IPv4-compatible (deprecated)
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),  # IPv4-mapped
    (ipaddress.IPv6Network("::ffff:0:0:0/96"), 0),  # IPv4-translated
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (ipaddress.IPv6Network("64:ff9b:1::/48"), 0),  # NAT64, local use
    (ipaddress.IPv6Network("2002::/16"), 80),  # 6to4
)
# Not public; `is_global` differs between versions of Python.
_REFUSED = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
            "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16",
            "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
            "::/128", "::1/128", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16",
            "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
        ),
    )
)  # fmt: skip
_WITH_PORT = re.compile(r"(?:\[([^\]]+)\]|([^:\[\]]+)):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Allowed:
    """A network that is allowed, at a single port or at all ports."""

    network: Network
    port: int | None = None

    def holds(self, address: Address, port: int) -> bool:
        if self.port not in (None, port) or address.version != self.network.version:
            return False
        return address in self.network


def parse_network(text: object) -> Allowed:
    """Parse an address or network with an optional port: 10.0.0.0/8, [::1]:8080."""
    host, port = text, None
    if isinstance(text, str) and (match := _WITH_PORT.fullmatch(text)):
        host, port = match[1] or match[2], int(match[3])
    try:
        if not isinstance(host, str) or (port is not None and not 0 < port < 65536):
            raise ValueError
        return Allowed(ipaddress.ip_network(host.strip("[]")), port)
    except ValueError:
        raise Invalid(
            f"executors.http_allow: {text!r} is not an address or network; write 10.1.0.0/16, "
            "127.0.0.1:8080 or [::1]:8080 (names are not enough: anybody may own their answer)"
        ) from None


def refusal(address: Address, port: int, allowed: Iterable[Allowed]) -> str | None:
    """Why a request must not go to this address; None if it may."""
    allowed = tuple(allowed)
    for candidate in (address, *_inside(address)):
        if any(network.holds(candidate, port) for network in allowed):
            return None
    if kind := _kind(address):
        return f"{address} is {kind}; if that is meant, name it under [executors] http_allow"
    if port not in PLAIN_PORTS and port < LOWEST_PORT:
        written = f"[{address}]" if address.version == 6 else str(address)
        return (
            f"port {port} is no port of a web server; if that is meant, name it under "
            f'[executors] http_allow = ["{written}:{port}"]'
        )
    return None


def _kind(address: Address) -> str:
    """Why an address is not public; empty if it is."""
    for candidate in (*_inside(address), address):
        refused = any(
            candidate in network for network in _REFUSED if network.version == candidate.version
        )
        if candidate.is_loopback:
            return "this machine itself"
        if candidate.is_link_local:
            return "link-local, where clouds keep credentials"
        if candidate.is_multicast:
            return "multicast"
        if refused or not candidate.is_global:
            return "not public"
    return ""


def _inside(address: Address) -> Iterator[Address]:
    """The IPv4 addresses that an IPv6 address contains, if any."""
    if isinstance(address, ipaddress.IPv6Address):
        for prefix, shift in _CARRIERS:
            if address in prefix and int(address) > 1:
                yield ipaddress.IPv4Address((int(address) >> shift) & 0xFFFFFFFF)
