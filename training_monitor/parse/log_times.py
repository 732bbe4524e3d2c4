"""When a line of a log was written, by the time it begins with."""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

from training_monitor.parse.log_text import strip_ansi, strip_prefixes

_LOOKED_AT = 160  # characters; a time behind them belongs to the message
_DAY = 86_400.0
_FIRST_DAY = datetime(2000, 1, 1).toordinal()  # a small number of days leaves room for parts of a second
_OUT_OF_ORDER = 5.0  # seconds
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d(?:[.,]\d{1,9})?)(?![\d:<])"
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
# A year that is not written is a leap year, so that each day is one of it.
_FORMATS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?<!\d)(?P<year>\d{{4}})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T _:,]{{1,2}}{_CLOCK}",
        rf"(?<!\d)(?P<month>\d\d)/(?P<day>\d\d)/(?P<year>\d{{4}}),? {_CLOCK}",
        rf"(?<!\d)(?P<month>\d\d)[-/](?P<day>\d\d) {_CLOCK}",
        rf"\b(?P<month>{'|'.join(_MONTHS)}) {{1,2}}(?P<day>\d{{1,2}}) (?:(?P<year>\d{{4}}) )?{_CLOCK}",
        rf"(?<!\w)[IWEFD](?:\d{{4}}|\d{{2}})?(?P<month>\d\d)(?P<day>\d\d) {_CLOCK}",
        rf"^[\s\[(|]{{0,9}}T?{_CLOCK}",
    )
)
_EPOCH_SECONDS = re.compile(
    r"^[\s\[({]{0,9}(?:\"(?:ts|time|timestamp)\": ?)?([12]\d{9})(?:(\.\d{1,9})|(\d{3}))?(?![\d.])"
)


class LogTime(NamedTuple):
    """`seconds` count from a moment that only times of the same `kind` share."""

    kind: str
    seconds: float


def read_time(line: str) -> LogTime | None:
    """The time in front of a line; None where there is none that is a time. Never raises."""
    plain = strip_ansi(line[: 2 * _LOOKED_AT])
    return _time_of(plain[:_LOOKED_AT]) or _time_of(strip_prefixes(plain)[:_LOOKED_AT])


def _time_of(head: str) -> LogTime | None:
    for number, pattern in enumerate(_FORMATS):
        if found := pattern.search(head):
            seconds = _seconds(found.groupdict())
            return None if seconds is None else LogTime(f"format {number}", seconds)
    if since := _EPOCH_SECONDS.match(head):
        return LogTime("epoch", float(since[1]) + float(since[2] or 0.0) + float(since[3] or 0.0) / 1000.0)
    return None


def _seconds(parts: dict[str, str | None]) -> float | None:
    clock = int(parts["hour"] or 0) * 3600 + int(parts["minute"] or 0) * 60
    seconds = clock + float((parts["second"] or "0").replace(",", "."))
    month, day = parts.get("month"), parts.get("day")
    if month is None or day is None:
        return seconds
    number = int(month) if month.isdigit() else _MONTHS.index(month.lower()) + 1
    try:
        days = datetime(int(parts.get("year") or 2000), number, int(day)).toordinal() - _FIRST_DAY
    except ValueError:
        return None
    return days * _DAY + seconds


def seconds_between(first: LogTime, second: LogTime) -> float | None:
    """How long after the first one the second one was; None of times that cannot be compared or run backwards.

    A clock without a date passes midnight. Lines of several processes may be some seconds out of order.
    """
    if first.kind != second.kind:
        return None
    passed = second.seconds - first.seconds
    if passed < -_DAY / 2 and max(first.seconds, second.seconds) <= _DAY:
        passed += _DAY
    return max(0.0, passed) if passed >= -_OUT_OF_ORDER else None
