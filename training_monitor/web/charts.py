"""Draw a series over time or steps as SVG. Pure.

The picture has no style sheet and needs none: it is drawn in `currentColor`, so that it suits light and dark, and its
classes (`grid`, `label`, `band`, `line`, `odd`, `point`) let a page choose others. Each point has a `<title>` with its
numbers. A line ends where nothing was seen; nan and the infinities are crosses at the top.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, fsum, inf, isfinite, log10, nan
from typing import NamedTuple

from training_monitor.fleet.values import FleetSample
from training_monitor.ui.kit.text import format_number, format_percent, format_total

MOST_POINTS = 240
LEAST_SUMMED, MOST_SUMMED = 10.0, 96  # seconds between two sums, and their number
MOST_HELD = 600.0  # seconds for which a value holds: thinned samples are 300 s apart
GAP = 4.0  # as many times the distance of the points around it
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 10, 22
_TICKS, _LABEL_WIDTH = 4, 90
_HALF_LABEL = 18  # pixels of a short one
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
_DAY = 86_400
_MOST_DIGITS = 7  # of a tick's label: there is no room for more
_LONG_STEP = 1e10  # its label is rounded
_SMALLEST, _LARGEST, _NOISE = 1e-290, 1e300, 1e-9

Format = Callable[[float | None], str]


@dataclass(frozen=True, slots=True)
class Point:
    """The mean of the values of a part of the time, or the last one, at the time of its newest sample (epoch seconds).

    None means unknown, nan stands for values that are not finite; `count` are the samples with a value.
    """

    timestamp: float
    value: float | None
    low: float | None
    high: float | None
    count: int


class Chart(NamedTuple):
    """A field of the samples and how it is drawn; see `draw_chart`.

    `show` formats a value. `least` and `most` are limits that the vertical axis has to reach; others follow from the
    values. `is_total`: it grows, and a point has the last of its values instead of their mean.
    """

    field: str
    title: str
    unit: str = ""
    show: Format = format_number
    least: float | None = None
    most: float | None = None
    is_total: bool = False


class Window(NamedTuple):
    """The time and size of a chart: epoch seconds, pixels, and seconds by which local time is ahead of UTC.

    `by_step`: it shows steps instead; `begin`, `end` and the `timestamp` of each point are steps.
    """

    begin: float
    end: float
    width: int = 640
    height: int = 180
    utc_offset: float = 0.0
    by_step: bool = False


CHARTS = (
    Chart("loss", "Loss"),
    Chart("steps_per_second", "Speed", "steps/s", least=0.0),
    Chart("gpu_utilization", "GPU", "%", format_percent, 0.0, 100.0),
    Chart("memory_utilization", "GPU memory", "%", format_percent, 0.0, 100.0),
    Chart("total_cost", "Cost", "", format_total, 0.0, is_total=True),
)


def points_of(
    samples: Sequence[FleetSample], field: str, begin: float, end: float, *, is_total: bool = False
) -> tuple[Point, ...]:
    """Reduce one field of samples (oldest first) to at most MOST_POINTS + 1 points between two times."""
    parts: dict[int, list[FleetSample]] = {}
    for sample in samples:
        if begin <= sample.timestamp <= end:
            share = (sample.timestamp - begin) / (end - begin) if end > begin else 0.0
            parts.setdefault(int(share * MOST_POINTS), []).append(sample)
    return tuple(_join(part, field, is_total) for part in parts.values())


def sum_points(series: Sequence[Sequence[FleetSample]], field: str, begin: float, end: float) -> tuple[Point, ...]:
    """Sum one field over several series (oldest first) at up to MOST_SUMMED + 1 moments, the last of them at `end`.

    A value holds until the next sample of its series. Where that comes late or not at all, it holds for GAP times the
    distance to the sample before. A moment at which none of the series was seen is left out; `count` are the series
    with a value.
    """
    length = max(LEAST_SUMMED, (end - begin) / MOST_SUMMED)
    moments = [end - length * number for number in range(int((end - begin) / length), -1, -1)]
    values: list[list[float | None]] = [[] for _ in moments]
    for samples in series:
        times = [sample.timestamp for sample in samples]
        for moment, seen in zip(moments, values):
            place = bisect_right(times, moment) - 1
            if place >= 0 and moment <= _held_until(times, place, length):
                seen.append(samples[place].values.get(field))
    return tuple(_sum(moment, seen) for moment, seen in zip(moments, values) if seen)


def _sum(timestamp: float, values: Sequence[float | None]) -> Point:
    known = [value for value in values if value is not None and isfinite(value)]
    total = fsum(known) if known else None
    return Point(timestamp, total, total, total, len(known))


def _held_until(times: Sequence[float], place: int, length: float) -> float:
    """Return until when the value of a sample holds; for the `length` of a part at least."""
    at = times[place]
    if place + 1 < len(times) and times[place + 1] - at <= MOST_HELD:
        return times[place + 1]
    before = at - times[place - 1] if place else 0.0
    return at + max(length, min(MOST_HELD, GAP * before))


def _join(part: Sequence[FleetSample], field: str, is_total: bool) -> Point:
    at = part[-1].timestamp
    values = [value for sample in part if (value := sample.values.get(field)) is not None]
    if not values:
        return Point(at, None, None, None, 0)
    if not all(map(isfinite, values)):
        return Point(at, nan, None, None, len(values))
    value = values[-1] if is_total else fsum(each / len(values) for each in values)
    return Point(at, value, min(values), max(values), len(values))


def draw_chart(points: Sequence[Point], chart: Chart, window: Window) -> str:
    """Return a line chart as SVG; `points` are oldest first, as of `points_of`. It has a scale if a value is finite."""
    known = [(low, high) for each in points if (low := each.low) is not None and (high := each.high) is not None]
    bottom, top, ticks = _axis(
        min([low for low, _ in known] + ([] if chart.least is None else [chart.least]), default=0.0),
        max([high for _, high in known] + ([] if chart.most is None else [chart.most]), default=1.0),
    )
    width, height = window.width, window.height
    frame = _Frame(window._replace(end=max(window.end, window.begin + 1)), bottom, top)
    runs = [*_runs(points, inf if window.by_step else GAP)]
    parts = [
        *_grid(frame, ticks if known else (), chart.show),
        *(_band(frame, run) for run in runs if len(run) > 1),
        *(_line(frame, run) for run in runs),
        *(_mark(frame, point, chart) for point in points if point.value is not None),
    ]
    if not known:
        why = "no finite value" if any(each.count for each in points) else "no known value"
        parts.append(_text(width / 2, height / 2, why, "middle"))
    told = escape(describe_points(points, chart), quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" aria-label="{told}" width="{width}"'
        f' height="{height}" viewBox="0 0 {width} {height}" data-left="{_LEFT}" data-right="{width - _RIGHT}"'
        f' font-family="sans-serif" font-size="11">{"".join(parts)}</svg>'
    )


def describe_points(points: Sequence[Point], chart: Chart) -> str:
    """Describe a series in words: its first, last, lowest and highest value."""
    show = chart.show
    finite = [each for each in points if each.low is not None and each.high is not None]
    if not finite:
        return f"{chart.title}: no known value"
    low = min(each.low for each in finite if each.low is not None)
    high = max(each.high for each in finite if each.high is not None)
    words = (f"from {show(finite[0].value)}", f"to {show(finite[-1].value)}", f"between {show(low)} and {show(high)}")
    return f"{chart.title}: {', '.join(words)}{f' {chart.unit}' if chart.unit else ''}"


def format_time(timestamp: float, utc_offset: float, pattern: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Format the local time of an epoch second; ? outside the calendar."""
    try:
        return time.strftime(pattern, time.gmtime(timestamp + utc_offset))
    except (ValueError, OverflowError, OSError):
        return "?"


