"""The script that completes the command line in zsh, whose `compadd` quotes what it inserts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from training_monitor.cli.argument_types import FILES, FOLDERS
from training_monitor.cli.arguments import NO_VALUE, ONE, OPTIONAL, REST, SEVERAL, Argument
from training_monitor.cli.command_table import GROUPS

_SCRIPT = r"""#compdef training-monitor
# Completes training-monitor in zsh. Made by `training-monitor completion zsh`.

_training-monitor_known() { # the arguments of compadd, then a kind of names
    local -a known
    known=(${(f)"$(command training-monitor completion --known $argv[-1] 2>/dev/null)"})
    compadd "${(@)argv[1,-2]}" -a known
}

_training-monitor_commands() {
    local -a commands
    commands=(
@NAMES@
    )
    _describe -t commands command commands
}

_training-monitor_inner() { # the command line behind --
    [[ $words[1] == -- ]] && { shift words; (( CURRENT-- )) }
    _normal
}

_training-monitor() {
    local curcontext=$curcontext state state_descr line
    typeset -A opt_args
    _arguments -C -S \
        '(- *)'{-h,--help}'[show how it is used]' \
        '(- *)--version[print the version]' \
        '1: :_training-monitor_commands' \
        '*:: :->command' && return
    [[ $state == command ]] || return 1
    case $words[1] in
@COMMANDS@
    *) return 1 ;;
    esac
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _training-monitor "$@" # a file in fpath, at its first use
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
    compdef _training-monitor training-monitor
fi
"""


def zsh_script(commands: Mapping[str, Sequence[Argument]]) -> str:
    """Return the script for these commands."""
    names = [f"        {_quoted(name, command.help)}\n" for group in GROUPS.values() for name, command in group.items()]
    return _SCRIPT.replace("@NAMES@\n", "".join(names)).replace(
        "@COMMANDS@\n", "".join(_command(name, takes) for name, takes in commands.items())
    )


def _command(name: str, takes: Sequence[Argument]) -> str:
    places = [each for each in takes if not each.names]
    specs = [spec for each in takes if each.names for spec in _options(each)]
    specs += [_place(number, each) for number, each in enumerate(places, 1)]
    return f"    {name})\n        " + " \\\n            ".join(["_arguments -s -S", *specs]) + " ;;\n"


def _options(argument: Argument) -> Iterator[str]:
    """Yield the spec of each name of an option; one that was given excludes the others, if it is not repeatable."""
    others = "*" if argument.is_repeatable else f"({' '.join(argument.names)})" if len(argument.names) > 1 else ""
    for name in argument.names:
        joined = "=" if argument.values == ONE and name.startswith("--") else ""  # --name=value, too
        yield f"'{others}{name}{joined}[{_escaped(argument.help)}]{_value(argument)}'"


def _value(argument: Argument) -> str:
    if argument.values == NO_VALUE:
        return ""
    colons = {OPTIONAL: "::", SEVERAL: ":*-*:"}.get(argument.values, ":")
    return f"{colons}{_escaped(argument.metavar)}:{_action(argument)}"


def _place(number: int, argument: Argument) -> str:
    if argument.values == REST:
        return "'*::COMMAND:_training-monitor_inner'"
    count = {OPTIONAL: f"{number}:", SEVERAL: "*"}.get(argument.values, str(number))
    return f"'{count}:{_escaped(argument.metavar)}:{_action(argument)}'"


def _action(argument: Argument) -> str:
    if argument.choices:
        return f"({' '.join(argument.choices)})"
    usual = {"": " ", FILES: "_files", FOLDERS: "_files -/"}
    return usual.get(argument.completes, f"_training-monitor_known {argument.completes}")


def _quoted(name: str, help: str) -> str:
    return f"'{name}:{_escaped(help)}'"


def _escaped(text: str) -> str:
    r"""Escape a text for a spec in single quotes: \ [ ] : and the quote itself."""
    for char in r"\[]:":
        text = text.replace(char, f"\\{char}")
    return text.replace("'", "'\\''")
