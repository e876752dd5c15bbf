"""What MkDocs needs to know of our pages; it calls these by name (mkdocs.yml, `hooks`).

Pages are written to be read as files, in an editor or where the repository is browsed. On a site
three things are different: a code block that is a file has its path as a title, a link to a file
beside docs/ leads to a copy of it, and a folder in the navigation is the list of its pages.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
BESIDE = "project"  # where copies of files beside docs/ are on the site
_FILE_BLOCK = re.compile(r"^```(?P<kind>\w+) (?P<path>[^\s{=]+)$", re.MULTILINE)
_LINK = re.compile(r"(?<=\]\()(?P<path>[^)\s#:]+)(?=[)#])")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> None:
    config.nav = _unfold(config.nav, Path(config.docs_dir))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """With every file beside docs/ that a page links to; those may link to others."""
    waiting = [file for file in files if file.src_uri.endswith(".md")]
    while waiting:
        page = waiting.pop()
        for link in _links(page.content_string):
            uri = _uri(posixpath.normpath(posixpath.join(_folder(page.src_uri), link)))
            source = ROOT / uri.removeprefix(f"{BESIDE}/")
            if uri.startswith(f"{BESIDE}/") and source.is_file() and uri not in files.src_uris:
                made = File.generated(
                    config, uri, abs_src_path=str(source), inclusion=InclusionLevel.NOT_IN_NAV
                )
                files.append(made)
                waiting += [made] if uri.endswith(".md") else []
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    place = page.file.src_uri

    def led(found: re.Match[str]) -> str:
        uri = _uri(posixpath.normpath(posixpath.join(_folder(place), found["path"])))
        if uri not in files.src_uris:
            return found["path"]  # MkDocs warns of it, by the name that the page has for it
        return posixpath.relpath(uri, posixpath.dirname(place))

    parts, end = [], 0
    for code in _CODE.finditer(markdown):
        parts += [_LINK.sub(led, markdown[end : code.start()]), code[0]]
        end = code.end()
    text = "".join([*parts, _LINK.sub(led, markdown[end:])])
    return _FILE_BLOCK.sub(r'```\g<kind> title="\g<path>"', text)


def _folder(uri: str) -> str:
    """Where a page lies in the project."""
    inside = uri.removeprefix(f"{BESIDE}/")
    return posixpath.dirname(inside if inside != uri else f"docs/{uri}")


def _uri(path: str) -> str:
    """Where a file of the project is on the site."""
    inside = path.removeprefix("docs/")
    return inside if inside != path else f"{BESIDE}/{path}"


def _links(text: str) -> list[str]:
    return [found["path"] for found in _LINK.finditer(_CODE.sub("", text))]


def _unfold(nav: Any, docs: Path) -> Any:
    match nav:
        case list():
            return [_unfold(one, docs) for one in nav]
        case dict():
            return {title: _unfold(one, docs) for title, one in nav.items()}
        case str() if nav.endswith("/"):
            return [f"{nav}{page.name}" for page in sorted((docs / nav).glob("*.md"))]
        case _:
            return nav
