"""Metrics that a user's own regular expressions find in a log.

What a bad pattern costs is bounded: only the last MOST_LINES lines of the last MOST_TEXT characters are searched, and a
pattern sees at most WINDOW characters at a time. Patterns that need exponential time (a repeat of something that can
itself be longer or shorter, like `(a+)+` or `(\\w+ ?)*`) are refused. A pattern with several unbounded repeats in a row
(`.*.*.*x`) still takes polynomial time: write what stands between the parts instead of `.*`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from training_monitor.errors import SettingsError
from training_monitor.parse.log_text import as_whole, log_pieces, parse_number

MOST_LINES = 2000
MOST_TEXT = 256 * 1024
WINDOW = 2000
OVERLAP = 200
_KINDS = ("float", "int", "str")
# A group that holds a repeat, or an alternative, and is repeated without a bound itself.
_EXPONENTIAL = re.compile(r"\((?:[^()\\]|\\.)*[+*}|?](?:[^()\\]|\\.)*\)(?:[+*]|\{\d*,\d*\})")

Value = float | int | str


@dataclass(frozen=True, slots=True)
class LogPattern:
    """A metric's name, a regular expression with one group, and what the group holds: float | int | str.

    The expression is searched in each line of the log without its colours and launcher prefixes (`[rank0]:`).

    Raises:
        SettingsError: no identifier, no regular expression, not one group, exponential, or another kind.
    """

    name: str
    pattern: str
    kind: str = "float"

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise SettingsError("name", self.name, "an identifier, like `reward_mean`")
        if self.kind not in _KINDS:
            raise SettingsError("kind", self.kind, " | ".join(_KINDS))
        try:
            groups = re.compile(self.pattern).groups
        except (re.error, OverflowError, RecursionError) as error:
            raise SettingsError("pattern", self.pattern, f"a regular expression ({error})") from error
        if groups != 1:
            raise SettingsError("pattern", self.pattern, f"one group, not {groups}; (?:...) is none")
        if _EXPONENTIAL.search(re.sub(r"\(\?:|\{\d+\}", lambda found: found[0][:1].strip("{"), self.pattern)):
            raise SettingsError(
                "pattern", self.pattern, "no repeat of a part that itself repeats: it can take for ever"
            )

    def read(self, text: str) -> Value | None:
        """The group's text as a value; None when it is none of this kind."""
        if self.kind == "str":
            return text.strip()
        number = parse_number(text.strip())
        return as_whole(number) if self.kind == "int" else number


def parse_metrics(text: str, patterns: Iterable[LogPattern]) -> dict[str, Value]:
    """The newest value in text order of each metric; a metric that is not there is not in the result.

    Args:
        text: log text; only its last 2000 lines within the last 256 KiB are searched.
        patterns: several of one name are alternatives.

    Returns:
        Name to value; nan and inf are values of a float. In a line of more than 2000 characters, a match of more
        than 200 may be missed or cut.
    """
    wanted: dict[str, list[LogPattern]] = {}
    for pattern in patterns:
        wanted.setdefault(pattern.name, []).append(pattern)
    found: dict[str, Value] = {}
    for piece in reversed(_last_pieces(text)):
        for name in [name for name in wanted if name not in found]:
            matches = [match for pattern in wanted[name] for match in _matches(pattern, piece)]
            if matches:
                found[name] = max(matches, key=lambda match: match[0])[1]
        if len(found) == len(wanted):
            break
    return found


def _last_pieces(text: str) -> list[str]:
    if len(text) > MOST_TEXT:
        text = re.split(r"[\r\n]", text[-MOST_TEXT:], maxsplit=1)[-1]
    return list(deque(log_pieces(text), MOST_LINES))


def _matches(pattern: LogPattern, piece: str) -> list[tuple[int, Value]]:
    """Where its values end, and the values. What a window's end may have cut is left to the next window."""
    compiled = re.compile(pattern.pattern)
    values, position = list[tuple[int, Value]](), 0
    while position <= len(piece):
        end = position + WINDOW
        match = compiled.search(piece, position, end)
        if match is None or (match.end() >= end and end < len(piece)):
            if end >= len(piece):
                break
            position = end - OVERLAP
            continue
        value = pattern.read(match[1]) if match[1] is not None else None
        values += [(match.end(1), value)] if value is not None else []
        position = max(match.end(), position + 1)
    return values
