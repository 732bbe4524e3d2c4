"""Read the pace from the end of a log: the age of its newest step, and the usual duration of steps. Pure.

Times are those in the log itself: at the beginning of its lines, else the elapsed time of a bar, else printed speeds.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from training_monitor.core.models import Progress
from training_monitor.core.regex import regex
from training_monitor.core.units import median
from training_monitor.logs.job_progress import job_progress
from training_monitor.logs.shapes import by_shape, shapes_and_lines
from training_monitor.logs.text import clean_line, parse_duration, strip_ansi, strip_prefixes
from training_monitor.logs.training_log import ProgressReader

LONGEST_END = 64 * 1024  # characters
_ELAPSED = regex(r"\[(\d{1,4}(?::\d\d){1,2})(?=[<,])")
_WINDOW = 5.0  # seconds; logs show whole seconds, so a shorter window is too imprecise
_FEWEST_MEASURED, _NEWEST = 3, 10  # windows that show a speed; an older part of the log may have had another one
_MOST_SECONDS = 30 * 86_400.0
_LOOKED_AT = 160  # characters; a time after them belongs to the message
_DAY = 86_400.0
_FIRST_DAY = 730_120  # of the year 2000: keeps day numbers small, for precise fractions of a second
_OUT_OF_ORDER = 5.0  # seconds
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d(?:[.,]\d{1,9})?)(?![\d:<])(?:\s?(?P<half>[ap])m\b)?"
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
# A missing year is taken as a leap year, in which every date is valid.
_FORMATS = tuple(
    regex(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?<!\d)(?P<year>\d{{4}})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T _:,]{{1,2}}{_CLOCK}",
        rf"(?<!\d)(?P<month>\d\d)/(?P<day>\d\d)/(?P<year>\d{{4}}),? {_CLOCK}",
        rf"(?<!\d)(?P<day>\d\d)\.(?P<month>\d\d)\.(?P<year>\d{{4}}),? {_CLOCK}",
        rf"(?<!\d)(?P<month>\d\d)[-/](?P<day>\d\d) {_CLOCK}",
        rf"\b(?P<month>{'|'.join(_MONTHS)}) {{1,2}}(?P<day>\d{{1,2}}) (?:(?P<year>\d{{4}}) )?{_CLOCK}",
        rf"(?<!\w)[IWEFD](?:\d{{4}}|\d{{2}})?(?P<month>\d\d)(?P<day>\d\d) {_CLOCK}",
        rf"^[\s\[(|]{{0,9}}T?{_CLOCK}",
    )
)
_EPOCH_SECONDS = regex(r"^[\s\[({]{0,9}(?:\"(?:ts|time|timestamp)\": ?)?([12]\d{9})(?:(\.\d{1,9})|(\d{3}))?(?![\d.])")

_TEN_DIGITS = regex(r"\d{10}")
_WITH_DIGITS = regex(r"[A-Za-z_]{0,20}\d{1,20}(?:[.,]\d{1,20})*")
_NUMBERS = regex(r"(?<![\w.])\d{1,15}(?:\.\d{1,9})?(?!s\b)")
_FEW_LINES = 8
_IS_HEARTBEAT = regex(
    r"\b(?:wait|retr(?:y|ies)|heart ?beat|keep ?alive|alive|uptime|elapsed|watchdog|time ?out|still|ping|attempt)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class LogPace:
    """The pace of a log; None means unknown.

    Attributes:
        progress: the result of `parse_progress` for the same text.
        behind_lines: the number of complete lines after the newest line with a new step.
        step_lag: seconds from that line to the last line of the log, or a lower bound. None when lines of unknown age
            follow it: then the age of the log is not the age of its newest step.
        step_interval: usual seconds from one line with a new step to the next.
        step_time: seconds of a step at its usual best.
        logged_speed: steps per second at the end of the log, by its times and without pauses; None if it has too few
            times.
    """

    progress: Progress = Progress()
    behind_lines: int | None = None
    step_lag: float | None = None
    step_interval: float | None = None
    step_time: float | None = None
    logged_speed: float | None = None


class _Line(NamedTuple):
    """A line with a new step: its number, the position it shows, its times, and the speed in it."""

    number: int
    position: float
    counts_steps: bool
    times: tuple[LogTime, ...]
    steps_per_second: float | None


@dataclass(slots=True)
class _Behind:
    """What follows the newest line with a new step: complete lines, and the first and last time of each kind."""

    lines: int = 0
    first: dict[str, LogTime] | None = None
    last: dict[str, LogTime] | None = None

    def add(self, times: tuple[LogTime, ...], *, is_complete: bool) -> None:
        self.lines += is_complete
        self.first = {**{each.kind: each for each in times}, **(self.first or {})}
        self.last = {**(self.last or {}), **{each.kind: each for each in times}}


def read_log_pace(text: str) -> LogPace:
    """Read the pace from the end of a log. Never raises; at most the last 64 KiB are read."""
    reader, steps, behind = ProgressReader(), list[_Line](), _Behind()
    lines = [line for line in shapes_and_lines(text[-LONGEST_END:]) if line[1]]
    complete = len(lines) if text.endswith(("\n", "\r", "\b")) else len(lines) - 1
    for number, (shape, raw) in enumerate(lines):
        before = reader.progress
        piece, of_piece, _ = clean_line(raw, shape)
        if piece:
            reader.read(piece, of_piece)
        is_progress = reader.progress is not before
        times = _times(raw, shape, reader.progress if is_progress else None)
        line = _step_line(number, reader.progress, times) if is_progress else None
        if line is not None and (not steps or line.position != steps[-1].position):
            steps.append(line)
            behind = _Behind()
        elif not raw.isspace():
            behind.add(times, is_complete=number < complete)
    if not steps:
        return LogPace(reader.progress)
    measured = _measured_step_times(steps)
    return LogPace(
        progress=reader.progress,
        behind_lines=behind.lines,
        step_lag=_lag(steps, behind),
        step_interval=_usual(_intervals(steps)),
        step_time=_best_step_time(steps, measured),
        logged_speed=1.0 / median(measured[-_NEWEST:]) if len(measured) >= _FEWEST_MEASURED else None,
    )


def _times(raw: str, shape: bytes, progress: Progress | None) -> tuple[LogTime, ...]:
    """Return the timestamp of a line and, if it shows progress, the elapsed time of its bar; each epoch has its own."""
    times = [read_time(raw)] if _may_have_time(raw, shape) else []
    if progress and (elapsed := _ELAPSED.findall(raw[-2000:])):
        kind = "bar" if progress.epoch_step is None else f"bar of epoch {progress.epoch}"
        seconds = parse_duration(elapsed[-1])
        times.append(None if seconds is None else LogTime(kind, seconds))
    return tuple(each for each in times if each is not None)


def _step_line(number: int, progress: Progress, times: tuple[LogTime, ...]) -> _Line | None:
    job = job_progress(progress)
    position = job.epoch if job.step is None else job.step
    if position is None:
        return None
    return _Line(number, position, job.step is not None, times, progress.steps_per_second)


def _lag(steps: list[_Line], behind: _Behind) -> float | None:
    """Return the seconds from the newest step to the last line."""
    first, last = behind.first or {}, behind.last or {}
    own = {each.kind: each for each in steps[-1].times}
    found = [seconds_between(own.get(kind, first[kind]), time) for kind, time in last.items()]
    known = [each for each in found if each is not None and each <= _MOST_SECONDS]
    if known:
        return max(known)
    gaps = [second.number - first_.number - 1 for first_, second in zip(steps, steps[1:])]
    return 0.0 if behind.lines <= (median(gaps) if gaps else 0) else None


def _intervals(steps: list[_Line]) -> list[float]:
    """Return the seconds between neighbouring lines: by their times, or else by the printed speed."""
    pairs = list(zip(steps, steps[1:]))
    measured = [passed for first, second in pairs if (passed := _passed(first, second)) is not None]
    if measured:
        return measured
    return [
        (second.position - first.position) / second.steps_per_second
        for first, second in pairs
        if second.counts_steps and second.position > first.position and second.steps_per_second
    ]


def _passed(first: _Line, second: _Line) -> float | None:
    """Return the seconds between two lines, by the first clock that they share."""
    for time in first.times:
        for other in second.times:
            passed = seconds_between(time, other)
            if passed is not None and passed <= _MOST_SECONDS:
                return passed
    return None


def _usual(intervals: list[float]) -> float | None:
    """Return their median, or their mean where a clock of whole seconds makes the median 0."""
    if not intervals:
        return None
    return median(intervals) or sum(intervals) / len(intervals) or None


def _best_step_time(steps: list[_Line], measured: list[float]) -> float | None:
    """Return the median of the fastest third of the step times, measured or else as printed."""
    if len(measured) < _FEWEST_MEASURED:
        measured = [1.0 / each.steps_per_second for each in steps if each.steps_per_second] or measured
    fastest = sorted(measured)[: -(-len(measured) // 3)]
    return median(fastest) if fastest else None


def _measured_step_times(steps: list[_Line]) -> list[float]:
    """Return the seconds per step in windows long enough for a measurement."""
    found, begin = [], steps[0]
    for line in steps[1:]:
        passed = _passed(begin, line)
        if passed is None or line.position <= begin.position or not line.counts_steps or not begin.counts_steps:
            begin = line
        elif passed >= _WINDOW:
            found.append(passed / (line.position - begin.position))
            begin = line
    return found


class LogTime(NamedTuple):
    """A time in a log; `seconds` can be compared only with times of the same `kind`."""

    kind: str
    seconds: float


def read_time(line: str) -> LogTime | None:
    """Return the timestamp at the beginning of a line; None without a valid one. Never raises."""
    plain = strip_ansi(line[: 2 * _LOOKED_AT])
    return _time_of(plain[:_LOOKED_AT]) or _time_of(strip_prefixes(plain)[:_LOOKED_AT])


@by_shape
def _may_have_time(line: str) -> bool:
    plain = strip_ansi(line[: 2 * _LOOKED_AT])
    heads = plain[:_LOOKED_AT], strip_prefixes(plain)[:_LOOKED_AT]
    return any(_TEN_DIGITS.search(head) or _format_of(head) is not None for head in heads)


def _time_of(head: str) -> LogTime | None:
    number = _format_of(head)
    if number is not None and (found := _FORMATS[number].search(head)):
        seconds = _seconds(found.groupdict())
        return None if seconds is None else LogTime(f"format {number}", seconds)
    if since := _EPOCH_SECONDS.match(head):
        return LogTime("epoch", float(since[1]) + float(since[2] or 0.0) + float(since[3] or 0.0) / 1000.0)
    return None


@by_shape
def _format_of(head: str) -> int | None:
    return next((number for number, pattern in enumerate(_FORMATS) if pattern.search(head)), None)


def _seconds(parts: dict[str, str | None]) -> float | None:
    from datetime import datetime

    hour, half = int(parts["hour"] or 0), parts["half"]
    clock = (hour % 12 + 12 * (half in "pP") if half else hour) * 3600 + int(parts["minute"] or 0) * 60
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
    """Return the seconds from the first to the second time; None if they cannot be compared or run backwards.

    A time may pass midnight, a date without a year the New Year. Lines may be a few seconds out of order.
    """
    if first.kind != second.kind:
        return None
    passed = second.seconds - first.seconds
    for cycle in (_DAY, 366 * _DAY):  # the year 2000 stands for one that is not written
        if passed < -cycle / 2 and max(first.seconds, second.seconds) <= cycle:
            passed += cycle
    return max(0.0, passed) if passed >= -_OUT_OF_ORDER else None


def find_heartbeat(text: str) -> bool | None:
    """Return whether the last lines of a log only repeat: one shape, in which nothing but the time rises.

    Waits, retries and uptimes count as the time. Lines of ever new shapes are news. None if neither can be told.
    """
    lines = _last_lines(text, 4096)[1:]  # the first may be cut
    has_all = len(lines) < 20
    if has_all:
        lines = _last_lines(text, 16_384)
    newest = [_without_digits(line, shape) for shape, line in lines[-20:]]
    alike = [each for each, kind in zip(lines[-20:], newest) if kind == newest[-1]]
    if lines and _IS_HEARTBEAT.search(lines[-1][1]):
        return True if len(alike) > 1 else None
    if len(alike) < 2 or len(set(newest[-2:])) > 1:
        kinds = [_without_digits(line, shape) for shape, line in (lines if has_all else _last_lines(text, 16_384))]
        counts = Counter(kinds)
        is_new = len(kinds) >= _FEW_LINES and sum(count for count in counts.values() if count > 1) < len(kinds) / 2
        return False if is_new else None
    begun, ended = read_time(alike[0][1]), read_time(alike[-1][1])
    passed = seconds_between(begun, ended) if begun and ended else None
    columns = zip(*([float(line[at]) for at in _find_numbers(line, shape)] for shape, line in alike))
    rising = [each for each in columns if each[-1] > each[0] and list(each) == sorted(each)]
    rises = [each[-1] - each[0] for each in rising if not _is_clock(each[-1])]
    return all(passed is not None and abs(rise - passed) <= max(1.5, passed / 10.0) for rise in rises)


def _last_lines(text: str, length: int) -> list[tuple[bytes, str]]:
    """Return the lines at the end of a text that are not blank, with their shapes."""
    return [each for each in [*shapes_and_lines(strip_ansi(text[-length:]))][-200:] if each[1].strip()]


@by_shape
def _without_digits(line: str) -> str:
    return _WITH_DIGITS.sub("0", line)


def _is_clock(number: float) -> bool:
    """Whether a number is a time in seconds, milliseconds, ... since 1970."""
    return any(1e9 <= number / unit < 2e9 for unit in (1.0, 1e3, 1e6))


@by_shape
def _find_numbers(line: str) -> list[slice]:
    """Return where the numbers of a line stand, without those of its time."""
    number = _format_of(line[:_LOOKED_AT])
    if number is not None:
        line = _FORMATS[number].sub(lambda found: " " * len(found[0]), line, count=1)
    return [slice(*found.span()) for found in _NUMBERS.finditer(line)]
