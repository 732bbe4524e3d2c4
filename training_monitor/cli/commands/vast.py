"""`vast`: show vast.ai instances on one screen: training, GPUs, cost, alerts."""

from __future__ import annotations

import argparse
from argparse import Namespace

from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.command_table import Command
from training_monitor.cli.options import add_screen


def _instances(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isascii() and word.isdigit() and len(word) <= 18 for word in words):
        raise argparse.ArgumentTypeError(f"{text!r}: expected comma-separated numbers, such as 30007012,30007267")
    return list(dict.fromkeys(int(word) for word in words))


def declare(command: CommandParser) -> None:
    which = command.add_mutually_exclusive_group()
    which.add_argument("--instances", type=_instances, metavar="A,B", help="show only instances with these IDs")
    which.add_argument("--all", action="store_true", help="show every instance that is not stopped (default)")
    command.flag("--mock", "show simulated instances; needs no network, no account and no vastai command")
    add_screen(command)


def run(args: Namespace) -> int:
    from training_monitor.cli.fleet import changed_config, check_group, open_mock, open_monitor, show_fleet
    from training_monitor.fleet import FleetConfig, load_fleet_config

    if args.mock:
        config = changed_config(FleetConfig(), args)
        mock = open_mock(args, config, args.instances or ())
        check_group(args.group, mock.snapshot().groups)
        return show_fleet(mock, args, "vast.ai (mock)", config)
    config = changed_config(load_fleet_config(), args)
    check_group(args.group, config.groups)
    specs = [spec for number in args.instances or () for spec in config.specs_of(f"vast://{number}")]
    with open_monitor(specs, args, config, whole_account=not specs) as monitor:
        return show_fleet(monitor, args, "vast.ai", config)


COMMAND = Command(run, declare, ("", "--mock", "--once"))
