"""Durations and sizes as people read them."""

from __future__ import annotations

import math

import pytest

from training_monitor.units import format_bytes, format_duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.04, "0s"),
        (2.34, "2.3s"),
        (9.96, "10s"),
        (59.9, "59s"),
        (60, "1m"),
        (300, "5m"),
        (301, "5m01s"),
        (3599.9, "59m59s"),
        (3600, "1h00m"),
        (3900, "1h05m"),
        (86399, "23h59m"),
        (183_600, "2d03h"),
        (1e9, "11574d01h"),
    ],
)
def test_a_duration_is_short_and_has_two_units_at_most(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize("unknown", [None, math.nan, math.inf, -1.0, -math.inf])
def test_a_duration_that_is_not_known_is_a_question_mark_and_never_zero(unknown: float | None) -> None:
    assert format_duration(unknown) == "?"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (5 * 1024**2, "5.0 MiB"),
        (7 * 1024**3, "7.0 GiB"),
        (2.5 * 1024**4, "2.5 TiB"),
        (3 * 1024**5, "3.0 PiB"),
        (5000 * 1024**5, "5000.0 PiB"),
    ],
)
def test_bytes_are_in_powers_of_1024(count: float, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize("unknown", [None, math.nan, math.inf, -math.inf])
def test_a_size_that_is_not_known_is_a_question_mark(unknown: float | None) -> None:
    assert format_bytes(unknown) == "?"
