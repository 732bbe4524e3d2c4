"""Find metrics in a log with the user's own regular expressions.

The cost of a bad pattern is bounded: only the last MOST_LINES lines of the last MOST_TEXT characters are searched, each
as `bounded_search.py` does it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from training_monitor.core.errors import SettingsError
from training_monitor.core.fields import PublicValue
from training_monitor.core.settings_file import load_table
from training_monitor.core.settings_table import MISFIT, Kind, Place, check_fields, choice, named, read_table
from training_monitor.logs.bounded_search import find_fault, find_in_windows
from training_monitor.logs.text import as_whole, log_pieces, parse_number

MOST_LINES = 2000
MOST_TEXT = 256 * 1024
_KINDS = ("float", "int", "str")

Value = float | int | str


@dataclass(frozen=True, slots=True, repr=False)
class LogPattern(PublicValue):
    """A metric that is read from a log with a regular expression.

    Attributes:
        name: the name of the metric, a valid identifier.
        pattern: a regular expression with one group, the value. It is searched for in each line of the log, after
            colors and launcher prefixes (`[rank0]:`) are removed.
        kind: the type of the value: float | int | str.

    Raises:
        SettingsError: the name is not an identifier; the pattern is invalid, may take exponential time, or does not
            have exactly one group; or the kind is unknown.
    """

    name: str
    pattern: Annotated[str, Kind("a regular expression with one group", _read_pattern)]
    kind: Annotated[str, choice(*_KINDS, expected=" | ".join(_KINDS))] = "float"

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise SettingsError("name", self.name, "an identifier such as `reward_mean`")
        check_fields(self)

    def read(self, text: str) -> Value | None:
        """Convert the text of the group. Return None if it is not of the pattern's `kind`."""
        if self.kind == "str":
            return text.strip()
        number = parse_number(text.strip())
        return as_whole(number) if self.kind == "int" else number


def read_log_patterns(table: object, place: Place) -> list[LogPattern]:
    """Read the table `log_patterns` of a settings file: NAME = PATTERN, or a table of pattern and kind."""
    found = place.read(named(_named_pattern, "a table of names and patterns"), table)
    return [] if found is MISFIT else list(found.values())


def _named_pattern(name: str) -> Kind:
    def read(value: Any, place: Place) -> Any:
        if isinstance(value, str):
            return place.make(LogPattern, {}, name=name, pattern=value)
        return read_table(LogPattern, value, place, name=name) if isinstance(value, Mapping) else MISFIT

    return Kind("a pattern, or a table of pattern and kind", read)


def _read_pattern(value: Any, place: Place) -> Any:
    if not isinstance(value, str):
        return MISFIT
    if wrong := find_fault(value):
        return place.note(value, wrong)
    if (groups := re.compile(value).groups) != 1:
        return place.note(value, f"one group, not {groups}; (?:...) is none")
    return value


def parse_metrics(text: str, patterns: Iterable[LogPattern]) -> dict[str, Value]:
    """Return the last value of each metric in a log. Metrics that were not found are omitted.

    Args:
        text: log text; only its last 2000 lines within the last 256 KiB are searched.
        patterns: the patterns to search for; patterns with the same name are alternatives.

    Returns:
        A dict from name to value; nan and inf are valid floats. In a line of more than 2000 characters, a match longer
        than 200 characters may be missed or truncated.
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
    """Return (end, value) of each match."""
    values = list[tuple[int, Value]]()
    for match in find_in_windows(re.compile(pattern.pattern), piece):
        value = pattern.read(match[1]) if match[1] is not None else None
        values += [(match.end(1), value)] if value is not None else []
    return values


def load_log_patterns(path: str | None = None) -> list[LogPattern]:
    """Return the patterns in the table `log_patterns` of the settings file; none if there is no file.

    Args:
        path: the settings file; default: TRAINING_MONITOR_SETTINGS, otherwise settings.toml or settings.json in
            $XDG_CONFIG_HOME/training_monitor.

    Raises:
        SettingsError: a pattern is invalid. The message contains the file, the key and the expected value.
    """
    return list(load_table("log_patterns", read_log_patterns, path))
