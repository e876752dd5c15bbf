"""The files of the dashboard, as they are served.

All of them together have one mark, a hash over their names and contents, which is part of their
address: a browser keeps each for ever, a new version of Rota has new addresses, and a page never
mixes two versions. Only the page itself is asked for again each time.

A file is found by its name in a table, never by a path: nothing else can be read through here.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from rota.version import VERSION
from rota.web.guard import HEADERS

FOLDER = Path(__file__).parent / "static"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
WORTH_PACKING = 1_000  # bytes
# What the modules call each library, and the file that it is in.
LIBRARIES = {
    "preact": "vendor/preact.mjs",
    "preact/hooks": "vendor/preact-hooks.mjs",
    "htm": "vendor/htm.mjs",
    "@preact/signals-core": "vendor/signals-core.mjs",
    "@preact/signals": "vendor/signals.mjs",
}
# Screens are fetched when they are shown, the rest with the page: no module waits for another to
# be read before the browser knows that it is needed.
LATER = (
    "screens/", "vendor/uPlot", "parts/chart", "parts/answer", "parts/editor", "parts/run-form",
    "lib/statements", "lib/uplot", "lib/values", "theme.js",
)  # fmt: skip


@dataclass(frozen=True)
class File:
    content: bytes
    media_type: str

    @cached_property
    def packed(self) -> bytes | None:
        """Gzipped, if that is worth it."""
        if len(self.content) < WORTH_PACKING:
            return None
        return gzip.compress(self.content, mtime=0)


class Dashboard:
    def __init__(self, folder: Path = FOLDER) -> None:
        self.files = {
            path.relative_to(folder).as_posix(): File(path.read_bytes(), TYPES[path.suffix])
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.suffix in TYPES
        }
        page = (folder / "index.html").read_text("utf-8")
        whole = hashlib.sha256(page.encode() + VERSION.encode())
        for name, file in self.files.items():
            whole.update(f"{name}\0{len(file.content)}\0".encode() + file.content)
        self.mark = whole.hexdigest()[:16]
        self._make_page(page)

    def _make_page(self, page: str) -> None:
        base = f"/static/{self.mark}"
        imports = json.dumps(
            {"imports": {name: f"{base}/{path}" for name, path in LIBRARIES.items()}}
        )
        preloads = "\n".join(
            f'<link rel="modulepreload" href="{base}/{name}">'
            for name in self.files
            if name.endswith((".js", ".mjs")) and not name.startswith(LATER)
        )
        self.page = (
            page.replace("{base}", base)
            .replace("{version}", VERSION)
            .replace("{imports}", imports)
            .replace("{preloads}", preloads)
            .encode()
        )
        self.etag = f'"{hashlib.sha256(self.page).hexdigest()[:16]}"'
        # An import map can only be written into the page. It is no script, but the policy counts it
        # as one: this text and no other is let through.
        proof = base64.b64encode(hashlib.sha256(imports.encode()).digest()).decode()
        self.policy = HEADERS["Content-Security-Policy"].replace(
            "script-src 'self'", f"script-src 'self' 'sha256-{proof}'"
        )


@cache
def dashboard() -> Dashboard:
    """Read once a process."""
    return Dashboard()
