"""What the end of a log tells about its pace: how old its newest step is, and how long steps usually take.

Times are those the log itself wrote: in front of its lines, else the elapsed time of a bar, else the speeds it prints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import median

from training_monitor.models import Progress
from training_monitor.parse.epoch_count import EpochCount
from training_monitor.parse.log_text import log_pieces, parse_duration
from training_monitor.parse.log_times import LogTime, read_time, seconds_between
from training_monitor.parse.training_log import ProgressReader
from training_monitor.policy.job_progress import job_progress

LONGEST_END = 64 * 1024  # characters
_LINE = re.compile(r"([^\r\n\x08]+)([\r\n\x08]*)")
_ELAPSED = re.compile(r"\[(\d{1,4}(?::\d\d){1,2})(?=[<,])")
_WINDOW = 5.0  # seconds; clocks show whole ones, so that a shorter time is not a measure
_MOST_SECONDS = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class LogPace:
    """None is not known.

    Attributes:
        progress: what `parse_progress` reads of the same text.
        behind_lines: how many complete lines stand behind the newest one with a new step.
        step_lag: seconds between that line and the last one of the log; where the log tells less, what it took at
            least. None when lines of an unknown age follow it: then the age of the log is not that of its newest step.
        step_interval: usual seconds from one line with a new step to the next.
        step_time: seconds a step takes at its usual best.
    """

    progress: Progress = Progress()
    behind_lines: int | None = None
    step_lag: float | None = None
    step_interval: float | None = None
    step_time: float | None = None


@dataclass(frozen=True, slots=True)
class _Line:
    """A line with a new step: where it stands, the position it shows, when it was written, and the speed in it."""

    number: int
    position: float
    counts_steps: bool
    times: tuple[LogTime, ...]
    steps_per_second: float | None


@dataclass(slots=True)
class _Behind:
    """What stands behind the newest line with a new step: complete lines, and the first and last time of each kind."""

    lines: int = 0
    first: dict[str, LogTime] | None = None
    last: dict[str, LogTime] | None = None

    def add(self, times: tuple[LogTime, ...], *, is_complete: bool) -> None:
        self.lines += is_complete
        self.first = {**{each.kind: each for each in times}, **(self.first or {})}
        self.last = {**(self.last or {}), **{each.kind: each for each in times}}


def read_log_pace(text: str) -> LogPace:
    """Read the pace out of the end of a log. Never raises; at most the last 64 KiB are read."""
    reader, steps, behind = ProgressReader(EpochCount()), list[_Line](), _Behind()
    for number, (raw, end) in enumerate(_LINE.findall(text[-LONGEST_END:])):
        before = reader.progress
        for piece in log_pieces(raw):
            reader.read(piece)
        times = _times(raw, is_progress=reader.progress is not before)
        line = _step_line(number, reader.progress, times) if reader.progress is not before else None
        if line is not None and (not steps or line.position != steps[-1].position):
            steps.append(line)
            behind = _Behind()
        elif not raw.isspace():
            behind.add(times, is_complete=bool(end))
    if not steps:
        return LogPace(reader.progress)
    return LogPace(
        progress=reader.progress,
        behind_lines=behind.lines,
        step_lag=_lag(steps, behind),
        step_interval=_usual(_intervals(steps)),
        step_time=_best_step_time(steps),
    )


def _times(raw: str, *, is_progress: bool) -> tuple[LogTime, ...]:
    """The time in front of a line, and the elapsed time of the job's bar in it."""
    written = read_time(raw)
    elapsed = _ELAPSED.findall(raw[-2000:]) if is_progress else None
    bar = parse_duration(elapsed[-1]) if elapsed else None
    return tuple(each for each in (written, None if bar is None else LogTime("bar", bar)) if each is not None)


def _step_line(number: int, progress: Progress, times: tuple[LogTime, ...]) -> _Line | None:
    job = job_progress(progress)
    position = job.epoch if job.step is None else job.step
    if position is None:
        return None
    return _Line(number, position, job.step is not None, times, progress.steps_per_second)


def _lag(steps: list[_Line], behind: _Behind) -> float | None:
    """Seconds from the newest step to the last line."""
    first, last = behind.first or {}, behind.last or {}
    own = {each.kind: each for each in steps[-1].times}
    found = [seconds_between(own.get(kind, first[kind]), time) for kind, time in last.items()]
    known = [each for each in found if each is not None and each <= _MOST_SECONDS]
    if known:
        return max(known)
    gaps = [second.number - first_.number - 1 for first_, second in zip(steps, steps[1:])]
    return 0.0 if behind.lines <= (median(gaps) if gaps else 0) else None


def _intervals(steps: list[_Line]) -> list[float]:
    """Seconds between neighbouring lines: by a clock where there is one, else by the speed and the steps between."""
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
    """Seconds between two lines, by the first of their clocks that tells."""
    for time in first.times:
        for other in second.times:
            passed = seconds_between(time, other)
            if passed is not None and passed <= _MOST_SECONDS:
                return passed
    return None


def _usual(intervals: list[float]) -> float | None:
    """Their median; where a clock of whole seconds shows too little, their mean."""
    if not intervals:
        return None
    return median(intervals) or sum(intervals) / len(intervals) or None


def _best_step_time(steps: list[_Line]) -> float | None:
    """The median of the fastest third of what steps took: by a clock, or else by the speeds in the lines."""
    measured = _measured_step_times(steps)
    if len(measured) < 3:
        measured = [1.0 / each.steps_per_second for each in steps if each.steps_per_second] or measured
    fastest = sorted(measured)[: -(-len(measured) // 3)]
    return median(fastest) if fastest else None


def _measured_step_times(steps: list[_Line]) -> list[float]:
    """Seconds per step in windows long enough to be measured."""
    found, begin = [], steps[0]
    for line in steps[1:]:
        passed = _passed(begin, line)
        if passed is None or line.position <= begin.position or not line.counts_steps or not begin.counts_steps:
            begin = line
        elif passed >= _WINDOW:
            found.append(passed / (line.position - begin.position))
            begin = line
    return found
