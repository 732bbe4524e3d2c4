"""`mcp`: a server for MCP clients, on stdin and stdout: a tool for each look, and acts if you allow them."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from training_monitor.cli.argument_types import FOLDERS, CommandParser, WrongUse
from training_monitor.cli.command_table import Command, list_commands
from training_monitor.cli.output import OK, hint, print_json
from training_monitor.core.errors import SettingsError
from training_monitor.core.read_fence import fence_reading

if TYPE_CHECKING:
    from training_monitor.agents.mcp.tools import Tool


def declare(command: CommandParser) -> None:
    command.flag(
        "--allow-write",
        "also offer tools that make changes (stop, run, upload, rent, destroy); each call requires a confirmation",
    )
    command.several(
        "--read-under",
        "DIR",
        "also allow reading files inside this folder of a target (may be repeated; default: only logs and checkpoint "
        "folders of jobs and of detected trainings)",
        FOLDERS,
    )
    command.flag("--text", "also return each result as text, for clients that show only text")


def _check(words: Sequence[str]) -> None:
    """Raise Refused for words that are no command line."""
    from training_monitor.agents.mcp.calls import Refused
    from training_monitor.cli.parsing import parse

    try:
        parse(words)
    except WrongUse as error:
        hint = "correct the inputs of the tool: see its inputSchema"
        raise Refused({"error": error.what, "kind": "SettingsError", "hint": hint}) from None


def open_tools(*, allow_write: bool) -> Mapping[str, Tool]:
    """Return the tools of a server, by name."""
    from training_monitor.agents.mcp.tools import make_tools
    from training_monitor.cli.arguments import every_command

    return make_tools(every_command(), list_commands(), _check, allow_write=allow_write)


def run(args: Namespace) -> int:
    """Serve until stdin ends; with --json, print the tools instead."""
    from training_monitor.agents.mcp.server import serve
    from training_monitor.agents.mcp.tools import list_tools

    for folder in args.read_under:
        if not folder.startswith(("/", "~")) or not folder.isprintable():
            raise SettingsError("--read-under", folder, "an absolute path, or one that begins with ~/")
    fence_reading(args.read_under)
    tools = open_tools(allow_write=args.allow_write)
    if args.json:
        print_json(args, {"tools": list_tools(tools)})
        return OK
    if sys.stdin.isatty():
        hint("this command is meant to be started by an MCP client, which writes to its standard input; Ctrl-D ends it")
    serve(tools, with_text=args.text)
    return OK


COMMAND = Command(run, declare, ("", "--allow-write", "--json"))
