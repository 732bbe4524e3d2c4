"""`vast`: vast.ai instances on one screen: training, GPUs, cost, alerts."""

from __future__ import annotations

import argparse
from argparse import Namespace

from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.command_table import Command
from training_monitor.cli.options import add_screen


def _instances(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isascii() and word.isdigit() and len(word) <= 18 for word in words):
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected numbers with commas between them, as in 30007012,30007267"
        )
    return list(dict.fromkeys(int(word) for word in words))


def declare(command: CommandParser) -> None:
    which = command.add_mutually_exclusive_group()
    which.add_argument("--instances", type=_instances, metavar="A,B", help="only these")
    which.add_argument("--all", action="store_true", help="every instance that is not stopped (default)")
    command.flag("--mock", "made-up instances: needs no network, account or tool")
    add_screen(command)


def run(args: Namespace) -> int:
    from training_monitor.cli.fleet import vast

    return vast(args)


COMMAND = Command(run, declare, ("", "--mock", "--once"))
