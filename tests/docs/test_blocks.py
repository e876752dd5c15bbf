"""Every fenced block of every page is run or checked by some test; `text` is for people alone.

| block | is |
|---|---|
| with a path, and `console` | part of a story: written and called in order, against a real Rota |
| `python` | run, all blocks of a page one after the other, in a process of its own |
| `sql` | run on every engine (tests/api/test_sql_page.py) |
| `toml` | loaded as settings |
| `sh` | read by the shell; each program in it is known, and what it is told exists |
| `yaml` | read; every metric in it exists |
"""

from __future__ import annotations

import functools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import rota
from rota.config import load_settings
from rota.web.metrics import NAMES
from tests.docs.story import Block, blocks
from tests.docs.test_operations_page import PAGES as NAMED
from tests.docs.test_operations_page import named_commands, parse
from tests.support.routes import ROLES
from tests.surface.conftest import environment

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = {
    str(page.relative_to(ROOT)): page
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))
}
# Who tells the story of a page. Each of them counts its files and commands.
STORIES = {
    "README.md": "tests/docs/test_readme.py",
    "docs/executors.md": "tests/docs/test_executors_page.py",
    "docs/migration.md": "tests/docs/test_migration_page.py",
    "docs/guide/*": "tests/docs/test_guide.py",
}
SQL = {"docs/sql.md": "tests/api/test_sql_page.py"}
# Run by the test of its page, which has what it needs.
PYTHON = {"docs/executors.md": "tests/docs/test_executors_page.py"}


def runner(page: str, block: Block) -> str | None:
    """The test that runs or checks a block; None if there is none."""
    if block.path is not None or block.kind == "console":
        return next((test for told, test in STORIES.items() if Path(page).match(told)), None)
    match block.kind:
        case "sql":
            return SQL.get(page)
        case "text" | "python" | "toml" | "sh" | "yaml":
            return PYTHON.get(page, "here") if block.kind == "python" else "here"
        case _:
            return None


def of_kind(kind: str) -> Iterator[tuple[str, Block]]:
    for page, path in PAGES.items():
        for block in blocks(path):
            if block.kind == kind and block.path is None and runner(page, block) == "here":
                yield page, block


@pytest.mark.parametrize("page", PAGES)
def test_every_block_has_a_test(page: str) -> None:
    told = blocks(PAGES[page])
    fences = re.findall(r"^\s*```.*$", PAGES[page].read_text("utf-8"), re.MULTILINE)
    assert len(fences) == 2 * len(told), "a block says its language, in the first column"
    for block in told:
        test = runner(page, block)
        assert test, f"nothing runs this {block.kind} {block.path or ''}:\n{block.body}"
        if test != "here":
            assert Path(page).name.removesuffix(".md") in (ROOT / test).read_text("utf-8"), test


@pytest.mark.parametrize(
    "text",
    [
        "```\nno language\n```\n",
        "```ruby\nputs 1\n```\n",
        "```sql\nSELECT 1\n```\n",
        "```console\n```\n",
    ],
)
def test_a_block_that_nobody_runs_is_found(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "page.md").write_text(f"# Page\n\n{text}")
    monkeypatch.setitem(PAGES, "docs/page.md", tmp_path / "page.md")
    with pytest.raises(AssertionError):
        test_every_block_has_a_test("docs/page.md")


@pytest.mark.parametrize("page", sorted({page for page, _ in of_kind("python")}))
def test_python_runs(page: str, tmp_path: Path) -> None:
    """As a module, so that `__main__` is for people; jobs find their functions in it."""
    text = "\n\n".join(block.body for one, block in of_kind("python") if one == page)
    (tmp_path / "page.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.path.insert(0, ''); import page"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("page", "block"), list(of_kind("toml")))
def test_toml_is_settings(page: str, block: Block, tmp_path: Path) -> None:
    (tmp_path / "rota.toml").write_text(block.body)
    load_settings(file=tmp_path / "rota.toml", environment={})


@pytest.mark.parametrize(("page", "block"), list(of_kind("yaml")))
def test_yaml_is_read_and_names_real_metrics(page: str, block: Block) -> None:
    assert yaml.safe_load(block.body)
    assert set(re.findall(r"\brota_\w+", block.body)) <= {*NAMES, *_series()}


def _series() -> Iterator[str]:
    """A histogram is served under three names."""
    for name in NAMES:
        yield from (f"{name}_bucket", f"{name}_count", f"{name}_sum")


@pytest.mark.parametrize(
    ("page", "body"), sorted({(page, block.body) for page, block in of_kind("sh")})
)
def test_sh_says_what_exists(page: str, body: str) -> None:
    done = subprocess.run(["bash", "-n"], input=body, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = list(commands(body))
    assert told
    for words in told:
        check(words)


@pytest.mark.parametrize(
    "page",
    sorted({*DOCS.glob("*.md"), ROOT / "CONTRIBUTING.md"} - {*NAMED}),
    ids=lambda page: page.name,
)
def test_every_command_in_a_sentence_exists(page: Path) -> None:
    # The page of commands is made of them; it writes `[OPTIONS]`.
    for words in named_commands(page.read_text("utf-8")) if page.name != "cli.md" else ():
        parse(words)


def commands(text: str) -> Iterator[list[str]]:
    """Every command of a script, as words, without what its output is sent to."""
    for line in text.replace("\\\n", " ").splitlines():
        words: list[str] = []
        lexer = shlex.shlex(
            re.sub(r"\w+=\$\((.*?)\)", r"\1", line), posix=True, punctuation_chars=True
        )
        lexer.whitespace_split = True
        for word in [*lexer, ";"]:
            if word in (";", "|", "&&", "||"):
                if words:
                    yield words
                words = []
            else:
                words.append(word)


@functools.cache
def targets() -> set[str]:
    """As make itself reads them, and tells them to people."""
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(re.findall(r"^  make ([a-z-]+)", done.stdout, re.MULTILINE))


def check(words: list[str]) -> None:
    """The programs that pages may call in `sh`; for others there is `text`."""
    program, *args = words[: words.index(">")] if ">" in words else words
    match program:
        case "rota":
            parse(["0190a1" if word == "RUN" else word for word in args])
        case "make":
            assert {word for word in args if "=" not in word} <= targets(), words
        case "python":
            assert (ROOT / args[0]).is_file(), words
        case "curl":
            (address,) = [word for word in args if word.startswith("http")]
            method = "POST" if "-d" in args else "GET"
            path = re.sub(r"^http://127\.0\.0\.1:7682", "", address)
            known = [re.sub(r"\{.*?\}", "[^/]+", route) for verb, route in ROLES if verb == method]
            assert any(re.fullmatch(route, path) for route in known), (method, path)
        case "cat":
            pass
        case _:
            pytest.fail(f"{program}: say `text` for what no test can look at")


@pytest.mark.parametrize(
    "line",
    ["rota runs --nope", "make nothing", "python scripts/nothing.py", "systemctl start rota",
     "curl http://127.0.0.1:7682/api/v1/nothing", "curl -d '{}' http://127.0.0.1:7682/api/v1/overview"],
)  # fmt: skip
def test_what_does_not_exist_is_found(line: str) -> None:
    (words,) = commands(line)
    with pytest.raises((AssertionError, rota.Invalid, pytest.fail.Exception)):
        check(words)
