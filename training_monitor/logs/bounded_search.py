"""Search lines with a user's own regular expression, in bounded time. Pure.

A pattern sees at most WINDOW characters at a time. Patterns that need exponential time (a repeat of something with a
variable length, like `(a+)+` or `(\\w+ ?)*`) are refused. A pattern with several unbounded repeats in a row (`.*.*.*x`)
still takes polynomial time: write what is between the parts instead of `.*`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from training_monitor.core.regex import regex

WINDOW = 2000
OVERLAP = 200
# An unbounded repeat of a group that contains a repeat or an alternative.
_EXPONENTIAL = regex(r"\((?:[^()\\]|\\.)*[+*}|?](?:[^()\\]|\\.)*\)(?:[+*]|\{\d*,\d*\})")


def find_fault(pattern: str) -> str | None:
    """Return what was expected instead of this regular expression; None if it is valid and not exponential."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"a regular expression ({error})"
    if _EXPONENTIAL.search(re.sub(r"\(\?:|\{\d+\}", lambda found: found[0][:1].strip("{"), pattern)):
        return "no repeat of a part that itself repeats: it can take forever"
    return None


def find_in_windows(compiled: re.Pattern[str], piece: str) -> Iterator[re.Match[str]]:
    """Yield the matches in a line, window by window; a match cut by the window is left to the next window."""
    position = 0
    while position <= len(piece):
        end = position + WINDOW
        match = compiled.search(piece, position, end)
        if match is None or (match.end() >= end and end < len(piece)):
            if end >= len(piece):
                return
            position = end - OVERLAP
            continue
        yield match
        position = max(match.end(), position + 1)


def search_line(compiled: re.Pattern[str], line: str) -> re.Match[str] | None:
    """Return a match in a line, of which only the beginning is meant; one longer than OVERLAP may be missed."""
    for position in range(0, len(line) or 1, WINDOW - OVERLAP):
        end = position + WINDOW
        found = compiled.search(line, position, end)
        is_whole = found is not None and (found.end() < end or end >= len(line))
        if found and (is_whole or compiled.match(line, found.start(), end + WINDOW)):  # `$` also fits a window's end
            return found
    return None
