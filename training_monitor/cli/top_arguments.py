"""The options of `top`. Every command declares them: argparse is all it may cost."""

from __future__ import annotations

import argparse

from training_monitor.cli.argument_types import positive_number, seconds_from

CSV_DIR = "./train/statistics/data"
_SECONDS = seconds_from(0.1, below=1e6)


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
        type=_SECONDS,
        default=2.0,
        metavar="SECONDS",
        help="between refreshes (default: %(default)g)",
    )
    for option, metavar, text in (
        ("--max-cpus", "CORES", "that the runs may use (default: all)"),
        ("--max-ram", "GB", "of memory that they may use (default: all)"),
        ("--max-gpu", "GB", "of GPU memory that they may use (default: all)"),
    ):
        command.add_argument(option, type=positive_number, metavar=metavar, help=text)
    command.add_argument(
        "--csv-interval", type=_SECONDS, metavar="SECONDS", help="between rows in CSV files (default: no CSV)"
    )
    command.add_argument(
        "--csv-dir", default=CSV_DIR, metavar="PATH", help="the folder of the CSV files (default: %(default)s)"
    )
    mode = command.add_mutually_exclusive_group()
    mode.add_argument("--headless", action="store_true", help="no screen: only CSV, or with --json a line each time")
    mode.add_argument("--once", action="store_true", help="look once and print a table (default without a terminal)")
    command.add_argument("--read-only", action="store_true", help="no key can signal, edit or delete anything")
