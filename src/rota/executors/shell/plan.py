"""From a shell job and one attempt of it to what is executed: arguments, environment, folder.

The environment is made, not inherited: a few names that programs need, what the job says under
[env], and what Rota tells. Rota's own settings, and the secrets of other jobs, are not in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rota.errors import Invalid
from rota.executors.context import Context
from rota.executors.shell.spec import (
    environment_of,
    ok_codes,
    refuse_arguments,
    refuse_read,
    texts,
)
from rota.executors.variables import args_of, told_by_rota, values_of
from rota.model.environment import ARGS
from rota.model.fill import Variable, fill, refuse_missing, secrets_in
from rota.model.interpolate import variable_of
from rota.model.limits import COMMAND_LENGTH
from rota.model.redact import is_secret_name

INHERITED = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR",
)  # fmt: skip
LOCALE = "LC_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`secrets` must not be seen in what it writes; `notes` are for the log of the run."""

    argv: tuple[bytes, ...]
    environment: Mapping[bytes, bytes]
    folder: str | None
    stdin: bytes | None
    ok_codes: tuple[int, ...]
    secrets: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def plan(context: Context) -> Plan:
    """Refuses what cannot run before anything is started."""
    spec, args = context.definition.spec, args_of(context)
    told = json.dumps(args, ensure_ascii=False)
    values = {**values_of(context), ARGS: told}
    refuse_missing(texts(spec), values)
    arguments = {variable_of(name) for name in args}
    environment, notes = _environment(context, spec, values, told)
    folder = spec.get("cwd")
    refuse_arguments("cwd", folder or "", arguments)
    stdin = spec.get("stdin")
    return Plan(
        argv=tuple(_encode(one, "command") for one in _command(spec["command"], values, arguments)),
        environment={
            name.encode(): _encode(value, f"env: {name}") for name, value in environment.items()
        },
        folder=_folder(spec.get("folder"), None if folder is None else fill(folder, values)),
        stdin=None if stdin is None else fill(stdin, values).encode("utf-8", "surrogateescape"),
        ok_codes=ok_codes(spec),
        secrets=tuple(_secrets(spec, values)),
        notes=notes,
    )


def _command(command: Sequence[str], values: Mapping[str, str], arguments: set[str]) -> list[str]:
    refuse_arguments("command[0]", command[0], arguments)
    refuse_read(command, arguments)
    made: list[str] = []
    for place, element in enumerate(command):

        def put(variable: Variable, value: str, place: int = place) -> str:
            option = variable.start == 0 and value.startswith("-") and "--" not in command[:place]
            if option and variable.name in arguments:
                raise Invalid(
                    f"command[{place}]: the value of {variable.name} begins with - and would be "
                    'taken for an option; put "--" before it, or write '
                    f'"--name=${{{variable.name}}}"'
                )
            return value

        made.append(fill(element, values, put))
    return made


def _environment(
    context: Context, spec: Mapping[str, Any], values: Mapping[str, str], told: str
) -> tuple[dict[str, str], tuple[str, ...]]:
    made = {
        name: value
        for name, value in os.environ.items()
        if name in INHERITED or name.startswith(LOCALE)
    }
    made.setdefault("PATH", os.defpath)
    for name, value in environment_of(spec).items():
        made[name] = fill(value, values) if isinstance(value, str) else json.dumps(value)
    made |= told_by_rota(context)
    if context.trace is not None:
        made.setdefault("TRACEPARENT", context.trace)
    # The kernel refuses a longer one, and with it the whole command.
    if len(told.encode()) > COMMAND_LENGTH:
        return made, (
            f"the arguments are too long for {ARGS} ({len(told):,} characters); "
            f'take them by stdin = "${{{ARGS}}}"',
        )
    return {**made, ARGS: told}, ()


def _folder(own: Any, folder: str | None) -> str | None:
    """Relative to the folder of the job, where it has one; that is also where it runs."""
    if folder is None or not isinstance(own, str):
        return folder if folder is not None else own
    return os.path.join(own, folder)


def _secrets(spec: Mapping[str, Any], values: Mapping[str, str]) -> list[str]:
    """What the job puts under a name that marks a secret, and variables of such a name."""
    found = secrets_in(texts(spec), values)
    for name, value in environment_of(spec).items():
        if is_secret_name(name):
            found.append(fill(value, values) if isinstance(value, str) else json.dumps(value))
    return found


def _encode(text: str, what: str) -> bytes:
    if "\0" in text:
        raise Invalid(f"{what} would hold a NUL character, which no program can be given")
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise Invalid(f"{what} would hold half of a character; pass bytes as base64") from None
