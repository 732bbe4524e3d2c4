"""`restart`: supervise a Ray job and restart it from its checkpoints."""

from __future__ import annotations

from argparse import Namespace

from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.command_table import Command
from training_monitor.cli.options import add_supervision


def declare(command: CommandParser) -> None:
    command.target()
    command.value("job_name", "NAME", "jobs are called NAME or NAME-attempt-N")
    command.value("--job", "JOB", "start by supervising this submission id")
    command.value("--entrypoint", "COMMAND", "default: that of the latest Ray job of this name")
    add_supervision(command)


def run(args: Namespace) -> int:
    from training_monitor.cli.supervising import restart

    return restart(args)


COMMAND = Command(run, declare, ("my-head-pod my-training --checkpoint-dir /checkpoints/my-training",))
