"""`fleet`: pods, ssh hosts, vast.ai instances and local jobs on one screen."""

from __future__ import annotations

from argparse import Namespace

from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.command_table import Command
from training_monitor.cli.options import add_members, add_screen


def declare(command: CommandParser) -> None:
    add_members(command)
    add_screen(command)


def run(args: Namespace) -> int:
    from training_monitor.cli.fleet import changed_config, check_group, open_monitor, read_specs, show_fleet
    from training_monitor.fleet import load_fleet_config

    config = changed_config(load_fleet_config(), args)
    check_group(args.group, config.groups)
    with open_monitor(read_specs(args.targets, config), args, config) as monitor:
        return show_fleet(monitor, args, "fleet", config)


COMMAND = Command(run, declare, ("my-pod ssh://me@gpu1 vast://30007012", "nightly --notify --once"))
