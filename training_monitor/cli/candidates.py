"""What completes a command line at a Tab, for the scripts of `completion`; nothing is asked of the network."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from training_monitor.cli.argument_types import FILES, FOLDERS
from training_monitor.cli.arguments import every_command
from training_monitor.cli.command_table import GROUPS, find_command, list_commands
from training_monitor.cli.known_names import known_names
from training_monitor.core.command_arguments import NO_VALUE, ONE, OPTIONAL, REST, SEVERAL, Argument
from training_monitor.core.regex import regex

_WORD = regex(r"""(?:[^\s'"\\]|\\.|\\$|'[^']*(?:'|$)|"(?:\\.|[^"\\])*(?:"|$))+""", re.DOTALL)
_NOT_PLAIN = regex(r"[^\w%+,./:=@-]", re.ASCII)
_Found = tuple[str, dict[str, str]]


def complete(shell: str, words: Sequence[str]) -> Iterator[str]:
    """Yield the lines that a script reads: first how it completes, then the candidates.

    It completes with the candidates (`words`, or `described` with help beside them), with `files` or `folders`, or the
    words behind -- as a `command` line of their own.

    Args:
        shell: bash, zsh or fish.
        words: those after the program up to the cursor, the last one unfinished; for bash, the line up to the cursor
            and the end of it that readline replaces.
    """
    if shell == "bash":
        yield from _complete_bash(*words)
        return
    kind, found = find_candidates(words)
    yield "described" if any(found.values()) else kind
    mark = ":" if shell == "zsh" else "\t"
    yield from (f"{name}{mark}{help}" if help else name for name, help in found.items())


def _complete_bash(line: str, end: str) -> Iterator[str]:
    """Split the line, which bash cuts also at : = and @; quote the rest of each candidate that begins as typed."""
    words = _WORD.findall(line)
    if not line.endswith(words[-1]):
        words.append("")
    kind, found = find_candidates(words[1:])
    yield kind
    is_quoted = words[-1].startswith(("'", '"'))
    typed = words[-1][1:] if is_quoted else words[-1].replace("\\", "")
    for name in found:
        rest = _NOT_PLAIN.sub(r"\\\g<0>", name[len(typed) :])
        if name.startswith(typed) and not (is_quoted and "\\" in rest):
            yield end + rest


def find_candidates(words: Sequence[str]) -> _Found:
    """Return how the last word is completed, see `complete`, and the candidates, with help if they are described."""
    *before, current = words
    commands, command = list_commands(), find_command(before) or ""
    if not before:
        titles = {name.partition(" ")[0]: title for title, group in GROUPS.items() for name in group}
        named = {word: commands.get(word, title) for word, title in titles.items()}
        return "words", {**named, "--help": "show the usage", "--version": "print the version"}
    if command not in commands:
        group = "".join(f"{word} " for word in before)
        return "words", {name[len(group) :]: help for name, help in commands.items() if name.startswith(group)}
    given = before[len(command.split()) :]
    takes = every_command(command)[command]
    options = {name: each for each in takes for name in each.names if each.values != NO_VALUE}
    places = [each for each in takes if not each.names]
    if "--" in given and [each.values for each in places] == [REST]:
        return "command", {}
    valued, place = _place(options, given)
    name, equals, _ = current.partition("=")
    if current.startswith("--") and equals:
        kind, found = _values(options.get(name))
        return kind, {f"{name}={value}": "" for value in found}
    if not current.startswith("-") or valued and valued.values == ONE:
        several = places[-1:] if places and places[-1].values == SEVERAL else []
        kind, found = _values(valued or next(iter(places[place:] or several), None))
        if kind != "words" or found or valued:
            return kind, found
    left = (each for each in takes if each.is_repeatable or not {*each.names} & {*given})
    return "words", {name: each.help for each in left for name in each.names}


def _place(options: dict[str, Argument], given: Sequence[str]) -> tuple[Argument | None, int]:
    """Return the option whose value comes next, if any, and the number of positional arguments before it."""
    valued: Argument | None = None
    place = 0
    for word in given:
        if valued and valued.values == ONE:
            valued = None
        elif word.startswith("-") and word != "-":
            valued = options.get(word)
        elif not valued:
            place += 1
        elif valued.values == OPTIONAL:
            valued = None
    return valued, place


def _values(argument: Argument | None) -> _Found:
    if argument is None:
        return "words", {}
    if argument.completes in (FILES, FOLDERS):
        return argument.completes, {}
    return "words", dict.fromkeys(argument.choices or known_names(argument.completes), "")
