"""What the user may have meant: an unknown name that is close to a known one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

from rota.errors import RotaError, Unknown
from rota.flow.control import Control

# How our own messages begin; they are the same when they come through the door.
_UNKNOWN = re.compile(r"(?:(job|schedule|queue) )?'([^']{1,128})' (?:does not exist|is no )")


@contextmanager
def suggesting(control: Control, folder: Path) -> Iterator[None]:
    """Names are looked up only after a mistake: nothing is slower for those who make none."""
    try:
        yield
    except Unknown as fault:
        found = _UNKNOWN.match(str(fault))
        if found and found[1] in (None, "job") and (place := _in_folder(folder, found[2])):
            raise Unknown(
                f"{fault}; {place} is there: `rota up` takes it up within a second, or see "
                "`rota check`"
            ) from None
        close = _close(control, found[1], found[2]) if found else None
        if close is None:
            raise
        raise Unknown(f"{fault}; did you mean {close!r}?") from None


def _in_folder(folder: Path, name: str) -> str | None:
    """Where a job of this name lies in the folder of jobs, which nobody has taken up yet."""
    from rota.jobsd.scan import survey_folder  # after a mistake only

    unit = survey_folder(folder).units.get(name)
    return None if unit is None else str(unit.path)


def _close(control: Control, kind: str | None, name: str) -> str | None:
    try:
        known = list(_names(control, kind))
    except RotaError:  # the mistake is what counts
        return None
    lowered = {one.lower(): one for one in known}
    close = get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    return lowered[close[0]] if close else None


def _names(control: Control, kind: str | None) -> Iterator[str]:
    """The first page of each; who has more names finds them with the lists."""
    if kind in (None, "job"):
        yield from (job["name"] for job in control.jobs())
    if kind in (None, "schedule"):
        yield from (schedule.name for schedule in control.schedules())
    if kind == "queue":
        yield from (queue["name"] for queue in control.queues())
