"""What each command takes, read from its parser: the one source of completion, the man page and MCP tools."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

from training_monitor.cli.argument_types import (
    CommandParser,
    amount,
    count,
    dollars,
    port,
    positive_count,
    positive_number,
)
from training_monitor.cli.parsing import build_parser
from training_monitor.core.command_arguments import NO_VALUE, ONE, OPTIONAL, REST, SEVERAL, Argument

_JSON_TYPES: dict[object, str] = {
    **dict.fromkeys((count, positive_count, port), "integer"),
    **dict.fromkeys((amount, dollars, positive_number), "number"),
}


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
            key=action.dest,
            default=action.default if isinstance(action.default, str) else None,
            type=_JSON_TYPES.get(action.type, "string"),
        )


def _values(nargs: object) -> str:
    usual = {0: NO_VALUE, None: ONE, argparse.OPTIONAL: OPTIONAL, argparse.REMAINDER: REST}
    return usual.get(nargs, SEVERAL)  # type: ignore[call-overload, no-any-return]
