"""The script that completes the command line in fish, which quotes what it inserts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from training_monitor.cli.argument_types import FILES, FOLDERS
from training_monitor.cli.arguments import NO_VALUE, OPTIONAL, REST, SEVERAL, Argument
from training_monitor.cli.command_table import GROUPS

MOST_PLACES = 999
_HEAD = r"""# Completes training-monitor in fish. Made by `training-monitor completion fish`.

function __training_monitor_begins --description 'no command is typed yet'
    test (count (commandline -opc)) -le 1
end

function __training_monitor_is --description 'COMMAND: this is the command'
    set -l words (commandline -opc)
    test (count $words) -ge 2; and test $words[2] = $argv[1]
end

function __training_monitor_after --description 'COMMAND OPTION...: the word comes after one of these options'
    set -l words (commandline -opc)
    __training_monitor_is $argv[1]; and contains -- $words[-1] $argv[2..-1]
end

function __training_monitor_at --description 'COMMAND FROM TO OPTION...: its place, without these and their values'
    __training_monitor_is $argv[1]; or return
    set -l words (commandline -opc)
    set -l place 1
    set -l is_value no
    set -e words[1..2]
    for word in $words
        if string match -q -- '-?*' $word
            contains -- $word $argv[4..-1]; and set is_value yes; or set is_value no
        else if test $is_value = yes
            set is_value no
        else
            set place (math $place + 1)
        end
    end
    test $is_value = no; and test $place -ge $argv[2]; and test $place -le $argv[3]
end

function __training_monitor_inner --description 'complete the command line behind --'
    set -l words (commandline -opc)
    set -e words[1..(contains -i -- -- $words)]
    complete -C (string join ' ' -- (string escape -- $words) (commandline -ct))
end

complete -c training-monitor -f
complete -c training-monitor -n __training_monitor_begins -s h -l help -d 'show how it is used'
complete -c training-monitor -n __training_monitor_begins -l version -d 'print the version'
"""


def fish_script(commands: Mapping[str, Sequence[Argument]]) -> str:
    """Return the script for these commands."""
    helps = {name: command.help for group in GROUPS.values() for name, command in group.items()}
    begin = "complete -c training-monitor -n __training_monitor_begins"
    lines = [f"{begin} -a {name} -d {_quoted(helps[name])}" for name in commands]
    for name, takes in commands.items():
        lines += ["", *_options(name, takes), *_places(name, takes)]
    return _HEAD + "\n".join(lines) + "\n"


def _options(command: str, takes: Sequence[Argument]) -> Iterator[str]:
    begin = f"complete -c training-monitor -n '__training_monitor_is {command}'"
    for each in (each for each in takes if each.names):
        names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in each.names)
        value = "" if each.values in (NO_VALUE, OPTIONAL) else f" {_value(each)}"
        yield f"{begin} {names}{value} -d {_quoted(each.help)}"
        if each.values == OPTIONAL and _value(each) != "-x":
            after = f"__training_monitor_after {command} {' '.join(each.names)}"
            yield f"complete -c training-monitor -n '{after}' {_value(each)}"


def _places(command: str, takes: Sequence[Argument]) -> Iterator[str]:
    valued = " ".join(name for each in takes if each.values != NO_VALUE for name in each.names)
    for number, each in enumerate((each for each in takes if not each.names), 1):
        last = MOST_PLACES if each.values == SEVERAL else number
        if each.values == REST:
            after = f"__training_monitor_is {command}; and contains -- -- (commandline -opc)"
            yield f"complete -c training-monitor -n '{after}' -x -a '(__training_monitor_inner)'"
        elif _value(each) != "-x":
            at = f"__training_monitor_at {command} {number} {last} {valued}".rstrip()
            yield f"complete -c training-monitor -n '{at}' {_value(each)}"


def _value(argument: Argument) -> str:
    """Return what `complete` is told of a value: -x alone stands for free text."""
    if argument.choices:
        return f"-x -a '{' '.join(argument.choices)}'"
    usual = {
        "": "-x",
        FILES: "-r -F",
        FOLDERS: "-x -a '(__fish_complete_directories (commandline -ct))'",
    }
    known = f"-x -a '(command training-monitor completion --known {argument.completes} 2>/dev/null)'"
    return usual.get(argument.completes, known)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
