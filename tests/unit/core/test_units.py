"""Durations and sizes as people read them."""

from __future__ import annotations

import math

import pytest

from training_monitor.core.units import format_bytes, format_duration, parse_duration


def test_a_duration_is_short_and_has_two_units_at_most(subtests: pytest.Subtests) -> None:
    for seconds, text in [
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
    ]:
        with subtests.test(seconds=seconds, text=text):
            assert format_duration(seconds) == text


def test_a_duration_that_is_not_known_is_a_question_mark_and_never_zero(subtests: pytest.Subtests) -> None:
    for unknown in [None, math.nan, math.inf, -1.0, -math.inf]:
        with subtests.test(unknown=unknown):
            assert format_duration(unknown) == "?"


def test_bytes_are_in_powers_of_1024(subtests: pytest.Subtests) -> None:
    for count, text in [
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
    ]:
        with subtests.test(count=count, text=text):
            assert format_bytes(count) == text


@pytest.mark.parametrize("unknown", [None, math.nan, math.inf, -math.inf])
def test_a_size_that_is_not_known_is_a_question_mark(unknown: float | None) -> None:
    assert format_bytes(unknown) == "?"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("2h", 7200),
        ("1d", 86400),
        ("2w", 1209600),
        ("1h30m", 5400),
        ("2d 03h", 183600),
        ("1.5h", 5400),
        (".5m", 30),
        ("1e2s", 100),
        ("0s", 0),
    ],
)
def test_a_duration_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "60", "m", "15min", "-5m", "5m-", "1h 30", "1e400s", "1e999d", "٣m", "5 m x", "nan", "infs", "1:30"]
)
def test_what_is_no_duration_is_none(text: str) -> None:
    assert parse_duration(text) is None


@pytest.mark.parametrize("seconds", [0, 0.5, 59, 60, 61, 3599, 3900, 86399 // 60 * 60, 86400, 183600])
def test_what_a_duration_is_shown_as_is_read_back(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds
