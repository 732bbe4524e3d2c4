"""Charts of one line and of several."""

from __future__ import annotations

from math import inf, nan

from training_monitor.ui.kit.charts import draw_chart, draw_curve
from training_monitor.ui.kit.text import ASCII, UNICODE


def test_a_chart_reaches_from_the_lowest_to_the_highest_and_noise_is_flat() -> None:
    assert draw_chart([0, 1, 2, 3, 4], 5, 2, UNICODE) == ["   ▄█", "▁▄███"]
    assert draw_chart([0, 4], 4, 3, ASCII) == ["  ##", "  ##", "..##"]
    flat = draw_chart([99.0, 99.5, 99.2, 99.6], 4, 2, UNICODE)
    assert flat == ["    ", "████"]
    assert draw_chart([5.0, 5.0, None, 5.0], 4, 3, UNICODE) == ["    ", "── ─", "    "]
    assert draw_chart([5.0, nan], 2, 2, ASCII) == ["  ", "-!"]


def test_what_is_unknown_is_blank_and_what_is_no_number_is_marked() -> None:
    assert draw_chart([1, None, nan, inf, 2], 5, 2, UNICODE) == ["    █", "▁ !!█"]
    assert draw_chart([None, None], 2, 2, UNICODE) == ["  ", "  "]
    assert draw_chart([], 3, 2, UNICODE) == ["   ", "   "]


def test_a_curve_of_one_line_needs_two_values() -> None:
    assert draw_curve([1.0, 2.0], 4, ASCII) == "__##" and draw_curve([None, 2.0], 4, ASCII).strip() == "--"
    for values in ([], [0.5], [None], [None, None]):
        assert draw_curve(values, 8, UNICODE) == "-"
