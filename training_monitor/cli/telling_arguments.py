"""The options that say who is told. Every command declares them: argparse is all it may cost."""

from __future__ import annotations

import argparse

from training_monitor.cli.argument_types import SECONDS


def add_telling(command: argparse.ArgumentParser) -> None:
    """Declare who is told."""
    command.add_argument(
        "--notify", nargs="?", const="", metavar="USER", help="send notices, see `training-monitor notify`"
    )


def add_heartbeat(command: argparse.ArgumentParser) -> None:
    """Declare who hears that the command itself is alive."""
    command.add_argument(
        "--heartbeat",
        metavar="URL",
        help="GET this URL after every look that saw something, so that a dead-man service tells you when that stops; "
        "env:NAME for the variable that holds it",
    )


def add_outage_after(command: argparse.ArgumentParser) -> None:
    """Declare when an outage is told."""
    command.add_argument(
        "--outage-after",
        type=SECONDS,
        metavar="SECONDS",
        help="send a notice when nothing could be asked, or the state folder not be used, for so long (default: 600)",
    )
