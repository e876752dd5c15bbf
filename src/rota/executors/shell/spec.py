"""The spec of a shell job: its keys, and what is refused before it is stored.

No shell interprets `command`: each element is an argument of the program, whatever a variable in it
holds. Values that could still gain more power are refused here: a value as the program, as part of
a script, or as an option. That guards against mistakes only: no list has every program that runs
its arguments.
"""

from __future__ import annotations

import os.path
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rota.errors import Invalid
from rota.model.bodies import OF_FILES, SHELL_KEYS
from rota.model.environment import RESERVED
from rota.model.fill import texts_in, variables
from rota.model.interpolate import variable_of
from rota.model.job import Job
from rota.model.limits import COMMAND_ELEMENTS, COMMAND_LENGTH, ENVIRONMENT_NAMES, check_payload
from rota.model.options import named, refuse_unknown
from rota.model.redact import is_secret_name

OK_CODES = (0,)

# Programs that run a script, and the letters of the options before it.
INTERPRETERS = {
    **dict.fromkeys(("sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "python", "psql"), "c"),
    **dict.fromkeys(("ruby", "lua", "mysql", "mariadb", "osascript"), "e"),
    "perl": "eE", "node": "ep", "php": "r", "su": "c", "busybox": "c", "env": "S", "sed": "e",
    "runuser": "c", "script": "c", "flock": "c", "pwsh": "c", "powershell": "c",
}  # fmt: skip
# Long forms of these options.
_LONG = re.compile(
    r"(?:--?command|--split-string|--eval|--execute|--expression|--print)(=.*)?",
    re.IGNORECASE | re.DOTALL,
)
# Programs that run an argument as a script or pass it to a shell, here or on another machine.
READERS = frozenset(
    ("ssh", "scp", "sftp", "mosh", "rsh", "rsync", "awk", "gawk", "mawk", "nawk", "sed", "tclsh")
)
# The next element is a program.
BEFORE_PROGRAM = frozenset(
    ("-exec", "-execdir", "-ok", "-okdir", "xargs", "env", "nohup", "nice", "sudo", "setsid")
)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FOR_A_SHELL = re.compile(r"[|&;<>()$`*?\[\]~]")


def check_spec(job: Job) -> None:
    """Refuse a spec that no worker could run."""
    spec = job.spec
    with named(f"job {job.name!r}"):
        refuse_unknown([key for key in spec if key not in OF_FILES], SHELL_KEYS)
        _check_command(spec, arguments_of(job))
        for name, value in environment_of(spec).items():
            _check_env(name, value)
        _check_text(spec, "cwd")
        _check_text(spec, "stdin")
        refuse_arguments("cwd", spec.get("cwd", ""), arguments_of(job))
        ok_codes(spec)
        check_payload({key: spec[key] for key in SHELL_KEYS if key in spec}, "job")
        for text in texts(spec):
            variables(text)


def texts(spec: Mapping[str, Any]) -> Iterator[str]:
    """All texts that may hold variables."""
    yield from spec["command"]
    yield from texts_in(list(environment_of(spec).values()))
    yield spec.get("cwd") or ""
    yield spec.get("stdin") or ""


def arguments_of(job: Job) -> set[str]:
    """Names of the variables that hold arguments of a run."""
    parameters = (parameter.name for parameter in job.signature.parameters)
    return {variable_of(name) for name in (*parameters, *job.spec.get("params", {}))}


def environment_of(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    env = spec.get("env", {})
    if not isinstance(env, Mapping):
        raise Invalid("env is a table: [env] and a line NAME = VALUE for each")
    if len(env) > ENVIRONMENT_NAMES:
        raise Invalid(f"env has {len(env):,} names; the limit is {ENVIRONMENT_NAMES:,}")
    return env


def ok_codes(spec: Mapping[str, Any]) -> tuple[int, ...]:
    """Exit codes that are a success."""
    codes = spec.get("ok_codes", OK_CODES)
    if (
        not isinstance(codes, list | tuple)
        or not codes
        or not all(type(code) is int and 0 <= code <= 255 for code in codes)
    ):
        raise Invalid(f"ok_codes {codes!r} must be a list of exit codes from 0 to 255, as [0, 3]")
    return tuple(codes)


def refuse_arguments(what: str, text: str, arguments: set[str]) -> None:
    for variable in variables(text):
        if variable.name in arguments:
            raise Invalid(
                f"{what}: ${{{variable.name}}} is an argument of the run, and its caller would "
                "choose what happens here; use a fixed text or a variable of the environment"
            )


def _check_command(spec: Mapping[str, Any], arguments: set[str]) -> None:
    command = spec.get("command")
    if isinstance(command, str):
        raise Invalid(f"command is text; write a list, command = {_as_list(command)}")
    if not isinstance(command, list | tuple) or not command:
        raise Invalid('command must be a list of texts, such as command = ["pg_dump", "shop"]')
    if len(command) > COMMAND_ELEMENTS:
        raise Invalid(f"command has {len(command):,} elements; the limit is {COMMAND_ELEMENTS:,}")
    for index, element in enumerate(command):
        if not isinstance(element, str) or "\0" in element or (index == 0 and not element):
            raise Invalid(f"command[{index}] {element!r} must be text; write numbers in quotes")
        if len(element) > COMMAND_LENGTH:
            raise Invalid(
                f"command[{index}] has {len(element):,} characters; the limit is "
                f"{COMMAND_LENGTH:,}. Put a script into a file beside job.toml"
            )
    refuse_arguments("command[0]", command[0], arguments)
    _refuse_visible(command)
    _refuse_in_scripts(command)
    refuse_read(command, arguments)


def _refuse_visible(command: Sequence[str]) -> None:
    """Refuse secrets in arguments: every user of a machine can list its processes."""
    for index, element in enumerate(command):
        for variable in variables(element):
            if is_secret_name(name := variable.name):
                raise Invalid(
                    f"command[{index}]: ${{{name}}} would be seen by everybody who lists "
                    f'processes; give it by [env] {name} = "${{{name}}}", or by stdin'
                )


def _refuse_in_scripts(command: Sequence[str]) -> None:
    for index in _scripts(command):
        if in_script := variables(command[index]):
            name = in_script[0].name
            raise Invalid(
                f"command[{index}]: the value of ${{{name}}} would become part of a script; give "
                f'it by [env] {name} = "${{{name}}}", and write "${name}" in the script'
            )


def _scripts(command: Sequence[str]) -> Iterator[int]:
    """Indexes of scripts: after an option such as -c, and after further options."""
    letters, awaited = "", False
    for index, element in enumerate(command):
        long = _LONG.fullmatch(element) if letters else None
        if awaited or (long and long[1]) or (letters and re.match(f"-[{letters}].", element)):
            yield index
        short = re.fullmatch(f"-[A-Za-z]*[{letters}][A-Za-z]*", element) if letters else None
        awaited = bool(short or (long and not long[1])) or (awaited and element.startswith("-"))
        letters = INTERPRETERS.get(_program(element), letters)


def refuse_read(command: Sequence[str], arguments: set[str]) -> None:
    """Refuse an argument of a run as a program, or of a program that may run it."""
    reader = ""
    for index, element in enumerate(command):
        if reader and (names := [name for name in _names(element) if name in arguments]):
            raise Invalid(
                f"command[{index}]: {reader} may read ${{{names[0]}}} as a command or script, "
                "here or on the other side; read it from ROTA_ARGS in the environment, or from "
                "stdin"
            )
        program = os.path.basename(element)
        before = program in BEFORE_PROGRAM and (index == 0 or program.startswith("-"))
        if before and command[index + 1 : index + 2] and command[index + 1].startswith("${"):
            refuse_arguments(f"command[{index + 1}]", command[index + 1], arguments)
        reader = reader or (program if program in READERS else "")


def _names(text: str) -> list[str]:
    return [variable.name for variable in variables(text)]


def _program(element: str) -> str:
    """`python` for /usr/bin/python3.11."""
    return os.path.basename(element).rstrip("0123456789.")


def _check_env(name: str, value: Any) -> None:
    if not _ENV_NAME.fullmatch(name):
        raise Invalid(f"env: {name!r} is not a name; use letters, digits and _")
    if name.startswith(RESERVED):
        raise Invalid(f"env: {name} begins with {RESERVED}, which is Rota's own; rename it")
    if not isinstance(value, str | int | float):
        raise Invalid(f"env: {name} must be text, a number, true or false")
    if isinstance(value, str) and "\0" in value:
        raise Invalid(f"env: {name} holds a NUL character, which no environment can")


def _check_text(spec: Mapping[str, Any], key: str) -> None:
    value = spec.get(key)
    if value is not None and not isinstance(value, str):
        raise Invalid(f"{key} {value!r} must be text")
    if key == "cwd" and value is not None and (not value or "\0" in value):
        raise Invalid(f"cwd {value!r} is not a folder; name one, or remove it")


def _as_list(text: str) -> str:
    """The command as a list, for the message."""
    try:
        arguments = shlex.split(text)
    except ValueError:
        arguments = []
    if not arguments or _FOR_A_SHELL.search(text):
        arguments = ["sh", "-c", text]
    elements = ", ".join(f'"{argument}"' for argument in arguments)
    return f"[{elements}]" if len(elements) <= 200 else '["program", "argument", …]'
