"""Format and parse numbers for people: durations, bytes, counts, sparklines; averages without `statistics`. Pure."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from math import fsum, isfinite, nan

from training_monitor.core.regex import regex

HOUR, DAY = 3600.0, 86_400.0  # seconds
_BLOCKS, _ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=*#"
FLAT = 0.02  # of its size: what changes by less is drawn as a flat line
_MIDDLE, _LINE = 0.49, "─"
_CLOCK_SKEW = 60.0  # seconds by which the clock of a file server may be ahead
_LARGEST = sys.float_info.max
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_TIME = regex(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_AMOUNT = regex(r"((?:\d{1,30}\.?\d{0,30}|\.\d{1,30})(?:[eE][+-]?\d{1,3})?)\s*([smhdw])\s*", re.ASCII)


def format_duration(seconds: float | None) -> str:
    """Format seconds as 59s, 5m, 1h05m or 2d03h; '?' when unknown.

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


def seconds_since(at: float | None, now: float | None) -> float | None:
    """Return the seconds since a time; None if one of the two is unknown, or if clocks differ: it is in the future.

    >>> seconds_since(100.0, 90.0), seconds_since(100.0, 10.0)
    (0.0, None)
    """
    return None if at is None or now is None or at > now + _CLOCK_SKEW else max(0.0, now - at)


def parse_duration(text: str) -> float | None:
    """Return the seconds of a duration such as 90s, 15m, 1h30m or 2d; None for anything else.

    >>> parse_duration("1h05m")
    3900.0
    """
    seconds, position = 0.0, 0
    while found := _AMOUNT.match(text, position):
        seconds, position = seconds + float(found[1]) * _UNITS[found[2]], found.end()
    return seconds if text and position == len(text) and isfinite(seconds) else None


def is_same_speed(first: float, second: float) -> bool:
    """Return whether two speeds may be those of the same steps; that of micro-batches is at least twice as high."""
    return first < 1.6 * second and second < 1.6 * first


def format_pace(step_time: float) -> str:
    """Format the seconds of a step as a pace: 4 steps/s, or 2 s/step from one second a step on.

    >>> format_pace(0.25)
    '4 steps/s'
    """
    return f"{1.0 / step_time:.3g} steps/s" if step_time < 1.0 else f"{step_time:.3g} s/step"


def plural(count: int, one: str, many: str | None = None) -> str:
    """Format a count with its noun: 1 restart, 2 restarts; `many` is an irregular plural."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def name_some(names: Sequence[str], most: int, between: str = ", ") -> str:
    """Join the first `most` names and count the rest: a, b and 3 more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def format_bytes(count: float | None) -> str:
    """Format bytes as 512 B, 1.5 KiB or 7.0 GiB; '?' when unknown."""
    if count is None or not isfinite(count):
        return "?"
    if count < 1024:
        return f"{int(count)} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} PiB"


def format_local(timestamp: float | None, pattern: str) -> str:
    """Format the local time of an epoch second by a pattern of `strftime`; '?' when unknown or outside the calendar."""
    from datetime import datetime

    if timestamp is None:
        return "?"
    try:
        return datetime.fromtimestamp(timestamp).strftime(pattern)
    except (ValueError, OverflowError, OSError):
        return "?"


def parse_time(text: str) -> float | None:
    """Return the epoch seconds of a time in RFC 3339; None of another text.

    >>> parse_time("1970-01-01T01:00:00.5+01:00")
    0.5
    """
    from datetime import datetime

    if not (found := _TIME.fullmatch(text)):
        return None
    try:
        whole = datetime.fromisoformat(found[1] + found[3].replace("Z", "+00:00"))
    except ValueError:  # of a month 13
        return None
    return whole.timestamp() + float(f"0{found[2] or ''}")


def known_number(value: object) -> float | None:
    """Return a finite number as a float; None for anything else, including bool, nan and infinity."""
    if type(value) is float:
        return value if isfinite(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None


def format_sparkline(values: Sequence[float | None], width: int, *, ascii: bool = False) -> str:
    """Draw a series as one line of `width` cells, the lowest value at the bottom and the highest at the top.

    A cell is the mean of the known values in its part of the series; a short series is stretched. A cell is blank
    without known values, and `!` with nan or an infinity among them. A series that changes by less than FLAT of its
    size is a line in the middle, so that noise does not look like a change.

    >>> format_sparkline([1, 2, None, 4], 4, ascii=True)
    '_- #'
    """
    shares = scaled(values, width)
    is_flat = {share for share in shares if share is not None and share == share} == {_MIDDLE}
    blocks = _ASCII_BLOCKS if ascii else _LINE if is_flat else _BLOCKS
    drawn = []
    for share in shares:
        if share is None or share != share:
            drawn.append(" " if share is None else "!")
        else:
            drawn.append(blocks[min(len(blocks) - 1, int(share * len(blocks)))])
    return "".join(drawn)


def scaled(values: Sequence[float | None], width: int) -> list[float | None]:
    """Return the means of `width` equal parts of a series, from 0 for the lowest to 1 for the highest.

    None stands for a part without known values, nan for one with a value that is not finite. Of a series that changes
    by less than FLAT of its size, all parts are in the middle.
    """
    series = list(values)
    cells = [_cell(series, at, width) if series else None for at in range(width)]
    known = [cell for cell in cells if cell is not None and isfinite(cell)]
    low, high = min(known, default=0.0), max(known, default=0.0)
    size = max(abs(low), abs(high)) or 1.0  # dividing by it first keeps the difference of the largest floats finite
    span = high / size - low / size
    shares = list[float | None]()
    for cell in cells:
        if cell is None or not isfinite(cell):
            shares.append(None if cell is None else nan)
        else:
            shares.append((cell / size - low / size) / span if span >= FLAT else _MIDDLE)
    return shares


def _cell(values: Sequence[float | None], at: int, width: int) -> float | None:
    """Return the mean of one of `width` parts of the series; None without known values, nan if one is not finite."""
    first = at * len(values) // width
    part = values[first : max(first + 1, (at + 1) * len(values) // width)]
    known = [value for value in part if value is not None]
    if not known:
        return None
    try:
        return fsum(known) / len(known)
    except OverflowError:  # only in between, or of a whole number that no float can hold
        return fsum(value / len(known) for value in known) if all(map(_fits, known)) else nan
    except ValueError:  # inf and -inf
        return nan


def _fits(value: float) -> bool:
    return -_LARGEST <= value <= _LARGEST


def median(values: Iterable[float]) -> float:
    """Return the middle of the values, or the mean of the two in the middle. Raises ValueError if there is none."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("an empty list has no median")
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