# ---------------------------------------------------------------- the parts of the picture


class _Frame(NamedTuple):
    window: Window
    bottom: float
    top: float

    def x(self, timestamp: float) -> float:
        begin, end = self.window.begin, self.window.end
        return _LEFT + (self.window.width - _LEFT - _RIGHT) * (timestamp - begin) / (end - begin)

    def y(self, value: float) -> float:
        share = (value / 2 - self.bottom / 2) / (self.top / 2 - self.bottom / 2)  # halves: differences stay finite
        height = self.window.height
        return height - _BOTTOM - (height - _TOP - _BOTTOM) * min(1.0, max(0.0, share))


def _axis(low: float, high: float) -> tuple[float, float, list[float]]:
    """Return the ends of an axis that holds two values, and its round ticks; noise is drawn as a flat line."""
    low, high = (min(_LARGEST, max(-_LARGEST, each)) for each in (low, high))
    size = max(abs(low), abs(high))
    if size < _SMALLEST:
        low, high = 0.0, 1.0
    elif high - low <= size * _NOISE:
        low, high = low - size * 0.1, high + size * 0.1
    rough = (high - low) / _TICKS
    step = _round_up(rough, (1.0, 2.0, 2.5, 5.0))
    first, last = floor(low / step), ceil(high / step)
    ticks = [number * step for number in range(first, last + 1)]
    return ticks[0], ticks[-1], ticks


def _round_up(rough: float, factors: Sequence[float]) -> float:
    """Return the next round number: a power of ten, times one of the factors."""
    unit = 10.0 ** floor(log10(rough))
    return next((unit * times for times in factors if unit * times >= rough), unit * 10.0)


def _runs(points: Sequence[Point], most: float) -> Iterator[list[Point]]:
    """Yield the points that a line connects: it ends at unknown values, and where nothing was seen for long.

    `most` is the longest distance of two points, as a multiple of the distances around it.
    """
    gaps = [after.timestamp - before.timestamp for before, after in zip(points, points[1:])]
    run: list[Point] = []
    for place, point in enumerate(points):
        around = [gaps[at] for at in (place - 2, place) if 0 <= at < len(gaps)]
        is_late = place > 0 and bool(around) and gaps[place - 1] > most * max(around)
        is_known = point.low is not None
        if run and (is_late or not is_known):
            yield run
            run = []
        if is_known:
            run.append(point)
    if run:
        yield run


