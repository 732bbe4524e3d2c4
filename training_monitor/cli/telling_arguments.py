"""The options that say who is told. Every command declares them: argparse is all it may cost."""

from __future__ import annotations

import argparse


def add_telling(command: argparse.ArgumentParser) -> None:
    """Declare who is told."""
    command.add_argument(
        "--notify", nargs="?", const="", metavar="USER", help="send notices, see `training-monitor notify`"
    )
