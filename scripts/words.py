"""Count words that Rota's source avoids; no room may have more than scripts/words.json says.

    python scripts/words.py              compare; exits with 1 where a count has risen
    python scripts/words.py --write      store the counts of now; one that has risen is refused
    python scripts/words.py --list PATH  every place below a path

Two lists. NEVER: in names and in prose, in every file. NEVER_NAMES: not as a name in Python; as a
word of prose or a value (`catch_up = "one"`) they are fine. A line that needs such a word says why
in a comment: `# words: quoted from a seed`.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
COUNTS = ROOT / "scripts" / "words.json"
NEVER = frozenset({
    "told", "untold", "herd", "herds", "kin", "crowd", "ripe", "knock", "knocks", "bury", "buries",
    "buried", "doorkeeper", "hearer", "hears", "whoever", "whom", "somebody", "nobody", "he", "him",
    "his",
})  # fmt: skip
NEVER_NAMES = frozenset({
    "one", "said", "says", "kept", "shown", "found", "wanted", "given", "own", "look", "place",
    "good", "words",
})  # fmt: skip
SUFFIXES = frozenset({".py", ".sql", ".js", ".md", ".toml", ".html"})
# As published by others, frozen by a test, or measured: the words there are data.
EXCLUDED = ("src/rota/web/static/vendor/", "tests/face/frozen/", "tests/data/", "docs/images/")
EXCUSE = re.compile(r"(?:#|--|//|<!--) words: \S")
# snake_case and CamelCase are taken apart: `HerdScript` has the word `herd`.
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


class Use(NamedTuple):
    path: str
    line: int
    word: str
    text: str


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="store the counts of now")
    parser.add_argument("--list", metavar="PATH", help="print every place below this path")
    arguments = parser.parse_args()
    uses = list(find_uses())
    if arguments.list is not None:
        for use in uses:
            if use.path.startswith(arguments.list):
                print(f"{use.path}:{use.line}: {use.word}: {use.text}")
        return 0
    counts = Counter(room_of(use.path) for use in uses)
    allowed: dict[str, int] = json.loads(COUNTS.read_text("utf-8")) if COUNTS.exists() else {}
    risen = [room for room in sorted(counts) if counts[room] > allowed.get(room, 0)]
    if allowed and risen:
        for room in risen:
            print(f"{room}: {counts[room]} avoided words, {allowed.get(room, 0)} allowed")
        print(f"see them: python scripts/words.py --list {risen[0]}", file=sys.stderr)
        return 1
    if arguments.write:
        text = json.dumps(dict(sorted(counts.items())), indent=1)
        COUNTS.write_text(f"{text}\n", "utf-8")
    print(f"{counts.total()} avoided words, {sum(allowed.values())} allowed")
    return 0


def find_uses() -> Iterator[Use]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for path in sorted({*listed.stdout.splitlines()}):  # a file in conflict is listed three times
        file = ROOT / path
        if file.suffix not in SUFFIXES or path.startswith(EXCLUDED) or not file.is_file():
            continue
        if file != ROOT / "scripts" / "words.py":
            yield from uses_in(path, file.read_text("utf-8"))


def uses_in(path: str, text: str) -> Iterator[Use]:
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if not EXCUSE.search(line):
            for match in _WORD.finditer(line):
                if match[0].lower() in NEVER:
                    yield Use(path, number, match[0], line.strip())
    if path.endswith(".py"):
        for number, name in names_in(text):
            if name.strip("_") in NEVER_NAMES and not EXCUSE.search(lines[number - 1]):
                yield Use(path, number, name, lines[number - 1].strip())


def names_in(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of each name of a Python file, strings and comments left out."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], token.string


def room_of(path: str) -> str:
    """Where a count belongs: a folder of src/rota or tests, else the top folder or the file."""
    parts = PurePosixPath(path).parts
    if parts[0] == "src" and len(parts) > 3:
        return "/".join(parts[:3])
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


if __name__ == "__main__":
    sys.exit(main())
