"""`rent worker`: work through the queue: rent, train, save, destroy."""

from __future__ import annotations

from argparse import Namespace

from training_monitor.cli.argument_types import CommandParser, positive_count
from training_monitor.cli.command_table import Command


def declare(command: CommandParser) -> None:
    command.value("--jobs", "N", "at the same time (default: %(default)s)", type=positive_count, default=1)
    command.flag("--until-empty", "leave when nothing is left to do")
    command.flag("--no-sweep", "leave the sweeping to `training-monitor rent sweep`")
    command.notify()
    command.heartbeat()


def run(args: Namespace) -> int:
    from training_monitor.cli.service import worker

    return worker(args)


COMMAND = Command(run, declare, ("--jobs 4", "--until-empty"))
