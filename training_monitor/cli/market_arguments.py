"""The options of `instances`, `offers`, `dataset`, `keys` and `credits`. Every command declares them: argparse is all
it may cost."""

from __future__ import annotations

import argparse

from training_monitor.cli.argument_types import amount, dollars


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 8):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number, 0 or more")
    return int(text)


def add_instances(command: argparse.ArgumentParser) -> None:
    """Declare the options of `instances`."""
    command.add_argument("id", metavar="ID", nargs="?", help="more about this one (default: list them)")


def add_offers(command: argparse.ArgumentParser) -> None:
    """Declare the options of `offers`."""
    command.add_argument(
        "--gpu",
        nargs="+",
        action="extend",
        metavar="NAME",
        help="only these, most wanted first (default: any, those of VASTAI_PREFERRED_GPUS first)",
    )
    for option, metavar, text in (
        ("--max-price", "DOLLARS", "per hour, with the disk (default: 4.50, or VASTAI_MAX_BID_PER_HOUR)"),
        ("--min-vram", "GB", "of each GPU (default: 24, or VASTAI_MIN_VRAM_GB)"),
        ("--disk", "GB", "(default: 64, or VASTAI_DEFAULT_DISK_GB)"),
        ("--reliability", "SHARE", "at least this, 0 to 1 (default: 0.95)"),
    ):
        command.add_argument(option, type=amount, metavar=metavar, help=text)
    command.add_argument("--country-not", nargs="*", metavar="XX", help="not in these countries (default: CN HK)")
    command.add_argument("--bid", action="store_true", help="cheaper machines that may be taken away at any time")
    command.add_argument("--limit", type=_count, default=20, metavar="N", help="show so many (default: %(default)s)")


def add_dataset(command: argparse.ArgumentParser) -> None:
    """Declare the options of `dataset`."""
    command.add_argument("path", metavar="PATH", help="a folder of images and captions on this machine")
    command.add_argument("--min-images", type=_count, default=10, metavar="N", help="fewer are an error (default: 10)")
    command.add_argument("--trigger", metavar="WORD", help="that captions have to hold")
    command.add_argument("--require-captions", action="store_true", help="an image without one is an error")


def add_keys(command: argparse.ArgumentParser) -> None:
    """Declare the options of `keys`."""
    command.add_argument("--setup", action="store_true", help="make the pair if there is none, and register it")
    command.add_argument(
        "--path", metavar="FILE", help="(default: VASTAI_SSH_KEY_PATH, else ~/.ssh/vastai/vastai_ed25519)"
    )


def add_credits(command: argparse.ArgumentParser) -> None:
    """Declare the options of `credits`."""
    command.add_argument("account", metavar="ACCOUNT", nargs="?", help="of the ledger here (default: vast.ai's own)")
    change = command.add_mutually_exclusive_group()
    change.add_argument("--deposit", type=dollars, metavar="DOLLARS", help="pay in to ACCOUNT")
    change.add_argument(
        "--withdraw", type=dollars, metavar="DOLLARS", help="take out of ACCOUNT again: a wrong deposit is corrected so"
    )
    command.add_argument("--reason", metavar="TEXT", help="why it was paid in or taken out")
    command.add_argument("--payment", metavar="ID", help="the same payment counts once")
