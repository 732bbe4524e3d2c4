"""Averages and sums, without what `statistics` brings along: fractions, decimals and random numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def median(values: Iterable[float]) -> float:
    """Return the middle of the values, or the mean of the two in the middle. Raises ValueError if there is none."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no median of no values")
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def average(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values; None without any."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def known_sum(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values; None without any."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
