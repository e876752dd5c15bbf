"""Find what the user means: a run by the beginning of its id, a schedule or a job by its name."""

from __future__ import annotations

import re

from rota.errors import Invalid, Unknown
from rota.flow.control import Control
from rota.model.limits import PAGE
from rota.model.run import Run
from rota.model.schedule import Schedule

PREFIX_LENGTH = 6
ID_LENGTH = 36
# Without an index over the beginnings of ids, only the latest runs are looked at.
PAGES = 10

_ID = re.compile(r"[0-9a-f-]+")


def find_run(control: Control, text: str) -> Run:
    """The run with this id, or the only one whose id begins so."""
    run = run_or_none(control, text)
    if run is not None:
        return run
    if len(text) < PREFIX_LENGTH:
        raise Unknown(f"run {text!r} does not exist; give {PREFIX_LENGTH} characters or more")
    raise Unknown(f"run {text!r} does not exist; `rota runs` lists them")


def run_or_none(control: Control, text: str) -> Run | None:
    """None where no run is meant; Invalid where several could be."""
    wanted = text.lower()
    if not _ID.fullmatch(wanted) or not PREFIX_LENGTH <= len(wanted) <= ID_LENGTH:
        return None
    if len(wanted) == ID_LENGTH:
        try:
            return control.run(wanted)
        except Unknown:
            return None
    found = _beginning(control, wanted)
    if len(found) > 1:
        raise Invalid(
            f"run {text!r} could be several: {', '.join(run.id for run in found[:3])}"
            f"{' and more' if len(found) > 3 else ''}; give more characters"
        )
    return found[0] if found else None


def schedule_or_none(control: Control, name: str) -> Schedule | None:
    try:
        return control.schedule(name)
    except Unknown:
        return None


def _beginning(control: Control, prefix: str) -> list[Run]:
    found: list[Run] = []
    before: int | None = None
    for _ in range(PAGES):
        page = control.runs(before=before, limit=PAGE)
        found += [run for run in page if run.id.startswith(prefix)]
        if len(page) < PAGE:
            break
        before = page[-1].seq
    return found