def _grid(frame: _Frame, ticks: Sequence[float], show: Format) -> Iterator[str]:
    window, left, right = frame.window, _LEFT, frame.window.width - _RIGHT
    for tick, label in zip(ticks, _tick_labels(ticks, show)):
        y = frame.y(tick)
        yield f'<path class="grid" d="M{left} {y:.1f}H{right}" stroke="currentColor" stroke-opacity="0.15"/>'
        yield _text(left - 6, y + 4, label, "end")
    bottom = window.height - _BOTTOM
    for at in _times(window):
        x = frame.x(at)
        yield f'<path class="grid" d="M{x:.1f} {bottom}v4" stroke="currentColor" stroke-opacity="0.4"/>'
        yield _text(x, window.height - 5, _label(at, window), "middle" if x < right - _HALF_LABEL else "end")


def _tick_labels(ticks: Sequence[float], show: Format) -> list[str]:
    """Return a label for each tick; where they would be equal, with as many digits as it takes to tell them apart."""
    labels = [_short(show(tick)) for tick in ticks]
    for digits in range(3, _MOST_DIGITS):
        if len({*labels}) == len(labels):
            break
        labels = [f"{tick:.{digits}g}".replace("e+0", "e").replace("e-0", "e-") for tick in ticks]
    return labels


def _label(at: float, window: Window) -> str:
    if window.by_step:
        return f"{at:,.0f}" if at < _LONG_STEP else f"{at:.0e}"
    span, is_midnight = window.end - window.begin, (at + window.utc_offset) % _DAY == 0
    pattern = "%H:%M:%S" if span < 300 else "%m-%d" if span > _DAY and is_midnight else "%H:%M"
    return format_time(at, window.utc_offset, pattern)


def _short(text: str) -> str:
    """Return a number's text without zeros at its end."""
    return text.rstrip("0").removesuffix(".") if "." in text and "e" not in text else text


def _times(window: Window) -> Iterator[float]:
    """Yield round local times or steps, as many as there is room for."""
    rough = (window.end - window.begin) * _LABEL_WIDTH / max(1, window.width - _LEFT - _RIGHT)
    if window.by_step:
        step = max(1, round(_round_up(rough, (1, 2, 5))))
        yield from range(ceil(window.begin / step) * step, floor(window.end) + 1, step)
        return
    step = next((each for each in _STEPS if each >= rough), ceil(rough / _DAY) * _DAY)
    first = ceil((window.begin + window.utc_offset) / step)
    last = floor((window.end + window.utc_offset) / step)
    yield from (number * step - window.utc_offset for number in range(first, last + 1))


def _band(frame: _Frame, run: Sequence[Point]) -> str:
    there = [f"{frame.x(each.timestamp):.1f} {frame.y(each.high):.1f}" for each in run if each.high is not None]
    back = [f"{frame.x(each.timestamp):.1f} {frame.y(each.low):.1f}" for each in run[::-1] if each.low is not None]
    return f'<path class="band" d="M{"L".join([*there, *back])}Z" fill="currentColor" fill-opacity="0.12"/>'


def _line(frame: _Frame, run: Sequence[Point]) -> str:
    at = [f"{frame.x(each.timestamp):.1f} {frame.y(each.value):.1f}" for each in run if each.value is not None]
    width = 1.8
    if len(at) == 1:
        at, width = at * 2, 5.0  # a dot, by the round ends
    return (
        f'<path class="line" d="M{"L".join(at)}" fill="none" stroke="currentColor" stroke-width="{width}"'
        ' stroke-linejoin="round" stroke-linecap="round"/>'
    )


def _mark(frame: _Frame, point: Point, chart: Chart) -> str:
    x, window = frame.x(point.timestamp), frame.window
    when = f"step {point.timestamp}" if window.by_step else format_time(point.timestamp, window.utc_offset)
    told = f"<title>{escape(f'{when}  {describe_point(point, chart)}')}</title>"
    if point.value is None or not isfinite(point.value):
        cross = f"M{x - 4:.1f} {_TOP}l8 8m0 -8l-8 8"
        return f'<path class="odd" d="{cross}" stroke="currentColor" stroke-width="2" fill="none">{told}</path>'
    y = frame.y(point.value)
    return f'<circle class="point" cx="{x:.1f}" cy="{y:.1f}" r="4" fill="currentColor" fill-opacity="0">{told}</circle>'


def describe_point(point: Point, chart: Chart) -> str:
    """Describe one point: its mean, and its range where it stands for several samples."""
    text = f"{chart.show(point.value)}{f' {chart.unit}' if chart.unit else ''}"
    low, high = chart.show(point.low), chart.show(point.high)
    return text if low == high else f"{text} ({low} to {high})"


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return (
        f'<text class="label" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="currentColor"'
        f' fill-opacity="0.8">{escape(text)}</text>'
    )
