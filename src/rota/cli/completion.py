"""`rota completion SHELL`: a script that completes commands, options and the names of things.

The scripts are made from the tables that commands are read by (`cli/table.py`), so that a shell
calls Rota only for names of jobs, schedules and queues.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from rota.cli.commands import COMMANDS, Command
from rota.cli.options import BOTH, FILES, HERE, JOBS, QUEUES, SCHEDULES, Option, Where
from rota.cli.output import say_json, say_painted
from rota.cli.store import reading
from rota.cli.table import table_of
from rota.errors import Invalid, RotaError

Shell = Literal["bash", "zsh", "fish"]
SHELLS: tuple[Shell, ...] = ("bash", "zsh", "fish")
Tables = list[tuple[Command, tuple[Option, ...]]]
GENERAL = ("--help", "--version")


def completion(
    shell: Annotated[str | None, Option("bash, zsh or fish.", "SHELL", values=SHELLS)] = None,
    /,
    *,
    names: Annotated[str | None, Option("", "KIND", hidden=True)] = None,
    where: Where = HERE,
) -> None:
    """Print a script that completes commands, options and names."""
    if names is not None:
        return _say_names(names, where)
    if shell not in SHELLS:
        problem = "no shell is named" if shell is None else f"shell {shell!r} is unknown"
        raise Invalid(f"{problem}; use {', '.join(SHELLS)}")
    script = {"bash": bash, "zsh": zsh, "fish": fish}[shell](_tables())
    if where.json:
        return say_json({"shell": shell, "script": script})
    say_painted(script)  # as it is: a shell reads it


def _tables() -> Tables:
    """Every command with its arguments and options; the hidden ones are left out."""
    return [
        (
            command,
            tuple(option for option in table_of(command.function()).options if not option.hidden),
        )
        for command in COMMANDS.values()
    ]


def _say_names(kind: str, where: Where) -> None:
    """The first page, a name on each line; nothing where no store answers."""
    names: list[str] = []
    try:
        with reading(where) as control:
            if kind in (JOBS, BOTH):
                names += [job["name"] for job in control.jobs()]
            if kind in (SCHEDULES, BOTH):
                names += [schedule.name for schedule in control.schedules()]
            if kind == QUEUES:
                names += [queue["name"] for queue in control.queues()]
    except RotaError:
        return
    say_painted("\n".join(dict.fromkeys(names)))


def _names(option: Option) -> list[str]:
    return [*option.names, *filter(None, [option.off])]


# bash: one function with a table of cases. `compgen -W` expands what it is given; words and names
# are plain (`check_name`) and hold nothing to expand.

BASH = """\
# Completion of rota in bash, written by `rota completion bash`.
_rota() {
  local cur="${COMP_WORDS[COMP_CWORD]}" command="${COMP_WORDS[1]}" place=0 option="" word index
  local words="" names="" files="" options="" IFS=$' \\t\\n'
  # bash takes `--name=value` for three words.
  [[ $cur == "=" ]] && cur=""
  for ((index = 2; index < COMP_CWORD; index++)); do
    word="${COMP_WORDS[index]}"
    if [[ $word == "=" ]]; then
      continue
    elif [[ -n $option ]]; then
      option=""
    else
      case "$command $word" in
%(valued)s) option="$word" ;;
      *" -"*) ;;
      *) ((place += 1)) ;;
      esac
    fi
  done
  if ((COMP_CWORD == 1)); then
    words="%(commands)s"
  elif [[ -n $option ]]; then
    case "$command $option" in
%(of_options)s
    esac
  elif [[ $cur == -* ]]; then
    case "$command" in
%(options)s
    esac
  else
    case "$command $place" in
%(of_arguments)s
    esac
  fi
  [[ -n $names ]] && words="$(rota completion --names "$names" 2>/dev/null)"
  if [[ -n $files ]]; then
    compopt -o filenames 2>/dev/null
    IFS=$'\\n'
    COMPREPLY=($(compgen -f -- "$cur"))
  else
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
  fi
}
complete -F _rota rota
"""


def bash(tables: Tables) -> str:
    valued, of_options, options, of_arguments = [], [], [], []
    for command, table in tables:
        names = [name for option in table for name in _names(option)]
        options.append(f'    {command.name}) words="{" ".join([*names, "--help"])}" ;;')
        place = 0
        for option in table:
            found = _bash_values(option)
            if not option.names:
                if found:
                    of_arguments.append(f'    "{command.name} {place}") {found} ;;')
                place += 1
            elif option.kind is not bool:
                patterns = " | ".join(f'"{command.name} {name}"' for name in option.names)
                valued.append(patterns)
                if found:
                    of_options.append(f"    {patterns}) {found} ;;")
    return BASH % {
        "commands": " ".join([*(command.name for command, _ in tables), *GENERAL]),
        "valued": " | \\\n".join(f"      {patterns}" for patterns in valued),
        "of_options": "\n".join(of_options),
        "options": "\n".join(options),
        "of_arguments": "\n".join(of_arguments),
    }


def _bash_values(option: Option) -> str:
    if option.values == FILES:
        return "files=yes"
    if isinstance(option.values, str):
        return f"names={option.values}"
    return f'words="{" ".join(option.values)}"' if option.values else ""


# zsh: `_arguments` does the work.

ZSH = """\
#compdef rota
# Completion of rota in zsh, written by `rota completion zsh`.
_rota_names() {
  local -a names
  # `_arguments` puts options of compadd before the kind.
  names=(${(f)"$(rota completion --names $@[-1] 2>/dev/null)"})
  compadd "${@[1,-2]}" -a names
}
_rota() {
  local -a commands
  commands=(
%(commands)s
  )
  if ((CURRENT == 2)); then
    _describe -t commands command commands
    compadd -- %(general)s
    return
  fi
  local command=$words[2]
  shift words
  ((CURRENT -= 1))
  case $command in
%(cases)s
  esac
}
# In a folder of $fpath this file is the function itself; sourced, it says what completes rota.
if [[ $funcstack[1] == _rota ]]; then
  _rota "$@"
