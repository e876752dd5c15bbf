"""Makes the plan of an attempt of a shell job: arguments, environment, folder.

The environment is not inherited. It has a few names that programs need, the job's [env] and Rota's
variables, but neither Rota's settings nor the secrets of other jobs.
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
from rota.executors.variables import args_of, rota_variables, values_of
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
    """`secrets` are redacted in the output; `notes` go to the log of the run."""

    argv: tuple[bytes, ...]
    environment: Mapping[bytes, bytes]
    folder: str | None
    stdin: bytes | None
    ok_codes: tuple[int, ...]
    secrets: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def plan(context: Context) -> Plan:
    """The plan of an attempt; raises Invalid for a command that cannot run."""
    spec, args = context.definition.spec, args_of(context)
    args_json = json.dumps(args, ensure_ascii=False)
    values = {**values_of(context), ARGS: args_json}
    refuse_missing(texts(spec), values)
    arguments = {variable_of(name) for name in args}
    environment, notes = _environment(context, spec, values, args_json)
    folder = spec.get("cwd")
    refuse_arguments("cwd", folder or "", arguments)
    stdin = spec.get("stdin")
    return Plan(
        argv=tuple(
            _encode(element, "command") for element in _command(spec["command"], values, arguments)
        ),
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
    filled: list[str] = []
    for index, element in enumerate(command):

        def put(variable: Variable, value: str, index: int = index) -> str:
            option = variable.start == 0 and value.startswith("-") and "--" not in command[:index]
            if option and variable.name in arguments:
                raise Invalid(
                    f"command[{index}]: the value of {variable.name} begins with - and would be "
                    'taken for an option; put "--" before it, or write '
                    f'"--name=${{{variable.name}}}"'
                )
            return value

        filled.append(fill(element, values, put))
    return filled


def _environment(
    context: Context, spec: Mapping[str, Any], values: Mapping[str, str], args_json: str
) -> tuple[dict[str, str], tuple[str, ...]]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in INHERITED or name.startswith(LOCALE)
    }
    environment.setdefault("PATH", os.defpath)
    for name, value in environment_of(spec).items():
        environment[name] = fill(value, values) if isinstance(value, str) else json.dumps(value)
    environment |= rota_variables(context)
    if context.trace is not None:
        environment.setdefault("TRACEPARENT", context.trace)
    # The kernel refuses to execute a command with a longer variable.
    if len(args_json.encode()) > COMMAND_LENGTH:
        return environment, (
            f"the arguments are too long for {ARGS} ({len(args_json):,} characters); "
            f'take them by stdin = "${{{ARGS}}}"',
        )
    return {**environment, ARGS: args_json}, ()


def _folder(job_folder: Any, cwd: str | None) -> str | None:
    """The working directory: `cwd`, relative to the folder of the job, or that folder."""
    if cwd is None or not isinstance(job_folder, str):
        return cwd if cwd is not None else job_folder
    return os.path.join(job_folder, cwd)


def _secrets(spec: Mapping[str, Any], values: Mapping[str, str]) -> list[str]:
    """Values of [env] names and of variables whose name marks a secret."""
    secrets = secrets_in(texts(spec), values)
    for name, value in environment_of(spec).items():
        if is_secret_name(name):
            secrets.append(fill(value, values) if isinstance(value, str) else json.dumps(value))
    return secrets


def _encode(text: str, what: str) -> bytes:
    if "\0" in text:
        raise Invalid(f"{what} would hold a NUL character, which no program can be given")
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise Invalid(f"{what} would hold half of a character; pass bytes as base64") from None
