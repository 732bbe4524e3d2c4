"""`terminate`: end a training: stop it, upload its newest checkpoint, destroy what was rented."""

from __future__ import annotations

from argparse import Namespace

from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.command_table import Command
from training_monitor.cli.options import add_watched


def declare(command: CommandParser) -> None:
    command.target()
    add_watched(command)
    command.value("--reason", "TEXT", "why, for the notice (default: %(default)s)", default="Ended by hand")


def run(args: Namespace) -> int:
    from training_monitor.cli.watching import terminate

    return terminate(args)


COMMAND = Command(run, declare, ("vast://30007012 --upload hf:me/my-lora",))
