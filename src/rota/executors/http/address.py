"""A strict parser for the URL of a request: an ambiguous URL is refused.

A host is a plain name, four decimal numbers or an IPv6 address in brackets. 0x7f000001, 127.1 and
2130706433 mean 127.0.0.1 to some programs and are refused here. The value of a variable cannot
change the structure of a URL: in a path or query it is percent-encoded, and an argument of a run
never chooses the server.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urljoin, urlsplit

from rota.errors import Invalid
from rota.executors.networks import Address
from rota.model.fill import Variable, fill, parts
from rota.model.limits import URL_LENGTH

PORTS = {"http": 80, "https": 443}
_VISIBLE = re.compile(r"[\x21-\x5b\x5d-\x7e]+")  # ASCII, no blank, no backslash
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_IN_HOST = re.compile(r"[A-Za-z0-9._:-]+")
_AFTER_HOST = re.compile(r"[/?#]")


@dataclass(frozen=True, slots=True)
class Url:
    """A parsed URL. `address` is set if the host is an IP address."""

    scheme: str
    host: str
    port: int
    target: str
    address: Address | None = None

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def redacted(self) -> str:
        """The URL for messages, without path and query, which may hold a secret."""
        return f"{self.scheme}://{self.authority}"

    def follow(self, location: str) -> Url:
        """The URL that a redirect leads to."""
        try:
            joined = urljoin(f"{self.redacted}{self.target}", location)
        except ValueError:
            raise Invalid("its address cannot be read") from None
        return parse_url(joined)


def parse_url(text: str) -> Url:
    """Parse an http or https URL; raises Invalid.

    Messages show only parts of the URL, because it may hold a secret."""
    if len(text) > URL_LENGTH:
        raise Invalid(f"url has {len(text):,} characters; the limit is {URL_LENGTH:,}")
    if not _VISIBLE.fullmatch(text):
        raise Invalid(
            "url holds a blank, a backslash or a character beyond ASCII; percent-encode it, and "
            "write the host in its xn-- form"
        )
    try:
        split = urlsplit(text)
        port = split.port
    except ValueError:
        raise Invalid("url cannot be read; write it as https://host/path") from None
    if split.scheme not in PORTS:
        fault = f"begins with {split.scheme}:" if split.scheme else "has no scheme"
        raise Invalid(f"url {fault}; it must begin with https:// or http://")
    if "@" in split.netloc:
        raise Invalid(
            "url holds a user name or password; give it by a header, such as "
            'Authorization = "Bearer ${TOKEN}"'
        )
    if not split.hostname or "%" in split.netloc or port == 0:
        raise Invalid("url names no host; write it as https://host/path")
    host, address = _host(split.hostname, bracketed="[" in split.netloc)
    target = (split.path or "/") + (f"?{split.query}" if split.query else "")
    return Url(split.scheme, host, port or PORTS[split.scheme], target, address)


def fill_url(template: str, values: Mapping[str, str], arguments: set[str]) -> str:
    """The URL with the values of its variables."""
    host_ends = _host_ends(template)

    def put(variable: Variable, value: str) -> str:
        if variable.start >= host_ends:
            if value in (".", ".."):
                raise Invalid(
                    f"url: the value of {variable.name} is a step in a path; it cannot stand there"
                )
            return quote(value, safe="", errors="replace")
        if variable.name in arguments:
            raise Invalid(
                f"url: ${{{variable.name}}} is an argument of the run, and its caller "
                "would choose the server; write the host, or use a variable of the environment"
            )
        if variable.start and not _IN_HOST.fullmatch(value):
            raise Invalid(f"url: the value of {variable.name} cannot be part of a host")
        return value

    return fill(template, values, put)


def check_template(template: str, arguments: set[str]) -> Url | None:
    """Refuse a template that no value makes valid; its URL if its host is fixed."""
    fixed = True
    for part in parts(template):
        if isinstance(part, str):
            continue
        fixed = fixed and part.start >= _host_ends(template)
        if part.start == 0 and template[template.index("}") + 1 :][:1] not in ("", "/", "?"):
            raise Invalid(f"url: write a / after ${{{part.name}}}, or only the part of a host")
    filled = fill_url(template, _AnyValue(), arguments)
    return parse_url(filled) if fixed else None


class _AnyValue(dict[str, str]):
    """A value for every name."""

    def get(self, name: str, default: object = None) -> str:
        return "x"


def _host_ends(template: str) -> int:
    """The end of the host. A value before it could choose the server."""
    if template.startswith("${"):
        return 1  # the environment has the URL up to its path
    begin = template.find("://")
    after = _AFTER_HOST.search(template, begin + 3) if begin >= 0 else None
    return after.start() if after else len(template)


def _host(name: str, *, bracketed: bool) -> tuple[str, Address | None]:
    try:
        if bracketed:
            address: Address = ipaddress.IPv6Address(name)
            return str(address), address
        labels = name.removesuffix(".").split(".")
        if _NUMBER.fullmatch(labels[-1]):
            address = ipaddress.IPv4Address(name)
            return str(address), address
    except ValueError:
        raise Invalid(
            f"url: host {name!r} is not an address; write four decimal numbers, as 192.0.2.1, or "
            "[2001:db8::1]"
        ) from None
    if len(name) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise Invalid(f"url: host {name!r} is not a name; use letters, digits, . and -")
    return name, None
