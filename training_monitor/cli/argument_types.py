"""What options may be, and what several of them say. Each is declared by every command: argparse is all it may cost."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import nan

WHAT = "a PID, a log file or pattern, a Ray job, process:NAME or a name (default: what is found there)"
STALLS = "time without a step that counts as a stall, four times as long while it shows signs of work"


def seconds_from(least: float, *, below: float) -> Callable[[str], float]:
    """A type of seconds from `least` on."""

    def read(text: str) -> float:
        value = _number(text)
        if not least <= value < below:
            raise argparse.ArgumentTypeError(f"{text[:60]!r}: expected seconds, from {least:g}")
        return value

    return read


SECONDS = seconds_from(0, below=1e9)


def add_take_over(command: argparse.ArgumentParser) -> None:
    """Declare what a second supervisor needs."""
    command.add_argument(
        "--take-over", action="store_true", help="supervise it instead of another machine's supervisor, which then ends"
    )


def some_name(text: str) -> str:
    """A name that is not empty."""
    if not text.strip():
        raise argparse.ArgumentTypeError("expected a name")
    return text


def amount(text: str) -> float:
    """A number from 0, and below 1e9."""
    value = _number(text)
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text[:60]!r}: expected a number, 0 or more and below 1000000000")
    return value


def dollars(text: str) -> float:
    """An amount for the ledger, which keeps millionths of a dollar: above 0, at most 1e9, with at most 6 decimals."""
    from decimal import Decimal, InvalidOperation

    try:
        value = Decimal(text)
        is_kept_exactly = 0 < value <= 10**9 and value * 10**6 == (value * 10**6).to_integral_value()
    except InvalidOperation:  # no number, or a nan
        is_kept_exactly = False
    if not is_kept_exactly:
        raise argparse.ArgumentTypeError(
            f"{text[:60]!r}: expected dollars, above 0 and at most 1000000000, with at most 6 decimals"
        )
    return float(value)


def positive_number(text: str) -> float:
    """A number above 0, and below 1e9."""
    value = _number(text)
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text[:60]!r}: expected a number above 0 and below 1000000000")
    return value


def _number(text: str) -> float:
    """nan, which is in no range, of a text that is no number."""
    try:
        return float(text)
    except ValueError:
        return nan
