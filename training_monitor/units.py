"""Numbers as people read them: durations, bytes, percentages; and what is a number at all."""

from __future__ import annotations

from math import isfinite


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


def format_bytes(count: float | None) -> str:
    """512 B, 1.5 KiB, 7.0 GiB; '?' when unknown."""
    if count is None or count != count:
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
