"""Charts of one line or several, drawn with blocks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from training_monitor.core.units import format_sparkline, scaled
from training_monitor.ui.kit.text import NOT_KNOWN, Glyphs

_BLOCKS, _ASCII_BLOCKS = " ▁▂▃▄▅▆▇█", " .:#"
_ODD = "!"  # nan or an infinity


def draw_curve(values: Sequence[float | None], width: int, glyphs: Glyphs) -> str:
    """Draw a series as a curve of one line; `-` where nothing is known, and of a single value, which has no course."""
    if len(values) < 2:
        return NOT_KNOWN
    return format_sparkline(values, width, ascii=glyphs.ascii).rstrip() or NOT_KNOWN


def draw_chart(values: Sequence[float | None], width: int, height: int, glyphs: Glyphs) -> list[str]:
    """Draw a series as `height` lines of `width` cells, from the top.

    Every column is the mean of its part of the series, between the lowest and the highest. It is blank where nothing is
    known, and `!` stands at the bottom where a value is nan or infinite. A series that stays the same is a line.
    """
    numbers = {value for value in values if value is not None and isfinite(value)}
    if len(numbers) == 1:
        known = "".join(
            " " if share is None else _ODD if share != share else glyphs.rule for share in scaled(values, width)
        )
        return [known if line == height // 2 else " " * width for line in range(height)]
    blocks = _ASCII_BLOCKS if glyphs.ascii else _BLOCKS
    steps = len(blocks) - 1
    columns = []
    for share in scaled(values, width):
        if share is None:
            columns.append(" " * height)
        elif share != share:
            columns.append(_ODD + " " * (height - 1))
        else:
            full, part = divmod(max(1, round(share * height * steps)), steps)
            columns.append((blocks[-1] * full + blocks[part] * (part > 0)).ljust(height))
    return ["".join(column[height - 1 - line] for column in columns) for line in range(height)]
