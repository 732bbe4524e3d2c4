"""`metrics`: what `fleet` sees, for Prometheus: on stdout, or in a file for node_exporter."""

from __future__ import annotations

from argparse import Namespace

from training_monitor.cli.argument_types import FILES, CommandParser
from training_monitor.cli.command_table import Command
from training_monitor.cli.options import add_any_members, add_fleet_looks


def declare(command: CommandParser) -> None:
    add_any_members(command)
    command.value(
        "--textfile", "PATH", "write PATH, for node_exporter, after every look; its name ends with .prom", FILES
    )
    command.flag("--once", "look once (default without --textfile)")
    add_fleet_looks(command)


def run(args: Namespace) -> int:
    from training_monitor.cli.metrics import metrics

    return metrics(args)


COMMAND = Command(
    run,
    declare,
    ("my-pod ssh://me@gpu1", "nightly --textfile /var/lib/prometheus/node-exporter/fleet.prom"),
)
