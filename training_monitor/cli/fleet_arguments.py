"""The options of `vast` and `fleet`. Every command declares them: argparse is all it may cost."""

from __future__ import annotations

import argparse

from training_monitor.cli.argument_types import seconds_from
from training_monitor.cli.telling_arguments import add_heartbeat, add_outage_after, add_telling


def _instances(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isascii() and word.isdigit() and len(word) <= 18 for word in words):
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected numbers with commas between them, as in 30007012,30007267"
        )
    return list(dict.fromkeys(int(word) for word in words))


def add_vast(command: argparse.ArgumentParser) -> None:
    """Declare the options of `vast`."""
    which = command.add_mutually_exclusive_group()
    which.add_argument("--instances", type=_instances, metavar="A,B", help="only these")
    which.add_argument("--all", action="store_true", help="every instance that is not stopped (default)")
    command.add_argument("--mock", action="store_true", help="made-up instances: needs no network, account or tool")
    _add_screen(command)


def add_fleet(command: argparse.ArgumentParser) -> None:
    """Declare the options of `fleet`."""
    command.add_argument(
        "targets",
        metavar="TARGET",
        nargs="*",
        help="TARGET, TARGET#JOB, TARGET#LOG, or a group of the settings file (default: all groups)",
    )
    command.add_argument("-n", "--namespace", default="default", help="of a bare pod name (default: %(default)s)")
    _add_screen(command)


def _add_screen(command: argparse.ArgumentParser) -> None:
    command.add_argument("--group", metavar="NAME", help="begin with this group; Tab shows the next")
    command.add_argument(
        "--interval", type=seconds_from(1, below=1e6), metavar="SECONDS", help="between refreshes (default: 10)"
    )
    command.add_argument(
        "--log-path",
        action="append",
        metavar="PATTERN",
        help="where the trainings' logs are, for the shell there; the newest match is read (default: "
        "/workspace/output/*/training.log and others)",
    )
    command.add_argument("--once", action="store_true", help="look once and print a table (default without a terminal)")
    command.add_argument("--read-only", action="store_true", help="no key can stop or destroy anything")
    command.add_argument("--no-history", action="store_true", help="keep nothing for `training-monitor history`")
    add_telling(command)
    add_heartbeat(command)
    add_outage_after(command)
