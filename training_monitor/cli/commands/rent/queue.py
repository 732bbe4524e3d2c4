"""`rent queue`: the trainings on rented machines; show or cancel one."""

from __future__ import annotations

from argparse import Namespace

from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.command_table import Command


def declare(command: CommandParser) -> None:
    command.value("job", "JOB", "show this one (default: list them)", nargs="?")
    command.flag("--cancel", "end JOB: save what there is, destroy its machine")
    command.value("--reason", "TEXT", "why, with --cancel (default: %(default)s)", default="cancelled by hand")
    command.flag("--all", "also those that have ended")


def run(args: Namespace) -> int:
    from training_monitor.cli.service import queue

    return queue(args)


COMMAND = Command(run, declare, ("", "my-lora-123456 --cancel"))
