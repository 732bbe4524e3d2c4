"""Numbers as people read them: durations, bytes, percentages, a series as a line; and what is a number at all."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import fsum, isfinite, nan

_BLOCKS, _ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=*#"
_LARGEST = sys.float_info.max


def format_duration(seconds: float | None) -> str:
    """59s, 5m, 1h05m, 2d03h; '?' when unknown.

    >>> format_duration(3900)
    '1h05m'
    """
    if seconds is None or not 0 <= seconds < float("inf"):
        return "?"
    if seconds < 10:
        return f"{seconds:.1f}s".replace(".0s", "s")
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s" if whole % 60 else f"{whole // 60}m"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def plural(count: int, one: str, many: str | None = None) -> str:
    """1 restart, 2 restarts; `many` where an s does not do."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def name_some(names: Sequence[str], most: int, between: str = ", ") -> str:
    """The first names, and how many others there are: a, b and 3 more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def format_bytes(count: float | None) -> str:
    """512 B, 1.5 KiB, 7.0 GiB; '?' when unknown."""
    if count is None or not isfinite(count):
        return "?"
    if count < 1024:
        return f"{int(count)} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} PiB"


def known_number(value: object) -> float | None:
    """A number as a service gives it; None for all else, infinity and nan too."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None


def format_sparkline(values: Sequence[float | None], width: int, *, ascii: bool = False) -> str:
    """Draw a series as one line of `width` cells, the lowest value at the bottom and the highest at the top.

    A cell is the mean of what is known of its part of the series; of few values, one fills several cells. A part of
    which nothing is known is a blank, one with nan or an infinity in it is `!`. Where all is equal, the line is in the
    middle.

    >>> format_sparkline([1, 2, None, 4], 4, ascii=True)
    '_- #'
    """
    series = list(values)
    cells = [_cell(series, at, width) for at in range(width if series else 0)]
    known = [cell for cell in cells if cell is not None and isfinite(cell)]
    low, high = min(known, default=0.0), max(known, default=0.0)
    size = max(abs(low), abs(high)) or 1.0  # first divided by it, the largest floats have a difference
    blocks = _ASCII_BLOCKS if ascii else _BLOCKS
    drawn = []
    for cell in cells:
        if cell is None or not isfinite(cell):
            drawn.append(" " if cell is None else "!")
            continue
        share = (cell / size - low / size) / (high / size - low / size) if low < high else 0.49
        drawn.append(blocks[min(len(blocks) - 1, int(share * len(blocks)))])
    return "".join(drawn).ljust(width)


def _cell(values: Sequence[float | None], at: int, width: int) -> float | None:
    """The mean of one of `width` parts of the series; None when nothing in it is known, nan when it is not finite."""
    first = at * len(values) // width
    part = values[first : max(first + 1, (at + 1) * len(values) // width)]
    known = [value for value in part if value is not None]
    if not known:
        return None
    if not all(-_LARGEST <= value <= _LARGEST for value in known):
        return nan
    return fsum(value / len(known) for value in known)
