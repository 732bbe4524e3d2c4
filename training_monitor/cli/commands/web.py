"""`web`: the same in a browser: live table, charts, attempts, alerts, cost."""

from __future__ import annotations

from argparse import Namespace

from training_monitor.cli.argument_types import FILES, CommandParser, port
from training_monitor.cli.command_table import Command
from training_monitor.cli.options import add_any_members, add_fleet_looks


def declare(command: CommandParser) -> None:
    add_any_members(command)
    command.value("--port", "PORT", "where to listen; 0: any free one (default: %(default)s)", type=port, default=8750)
    command.value(
        "--host", "ADDRESS", "where to listen; beyond this machine only with --token-file", default="127.0.0.1"
    )
    command.value("--name", "NAME", "a host name of this page, beside localhost", action="append", default=[])
    command.value(
        "--token-file",
        "FILE",
        "sign in with the token in this file, which only you can read; env:NAME for a variable that holds it",
        FILES,
    )
    command.flag("--allow-write", "let the page stop and destroy members, each after a typed confirmation")
    add_fleet_looks(command)


def run(args: Namespace) -> int:
    from training_monitor.cli.web import web

    return web(args)


COMMAND = Command(
    run,
    declare,
    ("my-pod ssh://me@gpu1", "--mock", "--vast --host 0.0.0.0 --name gpu1.lan --token-file token"),
)
