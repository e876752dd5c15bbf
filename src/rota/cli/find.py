"""Find what the user means: a run by the beginning of its id, a schedule or a job by its name."""

from __future__ import annotations

import re

from rota.errors import Invalid, Unknown
from rota.flow.control import Control
from rota.flow.control_runs import SHORTEST_ID
from rota.model.run import Run
from rota.model.schedule import Schedule

ID_LENGTH = 36

_ID = re.compile(r"[0-9a-f-]+")


def find_run(control: Control, text: str) -> Run:
    """The run with this id, or the only one whose id begins so."""
    run = run_or_none(control, text)
    if run is not None:
        return run
    if len(text) < SHORTEST_ID:
        raise Unknown(f"run {text!r} does not exist; give {SHORTEST_ID} characters or more")
    raise Unknown(f"run {text!r} does not exist; `rota runs` lists them")


def run_or_none(control: Control, text: str) -> Run | None:
    """None where no run is meant; Invalid where several could be."""
    wanted = text.lower()
    if not _ID.fullmatch(wanted) or not SHORTEST_ID <= len(wanted) <= ID_LENGTH:
        return None
    if len(wanted) == ID_LENGTH:
        try:
            return control.run(wanted)
        except Unknown:
            return None
    found = control.runs_beginning(wanted)
    if len(found) > 1:
        raise Invalid(
            f"run {text!r} could be several: {', '.join(run.id for run in found)} …; "
            "give more characters"
        )
    return found[0] if found else None


def schedule_or_none(control: Control, name: str) -> Schedule | None:
    try:
        return control.schedule(name)
    except Unknown:
        return None
