"""Parse the command line: each command declares its own arguments."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from training_monitor import __version__
from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.command_table import DESCRIPTION, GROUPS, command_named, format_groups
from training_monitor.targets.kinds import list_forms


def build_parser(only: str = "") -> CommandParser:
    """Build the parser of the whole command line, or of one command of it."""
    parser = CommandParser(
        prog="training-monitor",
        description=DESCRIPTION,
        epilog=format_groups(),
    )
    parser.add_argument("--version", action="version", version=f"training-monitor {__version__}")
    commands = parser.add_subparsers(dest="subcommand", metavar="COMMAND", required=True, help="see below")
    for group in GROUPS.values():
        for name, help in group.items():
            if only in ("", name):
                _add_command(commands.add_parser, name, help)
    return parser


def _add_command(add: Callable[..., CommandParser], name: str, help: str) -> None:
    command = command_named(name)
    parser = add(name, description=help)
    parser.set_defaults(parser=parser)
    parser.flag("--json", "print JSON")
    if command.declare:
        command.declare(parser)
    has_target = any(action.metavar == "TARGET" for action in parser._actions)
    target = f"TARGET is {' | '.join(list_forms('POD'))}.\n\n" if has_target else ""
    examples = "\n".join(f"  training-monitor {name} {words}".rstrip() for words in command.examples)
    parser.epilog = f"{target}examples:\n{examples}"


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; an unknown command or option ends it, with the one that was probably meant."""
    names = [name for group in GROUPS.values() for name in group]
    parser = build_parser(only=argv[0] if argv and argv[0] in names else "")
    if argv and not argv[0].startswith("-") and argv[0] not in names:
        parser.error(f"there is no command {argv[0]!r}{_meant(argv[0], names)}; see training-monitor --help")
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        meant = _meant(unknown[0].partition("=")[0], args.parser.options)
        args.parser.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
    return args


def _meant(word: str, known: Sequence[str]) -> str:
    from training_monitor.core.errors import did_you_mean

    return did_you_mean(word, known)
