"""Durations and sizes as people read them, the median, and a series as one line of characters."""

from __future__ import annotations

import math
import random
import statistics
from collections import deque

import pytest

from training_monitor.core.units import format_bytes, format_duration, format_sparkline, median, parse_duration


def test_a_duration_is_short_and_has_two_units_at_most() -> None:
    for each in """
        0=0s 0.04=0s 2.34=2.3s 9.96=10s 59.9=59s 60=1m 300=5m 301=5m01s 3599.9=59m59s 3600=1h00m 3900=1h05m
        86399=23h59m 183600=2d03h 1e9=11574d01h
    """.split():
        seconds, text = each.split("=")
        assert format_duration(float(seconds)) == text


def test_a_duration_or_size_that_is_not_known_is_a_question_mark_and_never_zero() -> None:
    for unknown in [None, math.nan, math.inf, -math.inf]:
        assert format_duration(unknown) == format_bytes(unknown) == "?"
    assert format_duration(-1.0) == "?"


def test_bytes_are_in_powers_of_1024() -> None:
    shown = {0: "0 B", 512: "512 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 5 * 1024**2: "5.0 MiB"}
    shown |= {7 * 1024**3: "7.0 GiB", 2.5 * 1024**4: "2.5 TiB", 3 * 1024**5: "3.0 PiB", 5000 * 1024**5: "5000.0 PiB"}
    assert {count: format_bytes(count) for count in shown} == shown


def test_a_duration_is_read_as_people_write_it() -> None:
    read = {"90s": 90, "15m": 900, "2h": 7200, "1d": 86400, "2w": 1209600, "1h30m": 5400, "2d 03h": 183600}
    for text, seconds in (read | {"1.5h": 5400, ".5m": 30, "1e2s": 100, "0s": 0}).items():
        assert parse_duration(text) == seconds
    for text in [
        "",
        "60",
        "m",
        "15min",
        "-5m",
        "5m-",
        "1h 30",
        "1e400s",
        "1e999d",
        "٣m",
        "5 m x",
        "nan",
        "infs",
        "1:30",
    ]:
        assert parse_duration(text) is None
    for seconds in [0, 0.5, 59, 60, 61, 3599, 3900, 86399 // 60 * 60, 86400, 183600]:
        assert parse_duration(format_duration(seconds)) == seconds


def test_the_median_is_that_of_the_standard_library() -> None:
    chance = random.Random(1)
    for size in range(1, 40):
        values = [chance.choice((chance.gauss(0, 10), chance.randint(-3, 3))) for _ in range(size)]
        assert median(iter(values)) == statistics.median(values)
    with pytest.raises(ValueError, match="no median"):
        median([])


def test_the_lowest_is_at_the_bottom_and_what_is_not_known_is_blank() -> None:
    for values, width, blocks, plain in [
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█", "__.-=*##"),
        ([1, 2, None, 4], 4, "▁▃ █", "_- #"),
        ([1, 3, 5, 7], 2, "▁█", "_#"),
        ([1, 3], 4, "▁▁██", "__##"),
        ([5], 3, "───", "---"),
        ([5, 5.01, None, 5], 4, "── ─", "-- -"),
        ([0.0, 0, -0.0], 3, "───", "---"),
        ([None, 2, None, 2], 2, "──", "--"),
        ([None, None], 2, "  ", "  "),
        ([], 3, "   ", "   "),
        ([1], 0, "", ""),
        ([-3, -2, -1], 3, "▁▅█", "_=#"),
    ]:
        assert format_sparkline(values, width) == blocks
        assert format_sparkline(values, width, ascii=True) == plain


def test_a_cell_is_the_mean_of_what_is_known_of_its_part_or_a_mark() -> None:
    assert format_sparkline([1, math.nan, 2, None, -math.inf, math.inf], 6) == "▁!█ !!"
    assert format_sparkline([1, 1, math.nan, 1, 2, 2], 3) == "▁!█"
    assert format_sparkline([math.nan], 2, ascii=True) == "!!"
    assert format_sparkline([0, None, None, 10, 10, 30, None, None], 4) == "▁▅█ "


def test_whatever_the_numbers_are_it_is_as_wide_as_asked() -> None:
    odd = [[1e308, -1e308, 1.7e308, 1.7e308], [5e-324, 0.0, 1e-323], [1.0, 1.0000000000000002], [10**400, 1, 2]]
    for values in [*odd, [1e16, 1e16 + 2], deque([1.0, 2.0], maxlen=2), range(1000)]:
        for width in [1, 2, 7, 1000]:
            line = format_sparkline(values, width)
            assert len(line) == width and set(line) <= set("▁▂▃▄▅▆▇█─!")
