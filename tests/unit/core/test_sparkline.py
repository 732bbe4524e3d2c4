"""A series as one line of characters."""

from __future__ import annotations

import math
from collections import deque

import pytest

from training_monitor.core.units import format_sparkline


def test_the_lowest_is_at_the_bottom_and_what_is_not_known_is_blank(subtests: pytest.Subtests) -> None:
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
        with subtests.test(values=values, width=width, blocks=blocks, plain=plain):
            assert format_sparkline(values, width) == blocks
            assert format_sparkline(values, width, ascii=True) == plain


def test_a_cell_with_nan_or_an_infinity_in_it_is_a_mark_and_moves_no_other() -> None:
    assert format_sparkline([1, math.nan, 2, None, -math.inf, math.inf], 6) == "▁!█ !!"
    assert format_sparkline([1, 1, math.nan, 1, 2, 2], 3) == "▁!█"
    assert format_sparkline([math.nan], 2, ascii=True) == "!!"


def test_a_cell_is_the_mean_of_what_is_known_of_its_part() -> None:
    assert format_sparkline([0, None, None, 10, 10, 30, None, None], 4) == "▁▅█ "


def test_whatever_the_numbers_are_it_is_as_wide_as_asked(subtests: pytest.Subtests) -> None:
    for values in [
        [1e308, -1e308, 1.7e308, 1.7e308],
        [5e-324, 0.0, 1e-323],
        [1.0, 1.0000000000000002],
        [10**400, 1, 2],
        [1e16, 1e16 + 2],
        deque([1.0, 2.0], maxlen=2),
        range(1000),
    ]:
        for width in [1, 2, 7, 1000]:
            with subtests.test(values=values, width=width):
                line = format_sparkline(values, width)
                assert len(line) == width and set(line) <= set("▁▂▃▄▅▆▇█─!")
