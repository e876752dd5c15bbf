"""Find secrets by value in any text, also in encoded forms.

A process registers the secrets of its environment and its database URLs (`know`); an attempt has
those of its arguments. A value is searched as it is, quoted for SQL, JSON, Python, HTML and URLs,
in base64 at any offset of a longer text, and in hexadecimal.
"""

from __future__ import annotations

import json
import re
from binascii import b2a_base64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rota.model.limits import KNOWN_SECRETS, SECRET_LENGTH

HIDDEN = "[redacted]"
SHORTEST_SECRET = 4  # shorter values are part of too many words
SHORTEST_ENCODED = 6
SHORTEST_NUMBER = 6  # so that a TOKEN_TTL of 600 does not hide every 600
LONGEST_WORD = 12
KEY_LINES = 200  # of a private key, which may be printed line by line
KEY_LINE_LENGTH = 16

_NO_SECRET = frozenset({"true", "false", "none", "null", "default", HIDDEN})


class Secrets:
    """A set of secret values in all their forms. `longest` is the length of the longest form."""

    __slots__ = ("_forms", "_patterns", "longest", "shortest")

    def __init__(self, values: Iterable[str] = ()) -> None:
        plain: set[str] = set()
        whole_words: set[str] = set()
        for value in map(str.strip, values):
            if is_worth_hiding(value):
                made = _forms(value)
                # "postgres" may be a password, and is a part of many other words.
                if value.isalpha() and len(value) <= LONGEST_WORD:
                    whole_words.add(value)
                    made -= {value}
                plain |= made
        self._forms = tuple(sorted(plain, key=len, reverse=True))
        self._patterns = tuple(
            re.compile(rf"(?<!\w){re.escape(word)}(?!\w)") for word in whole_words
        )
        lengths = sorted(map(len, plain | whole_words))
        self.shortest, self.longest = (lengths[0], lengths[-1]) if lengths else (0, 0)

    def __bool__(self) -> bool:
        return self.longest > 0

    def hide(self, text: str) -> str:
        """The text with its secrets replaced."""
        if not self.longest or len(text) < self.shortest:
            return text
        spans = [span for form in self._forms if form in text for span in _spans_of(form, text)]
        if self._patterns:
            spans += [match.span() for word in self._patterns for match in word.finditer(text)]
        return _without(text, spans) if spans else text


NO_SECRETS = Secrets()


def is_worth_hiding(value: str) -> bool:
    if not SHORTEST_SECRET <= len(value) <= SECRET_LENGTH or value.lower() in _NO_SECRET:
        return False
    return not value.isdigit() or len(value) >= SHORTEST_NUMBER


@dataclass(slots=True)
class _Known:
    values: dict[str, None]
    secrets: Secrets


_known = _Known({}, NO_SECRETS)  # of this process, for all its runs


def know(values: Iterable[str]) -> None:
    """Hide these values from now on, in everything this process stores or shows."""
    new = [value for value in values if value not in _known.values]
    if new:
        # Over the limit, drop the oldest: they are most likely no longer in use.
        latest = list(dict.fromkeys([*_known.values, *new]))[-KNOWN_SECRETS:]
        _known.values, _known.secrets = dict.fromkeys(latest), Secrets(latest)


def forget() -> None:
    """Forget all known secrets."""
    _known.values, _known.secrets = {}, NO_SECRETS


def known() -> Secrets:
    return _known.secrets


def _forms(value: str) -> set[str]:
    # Imported here: imports at the top slow down the start of every command and child.
    from urllib.parse import quote, quote_plus, unquote

    raw = value.encode("utf-8", "replace")
    escaped = {quote(raw, safe=""), quote(raw), quote_plus(raw)}
    made = {
        value,
        unquote(value),
        value.replace("'", "''"),
        value.replace("'", "\\'"),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        _in_html(value),
        *escaped,
        *(re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), text) for text in escaped),
        *_in_base64(raw),
        *_in_hexadecimal(raw),
        *_key_lines(value),
    }
    return {form for form in made if len(form) >= SHORTEST_SECRET}


def _in_html(value: str) -> str:
    marks = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"}
    return "".join(marks.get(letter, letter) for letter in value)


def _in_base64(raw: bytes) -> Iterator[str]:
    """The base64 characters that depend on the value only, for each of the three alignments."""
    for before in range(3):
        text = b2a_base64(b"\0" * before + raw, newline=False).decode()
        encoded = text[(before * 8 + 5) // 6 : (before + len(raw)) * 8 // 6]
        if len(encoded) >= SHORTEST_ENCODED:
            yield encoded
            yield encoded.replace("+", "-").replace("/", "_")


def _in_hexadecimal(raw: bytes) -> Iterator[str]:
    if len(raw) * 2 >= SHORTEST_ENCODED:
        yield raw.hex()
        yield raw.hex().upper()


def _key_lines(value: str) -> Iterator[str]:
    lines = value.splitlines()
    if len(lines) > 1:
        yield from (line for line in lines[:KEY_LINES] if len(line) >= KEY_LINE_LENGTH)


def _spans_of(form: str, text: str) -> Iterator[tuple[int, int]]:
    """The spans of a form in a text. Overlapping ones are merged, as in `aaaaaa`."""
    start = text.find(form)
    while start >= 0:
        last, size = start, len(form)
        while (later := text.rfind(form, last + 1, last + 2 * size - 1)) >= 0:
            last = later
        yield start, last + size
        start = text.find(form, last + size)


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    """The text with spans replaced; overlapping and adjacent spans are merged."""
    pieces, done, end = [], 0, -1
    for start, stop in sorted(spans):
        if start > end:
            pieces += [text[done:start], HIDDEN]
        done = end = max(end, stop)
    return "".join([*pieces, text[done:]])