else
  compdef _rota rota
fi
"""


def zsh(tables: Tables) -> str:
    cases = []
    for command, table in tables:
        lines = [spec for option in table for spec in _zsh_specs(option)]
        lines.append(_single("--help[Show the help of this command.]"))
        cases.append(f"  {command.name})\n    _arguments -s \\")
        cases += [f"      {line} \\" for line in lines[:-1]]
        cases.append(f"      {lines[-1]}\n    ;;")
    return ZSH % {
        "commands": "\n".join(
            "    " + _single(f"{command.name}:{command.help}") for command, _ in tables
        ),
        "general": " ".join(GENERAL),
        "cases": "\n".join(cases),
    }


def _zsh_specs(option: Option) -> Iterator[str]:
    action = _zsh_action(option)
    label = option.metavar.replace(":", r"\:")
    if not option.names:
        yield _single(f"{'*' if option.many else ''}:{label}:{action}")
        return
    names = _names(option)
    # One of them is enough, unless it may be repeated.
    before = "*" if option.many else f"({' '.join(names)})"
    text = option.help
    for mark in "\\[]:":
        text = text.replace(mark, f"\\{mark}")
    for name in names:
        if option.kind is bool:
            yield _single(f"{before}{name}[{text}]")
        else:
            equals = "=" if name.startswith("--") else "+"
            yield _single(f"{before}{name}{equals}[{text}]:{label}:{action}")


def _zsh_action(option: Option) -> str:
    if option.values == FILES:
        return "_files"
    if isinstance(option.values, str):
        return f"_rota_names {option.values}"
    return f"({' '.join(option.values)})" if option.values else " "


def _single(text: str) -> str:
    """In single quotes, as all three shells take it where no backslash stands before a quote."""
    return "'" + text.replace("'", "'\\''") + "'"


# fish: a line for each thing; two functions say where the cursor is.

FISH = """\
# Completion of rota in fish, written by `rota completion fish`.
function __rota_in
    set -l words (commandline -opc)
    test (count $words) -ge 2; and test "$words[2]" = "$argv[1]"
end
function __rota_at
    # How many arguments stand before the cursor; values of the options in $argv[3..] are none.
    __rota_in $argv[1]; or return 1
    set -l words (commandline -opc)
    set -l place 0
    set -l skip no
    for word in $words[3..]
        if test $skip = yes
            set skip no
        else if contains -- $word $argv[3..]
            set skip yes
        else if not string match -q -- '-*' $word
            set place (math $place + 1)
        end
    end
    test $skip = no; and test $place -eq $argv[2]
end
complete -c rota -f
complete -c rota -n 'test (count (commandline -opc)) -eq 1' -l version -d 'Show the version.'
complete -c rota -l help -s h -d 'Show the help.'
%(lines)s
"""


def fish(tables: Tables) -> str:
    lines = []
    for command, table in tables:
        lines.append(
            "complete -c rota -n 'test (count (commandline -opc)) -eq 1' "
            f"-a {command.name} -d {_fish(command.help)}"
        )
        valued = " ".join(
            name for option in table if option.kind is not bool for name in option.names
        )
        place = 0
        for option in table:
            if not option.names:
                if values := _fish_values(option):
                    condition = _fish(f"__rota_at {command.name} {place} {valued}")
                    lines.append(f"complete -c rota -n {condition} {values}")
                place += 1
                continue
            condition = _fish(f"__rota_in {command.name}")
            for names in ([*option.names], [option.off]):
                flags = " ".join(
                    f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                    for name in names
                    if name
                )
                if flags:
                    value = "" if option.kind is bool else f" -r {_fish_values(option)}".rstrip()
                    lines.append(
                        f"complete -c rota -n {condition} {flags}{value} -d {_fish(option.help)}"
                    )
    return FISH % {"lines": "\n".join(lines)}


def _fish_values(option: Option) -> str:
    if option.values == FILES:
        return "-F"
    if isinstance(option.values, str):
        return f"-f -a '(rota completion --names {option.values} 2>/dev/null)'"
    return f"-f -a {_fish(' '.join(option.values))}" if option.values else ""


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
