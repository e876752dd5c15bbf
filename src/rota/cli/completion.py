"""`rota completion SHELL`: a script that completes commands, options and the names of things."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from rota.cli.main import make_app
from rota.cli.options import HERE, Where
from rota.cli.output import say_json, say_painted
from rota.cli.parameter import Parameter
from rota.cli.store import reading
from rota.errors import Invalid, RotaError
from rota.model.transitions import STATES

Shell = Literal["bash", "zsh", "fish"]
SHELLS: tuple[Shell, ...] = ("bash", "zsh", "fish")
JOBS, SCHEDULES, QUEUES, STATE, BOTH = "jobs", "schedules", "queues", "states", "names"
# What may follow a word: an option, or a command whose first argument is a name.
FOLLOWS = {
    "--job": JOBS, "--schedule": SCHEDULES, "--queue": QUEUES, "--state": STATE,
    "enqueue": JOBS, "run": BOTH, "show": BOTH, "schedule": SCHEDULES, "explain": SCHEDULES,
    "pause": SCHEDULES, "resume": SCHEDULES, "drop": SCHEDULES,
}  # fmt: skip
# Names are asked for while somebody waits at a prompt: one page of them, and no error is told.
# `compgen -W` expands what it is given; names are plain (`check_name`) and hold nothing to expand.
BASH = """
_rota_names() {
  local kind=""
  case "${COMP_WORDS[COMP_CWORD-1]}" in
%(cases)s
  esac
  local cur="${COMP_WORDS[COMP_CWORD]}"
  if [[ -n $kind && $cur != -* ]]; then
    local IFS=$'\\n'
    COMPREPLY=($(compgen -W "$(rota completion --names "$kind" 2>/dev/null)" -- "$cur"))
    return
  fi
  %(words)s
}
complete -F _rota_names rota
"""
ZSH = """
_rota_names() {
  local kind=""
  case "${words[CURRENT-1]}" in
%(cases)s
  esac
  if [[ -n $kind && $PREFIX != -* ]]; then
    compadd -- ${(f)"$(rota completion --names "$kind" 2>/dev/null)"}
    return
  fi
  %(words)s "$@"
}
# In a folder of $fpath this file is the function itself; sourced, it says who completes.
if [[ "$funcstack[1]" == "_rota" ]]; then
  _rota_names "$@"
else
  compdef _rota_names rota
fi
"""
_FUNCTION = re.compile(r"^(_\w+)\(\)", re.MULTILINE)


def completion(
    shell: Annotated[str | None, Parameter(name="SHELL")] = None,
    /,
    *,
    names: Annotated[str | None, Parameter(show=False)] = None,
    where: Where = HERE,
) -> None:
    """Print a script that completes commands, options and names.

    Parameters
    ----------
    shell
        bash, zsh or fish.
    """
    if names is not None:
        return _say_names(names, where)
    known = next((one for one in SHELLS if one == shell), None)
    if known is None:
        told = "no shell is named" if shell is None else f"shell {shell!r} is unknown"
        raise Invalid(f"{told}; use {', '.join(SHELLS)}")
    script = make_app().generate_completion(prog_name="rota", shell=known)
    script += _of_names(known, script)
    if where.json:
        return say_json({"shell": shell, "script": script})
    say_painted(script)  # as it is: a shell reads it


def _of_names(shell: Shell, script: str) -> str:
    """What completes names, around what completes words."""
    if shell == "fish":
        return "\n".join(["", *_fish_lines(), ""])
    words = _FUNCTION.search(script)
    assert words is not None, f"no function completes for {shell}"
    cases = "\n".join(f"    {word}) kind={kind} ;;" for word, kind in FOLLOWS.items())
    return (BASH if shell == "bash" else ZSH) % {"cases": cases, "words": words[1]}


def _fish_lines() -> list[str]:
    lines = []
    for word, kind in FOLLOWS.items():
        asked = f"(rota completion --names {kind} 2>/dev/null)"
        if word.startswith("--"):
            lines.append(f"complete -c rota -l {word[2:]} -x -a '{asked}'")
        else:
            seen = f"__fish_seen_subcommand_from {word}"
            lines.append(f"complete -c rota -n '{seen}' -f -a '{asked}'")
    return lines


def _say_names(kind: str, where: Where) -> None:
    """One for each line; none where there is no store to ask."""
    if kind == STATE:
        return say_painted("\n".join(STATES))
    found: list[str] = []
    try:
        with reading(where) as control:
            if kind in (JOBS, BOTH):
                found += [job["name"] for job in control.jobs()]
            if kind in (SCHEDULES, BOTH):
                found += [schedule.name for schedule in control.schedules()]
            if kind == QUEUES:
                found += [queue["name"] for queue in control.queues()]
    except RotaError:
        return
    say_painted("\n".join(dict.fromkeys(found)))
