"""What the numbers of options may be. Every command declares its options: argparse is all this may cost."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import nan


def seconds_from(least: float, *, below: float) -> Callable[[str], float]:
    """A type of seconds from `least` on."""

    def read(text: str) -> float:
        value = _number(text)
        if not least <= value < below:
            raise argparse.ArgumentTypeError(f"{text!r}: expected seconds, from {least:g}")
        return value

    return read


def positive_number(text: str) -> float:
    """A number above 0, and below 1e9."""
    value = _number(text)
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number above 0")
    return value


def _number(text: str) -> float:
    """nan, which is in no range, of a text that is no number."""
    try:
        return float(text)
    except ValueError:
        return nan
