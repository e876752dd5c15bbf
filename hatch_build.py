"""The description of the package: the README with links and pictures that work outside the folder.

A relative link means nothing on the page of a package index. Each becomes a link into the source
at this version.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# The target of a Markdown link or picture that begins with neither a scheme nor a mark.
_RELATIVE = re.compile(r"(?P<head>!?\[[^\]]*\]\()(?P<path>(?![a-z][a-z+.-]*:|#)[^)\s]+)\)")


class DescriptionHook(MetadataHookInterface):
    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        source = metadata["urls"]["Source"]
        text = Path(self.root, "README.md").read_text("utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute(text, f"{source}/blob/v{metadata['version']}"),
        }


def absolute(text: str, base: str) -> str:
    """The text with every relative link below `base`; a picture is asked for as the file itself."""

    def replace(found: re.Match[str]) -> str:
        raw = "?raw=true" if found["head"].startswith("!") else ""
        path, mark, fragment = found["path"].partition("#")
        return f"{found['head']}{base}/{path}{raw}{mark}{fragment})"

    return _RELATIVE.sub(replace, text)
