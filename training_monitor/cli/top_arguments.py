"""The options of `top`. Every command declares them: argparse is all it may cost."""

from __future__ import annotations

import argparse

CSV_DIR = "./train/statistics/data"


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number above 0")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds, from 0.1")
    return value


def add_top(command: argparse.ArgumentParser) -> None:
    """Declare the options of `top`."""
    command.add_argument(
        "folder",
        metavar="FOLDER",
        help="with the progress files of the runs: a folder here, ssh://[user@]host[:port]/path, "
        "k8s://namespace/pod[/container]:/path, POD:/path or vast://ID/path",
    )
    command.add_argument("-n", "--namespace", default="default", help="of a bare pod name (default: %(default)s)")
    command.add_argument(
        "-i",
        "--interval",
        type=_seconds,
        default=2.0,
        metavar="SECONDS",
        help="between refreshes (default: %(default)g)",
    )
    for option, metavar, text in (
        ("--max-cpus", "CORES", "that the runs may use (default: all)"),
        ("--max-ram", "GB", "of memory that they may use (default: all)"),
        ("--max-gpu", "GB", "of GPU memory that they may use (default: all)"),
    ):
        command.add_argument(option, type=_positive, metavar=metavar, help=text)
    command.add_argument(
        "--csv-interval", type=_seconds, metavar="SECONDS", help="between rows in CSV files (default: no CSV)"
    )
    command.add_argument(
        "--csv-dir", default=CSV_DIR, metavar="PATH", help="the folder of the CSV files (default: %(default)s)"
    )
    mode = command.add_mutually_exclusive_group()
    mode.add_argument("--headless", action="store_true", help="no screen: only CSV, or with --json a line each time")
    mode.add_argument("--once", action="store_true", help="look once and print a table (default without a terminal)")
    command.add_argument("--read-only", action="store_true", help="no key can signal, edit or delete anything")
