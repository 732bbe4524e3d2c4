"""`run`: supervise a command: run it and restart it from its checkpoints."""

from __future__ import annotations

import argparse
from argparse import Namespace

from training_monitor.cli.argument_types import TARGETS, CommandParser
from training_monitor.cli.command_table import Command
from training_monitor.cli.options import add_supervision


def declare(command: CommandParser) -> None:
    command.namespace()
    command.value("--target", "TARGET", "see below (default: local)", TARGETS, default="local")
    command.value("--name", "NAME", "of the job (default: made from the command)")
    command.value("--working-dir", "DIR", "on the target (default: here, or where a shell starts there)")
    command.value("--env", "NAME[=VALUE]", "for the command; NAME alone passes it on", action="append")
    add_supervision(command)
    command.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")


def run(args: Namespace) -> int:
    from training_monitor.cli.supervising import run

    return run(args)


COMMAND = Command(
    run,
    declare,
    (
        "--checkpoint-dir ./checkpoints --resume-argument=--resume -- python3 train.py",
        "--target ssh://me@gpu1 --notify -- python3 train.py",
    ),
)
