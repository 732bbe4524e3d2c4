"""Parse the command line: each command declares its own arguments."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, cast

from training_monitor import __version__
from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.command_table import (
    DESCRIPTION,
    command_named,
    find_command,
    format_groups,
    list_commands,
)


def build_parser(only: str | None = None) -> CommandParser:
    """Build the parser of the whole command line, or of one command of it; of "" it has none, of `rent` all its own."""
    parser = CommandParser(prog="training-monitor", description=DESCRIPTION, epilog=format_groups())
    parser.add_argument("--version", action="version", version=f"training-monitor {__version__}")
    first = _add_commands(parser)
    of: dict[str, Any] = {}
    for name, help in list_commands().items():
        head, _, rest = name.rpartition(" ")
        if only not in (None, name, head or None):
            continue
        if head and head not in of:
            group = first.add_parser(head, description=f"The commands of {head} are below.", epilog=format_groups(head))
            group.set_defaults(parser=group)
            of[head] = _add_commands(group)
        parser.commands[name] = _add_command(of[head].add_parser if head else first.add_parser, name, rest, help)
    return parser


def _add_commands(parser: CommandParser) -> Any:
    return parser.add_subparsers(dest="subcommand", metavar="COMMAND", required=True, help="see below")


def _add_command(add: Callable[..., CommandParser], name: str, word: str, help: str) -> CommandParser:
    command = command_named(name)
    parser = add(word, description=help)
    parser.set_defaults(parser=parser, subcommand=name)
    parser.flag("--json", "print JSON")
    if command.declare:
        command.declare(parser)
    has_target = any(action.metavar == "TARGET" for action in parser._actions)
    target = ""
    if has_target:
        from training_monitor.targets.kinds import list_forms

        target = f"TARGET is {' | '.join(list_forms('POD'))}.\n\n"
    examples = "\n".join(f"  training-monitor {name} {words}".rstrip() for words in command.examples)
    parser.epilog = f"{target}examples:\n{examples}"
    return parser


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; an unknown command or option ends it, with the one that was probably meant."""
    names = list_commands()
    name = find_command(argv)
    parser = build_parser(only=name or "")
    if name not in names and argv and not argv[0].startswith("-"):
        asked = " ".join(argv[: 2 if name else 1])
        if name and len(argv) == 1:
            parser.error(f"specify one: {', '.join(each for each in names if each.startswith(f'{name} '))}")
        if name is None or not argv[1].startswith("-"):
            parser.error(f"unknown command {asked!r}{_meant(asked, [*names])}; see training-monitor --help")
    args, unknown = parser.parse_known_args(argv)
    if len(unknown) == 1 and not unknown[0].startswith("-") and (action := _find_open(args)):
        try:
            setattr(args, action.dest, args.parser._get_value(action, unknown.pop()))
        except argparse.ArgumentError as error:
            args.parser.error(str(error))
    if unknown:
        meant = _meant(unknown[0].partition("=")[0], args.parser.options)
        args.parser.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
    return args


def _find_open(args: argparse.Namespace) -> argparse.Action | None:
    """Return the optional positional argument without a value: argparse takes none that stands behind an option."""
    if "parser" not in args:
        return None
    rivals = [group._group_actions for group in args.parser._mutually_exclusive_groups]
    for each in args.parser._actions:
        if each.option_strings or each.nargs != "?":
            continue
        same = [each, *(other for group in rivals if each in group for other in group)]
        if all(getattr(args, other.dest) is None for other in same):
            return cast(argparse.Action, each)
    return None


def _meant(word: str, known: Sequence[str]) -> str:
    """Suggest a command or option; what all options or all commands of a group begin with makes none alike."""
    from training_monitor.core.errors import meant_name

    begun = next((each for each in ("--", f"{word.partition(' ')[0]} ") if word.startswith(each)), "")
    meant = meant_name(word[len(begun) :], [each[len(begun) :] for each in known if each.startswith(begun)])
    return f" (did you mean {begun}{meant}?)" if meant else ""
