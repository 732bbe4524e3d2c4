"""What each command takes, read from its parser: the one source of completion and of the man page."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.parsing import build_parser
from training_monitor.core.frozen import dataclass

NO_VALUE, ONE, OPTIONAL, SEVERAL, REST = "", "1", "?", "*", "..."


@dataclass(frozen=True, slots=True)
class Argument:
    """An option, or a positional argument, which has no names.

    `values` is NO_VALUE, ONE, OPTIONAL (none or one), SEVERAL (or none), or REST of the line. `completes` is what
    shells complete them with: FILES, FOLDERS, a kind of `known_names`, or "" for free text.
    """

    names: tuple[str, ...]
    metavar: str
    help: str
    values: str
    completes: str
    choices: tuple[str, ...]
    is_repeatable: bool


def every_command(only: str | None = None) -> Mapping[str, list[Argument]]:
    """Return the arguments of every command, or of one, in the order of the help."""
    return {name: [*_arguments(parser)] for name, parser in build_parser(only).commands.items()}


def _arguments(parser: CommandParser) -> Iterator[Argument]:
    expand = parser._get_formatter()._expand_help
    for action in parser._actions:
        yield Argument(
            names=tuple(action.option_strings),
            metavar=action.metavar if isinstance(action.metavar, str) else action.dest.upper(),
            help=" ".join(expand(action).split()) if action.help else "",
            values=_values(action.nargs),
            completes=parser.completes.get(action.dest, ""),
            choices=tuple(map(str, action.choices or ())),
            is_repeatable=isinstance(action, (argparse._AppendAction, argparse._ExtendAction)),
        )


def _values(nargs: object) -> str:
    usual = {0: NO_VALUE, None: ONE, argparse.OPTIONAL: OPTIONAL, argparse.REMAINDER: REST}
    return usual.get(nargs, SEVERAL)  # type: ignore[call-overload, no-any-return]
