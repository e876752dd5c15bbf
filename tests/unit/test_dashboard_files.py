"""The dashboard's files: libraries as listed, imports that lead somewhere, nothing sets markup."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rota.web.files import FOLDER, LATER, LIBRARIES, Dashboard
from scripts import vendor

OURS = sorted(
    path for path in FOLDER.rglob("*.js") if "vendor" not in path.relative_to(FOLDER).parts
)
IMPORT = re.compile(r"""(?:from|import\()\s*["']([^"']+)["']""")


def name_of(path: Path) -> str:
    return path.relative_to(FOLDER).as_posix()


def test_libraries_are_what_the_list_says() -> None:
    problems = [
        problem for package in vendor.read_list() for problem in vendor.problems_of(package)
    ]
    assert problems == []


def test_every_library_has_its_licence() -> None:
    for package in vendor.read_list():
        assert any(file.path.endswith(".LICENSE") for file in package.files), package.name


@pytest.mark.parametrize("path", OURS, ids=name_of)
def test_every_import_leads_to_a_file(path: Path) -> None:
    for told in IMPORT.findall(path.read_text("utf-8")):
        if told.startswith("."):
            assert (path.parent / told).resolve().is_file(), told
        else:
            assert told in LIBRARIES, told


@pytest.mark.parametrize("path", OURS, ids=name_of)
def test_nothing_sets_markup_or_makes_code(path: Path) -> None:
    text = path.read_text("utf-8")
    markup = r"innerHTML\s*=|outerHTML|insertAdjacentHTML|dangerouslySet|document\.write"
    forbidden = rf"{markup}|\beval\(|new Function"
    assert not re.search(forbidden, text), path


def test_colours_are_named_in_one_place() -> None:
    for path in (FOLDER / "css").glob("*.css"):
        if path.name != "tokens.css":
            found = re.findall(r"#[0-9a-f]{3,8}\b|rgb\(", path.read_text("utf-8"))
            assert found in ([], ["rgb("]), f"{path.name}: {found}"  # what lies under a dialog


def test_the_policy_lets_in_exactly_the_import_map_of_the_page() -> None:
    made = Dashboard()
    assert made.policy.count("sha256-") == 1
    assert "'unsafe" not in made.policy
    page = made.page.decode()
    assert page.count("<script>") == 0
    assert "{" not in re.sub(r'<script type="importmap">.*?</script>', "", page)


def test_another_content_has_another_address(tmp_path: Path) -> None:
    for name in ("index.html", "main.js"):
        (tmp_path / name).write_bytes((FOLDER / name).read_bytes())
    before = Dashboard(tmp_path)
    (tmp_path / "main.js").write_text("// another")
    after = Dashboard(tmp_path)
    assert before.mark != after.mark
    assert before.etag != after.etag


def test_what_is_fetched_later_is_there() -> None:
    names = Dashboard().files
    assert all(any(name.startswith(one) for name in names) for one in LATER)
