"""Trends of a training's samples, its projected cost, its cost by day, and comparisons with others. Pure.

Samples are oldest first. The newest may be denser than old ones, so means and slopes use evenly spread points. nan and
infinities can be the first or last value, and are ignored otherwise.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from math import fsum, inf, isfinite, nan
from typing import NamedTuple

from training_monitor.core.units import HOUR, median
from training_monitor.fleet.values import FleetSample

MOST_POINTS = 200
COMPARED = ("step", "loss", "steps_per_second", "gpu_utilization", "total_cost")  # the fields that `compare_runs` needs
RECENT = 300.0  # seconds: old samples are as far apart
Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Trend:
    """The trend of one field; None means unknown.

    Attributes:
        field: its name in `REPORTED`.
        known: the share of samples in which it is known, 0 to 1.
        first, last: the oldest and the newest known value.
        low, high, mean: of the finite ones.
        per_hour: change per hour: the median of the slopes between all points (Theil-Sen), which is robust against
            outliers.
    """

    field: str
    known: float
    first: float | None
    last: float | None
    low: float | None
    high: float | None
    mean: float | None
    per_hour: float | None


@dataclass(frozen=True, slots=True)
class CostProjection:
    """What a training will cost at its current pace; dollars, None means unknown.

    Attributes:
        dollars_per_hour: the newest price; without one, the slope of the total.
        spent: since the beginning of the rental.
        hours: how far ahead `dollars` looks.
        dollars: of the next `hours`.
        to_completion: until the last step, by the newest sample's ETA.
    """

    dollars_per_hour: float | None
    spent: float | None
    hours: float
    dollars: float | None
    to_completion: float | None


class Cost(NamedTuple):
    """What was spent in a time, in dollars; None means unknown. at_least: more may have been spent than is known."""

    dollars: float | None
    at_least: bool


class _Rise(NamedTuple):
    """The total `before` at `begin` and the `total` at `end`, when the machine may be gone; dollars."""

    begin: float
    before: float
    end: float
    total: float
    is_gone: bool = False

    @property
    def is_new(self) -> bool:
        return self.total < self.before / 2

    @property
    def dollars(self) -> float:
        return self.total if self.is_new else max(0.0, self.total - self.before)


@dataclass(frozen=True, slots=True)
class RunComparison:
    """One run compared with others; None means unknown.

    Its last step, last loss and total cost are about itself alone. All other values are over the steps up to
    `common_step`, without those that were undone by going back to a checkpoint.

    Attributes:
        key: of the run. samples: how many there are.
        last_step, last_loss: the newest; the loss may be nan.
        total_cost: dollars.
        common_step: the highest step that all runs with steps have reached; None without any.
        best_loss, best_loss_step: the lowest loss, and its step. Old samples are means of five minutes.
        loss_at_common_step: interpolated; None where no samples surround it.
        median_steps_per_second, mean_gpu_utilization: over the steps with a sample; percent.
        dollars_per_1000_steps: over the observed steps.
        loss_trend_per_1000_steps: change of the loss in 1000 steps, computed like `Trend.per_hour`.
    """

    key: str
    samples: int
    last_step: float | None
    last_loss: float | None
    total_cost: float | None
    common_step: float | None
    best_loss: float | None
    best_loss_step: float | None
    loss_at_common_step: float | None
    median_steps_per_second: float | None
    mean_gpu_utilization: float | None
    dollars_per_1000_steps: float | None
    loss_trend_per_1000_steps: float | None


def trend(samples: Sequence[FleetSample], field: str) -> Trend:
    """Return the trend of one field of the samples. `field` is a name from `REPORTED`."""
    seen = [value for sample in samples if (value := sample.values.get(field)) is not None]
    finite = [value for value in seen if isfinite(value)]
    points = _spread(_points(samples, field))
    return Trend(
        field,
        known=len(seen) / len(samples) if samples else 0.0,
        first=seen[0] if seen else None,
        last=seen[-1] if seen else None,
        low=min(finite, default=None),
        high=max(finite, default=None),
        mean=_mean(value for _, value in points) if points else None,
        per_hour=_times(_slope(points), HOUR),
    )


def project_cost(samples: Sequence[FleetSample], *, hours: float) -> CostProjection:
    """Project the cost of the next `hours`, and of the time until the last step, at the current rate."""
    price = _last(samples, "cost_per_hour")
    if price is None:
        price = _times(_slope(_spread(_points(samples, "total_cost"))), HOUR)
    if price is None or price < 0:
        price = None
    seconds = _last(samples[-1:], "eta_seconds")
    return CostProjection(
        price,
        _last(samples, "total_cost"),
        hours,
        _times(price, hours),
        None if seconds is None or seconds < 0 else _times(price, seconds / HOUR),
    )


def cost_by_day(members: Iterable[Iterable[FleetSample]], days: Sequence[float]) -> list[Cost]:
    """Return the cost of one machine on each day.

    The amount spent between two samples is spread evenly over the time between them. If the total falls below half its
    earlier value, a new rental has begun, and its whole cost was incurred since the previous sample. If the total falls
    by less, it was corrected (for example because of a new price), and nothing was spent. The cost of a day is marked
    `at_least` if the machine may have cost more: before its first sample if it was already rented then, and after its
    last sample unless it no longer exists.

    Args:
        members: the samples of each training on the machine, oldest first. These trainings share the cost of the
            machine.
        days: the start of each day, and the end of the last one, in increasing epoch seconds. Samples outside these
            days are used too.
    """
    spent: list[float | None] = [None] * (len(days) - 1)
    first, last, seconds, dollars = None, None, 0.0, 0.0
    for rise in merge(*map(_rises, members), key=lambda each: each.begin):
        first, last = first or rise, last or rise
        if last.end < rise.begin:  # nobody looked until another member was seen
            _add_rise(spent, days, _Rise(last.end, last.total, rise.begin, rise.before), last.end)
        _add_rise(spent, days, rise, rise.begin if rise is first else max(rise.begin, last.end))
        seconds, dollars = seconds + rise.end - rise.begin, dollars + rise.dollars
        last = max(last, rise, key=lambda each: each.end)
    if first is None or last is None:
        return [Cost(None, True)] * len(spent)
    rented, left = _rented_at(first, seconds, dollars), inf if last.is_gone else last.end + RECENT
    return [
        Cost(each, max(begin, rented) < min(until, first.begin) or left < until)
        for each, begin, until in zip(spent, days, days[1:])
    ]


def add_costs(costs: Iterable[Cost]) -> Cost:
    """Return the sum of costs; it is `at_least` so much if one of them is."""
    costs = list(costs)
    known = [each.dollars for each in costs if each.dollars is not None]
    return Cost(fsum(known) if known else None, any(each.at_least for each in costs))


def compare_runs(runs: Mapping[str, Sequence[FleetSample]]) -> tuple[RunComparison, ...]:
    """Compare runs, in the given order, over the steps that all of them have reached.

    Args:
        runs: the samples of each run, by the run's key. Runs whose steps are all unknown are not compared.
    """
    steps = [step for samples in runs.values() if (step := _last(samples, "step")) is not None]
    common = min(steps, default=None)
    return tuple(_compare(key, samples, common) for key, samples in runs.items())


def describe_compared(runs: Sequence[RunComparison]) -> str:
    """Describe which steps of some runs were compared."""
    common = next((run.common_step for run in runs if run.common_step is not None), None)
    if common is None:
        return "none, because no step is known"
    without = sum(run.last_step is None for run in runs)
    return f"up to {common:.0f}, which all runs{' with a known step' if without else ''} have reached"


def series(samples: Sequence[FleetSample], field: str, cells: int, begin: float, end: float) -> list[float | None]:
    """Resample one field into at most `cells` equal parts of a time, for a sparkline.

    A part is the mean of its known values, None without any, nan where a value is not finite. Few samples yield fewer
    parts, so that each contains one if none is missing.

    Args:
        samples: oldest first.
        field: a name of `REPORTED`.
        cells: the maximum number of parts.
        begin, end: epoch seconds; samples outside are left out.
    """
    inside = [sample for sample in samples if begin <= sample.timestamp <= end]
    count = min(cells, len(inside) // 2 + 1)
    parts: list[list[float]] = [[] for _ in range(count)]
    for sample in inside:
        if (value := sample.values.get(field)) is not None:
            share = (sample.timestamp - begin) / (end - begin) if end > begin else 0.0
            parts[min(count - 1, int(share * count))].append(value)
    return [(_mean(part) if all(map(isfinite, part)) else nan) if part else None for part in parts]


def _rises(samples: Iterable[FleetSample]) -> Iterator[_Rise]:
    """Yield what lies between the samples with a known total."""
    begin, before = inf, 0.0
    for sample in samples:
        total, end = sample.values.get("total_cost"), sample.timestamp
        if total is None or not isfinite(total):
            continue
        if begin < end:
            yield _Rise(begin, before, end, total, sample.status == "lost")
        begin, before = end, total


def _rented_at(first: _Rise, seconds: float, dollars: float) -> float:
    """Return when a machine was rented, judging by its cost in some seconds; -inf if that is unknown."""
    if first.before <= 0:
        return first.begin
    return first.begin - first.before * seconds / dollars if dollars > 0 and not first.is_new else -inf


def _add_rise(spent: list[float | None], days: Sequence[float], rise: _Rise, begin: float) -> None:
    """Add to each day its share of what was spent since `begin`: earlier parts of the rise are counted already."""
    for day in range(max(0, bisect_right(days, begin) - 1), len(spent)):
        seconds = min(rise.end, days[day + 1]) - max(begin, days[day])
        if seconds <= 0:
            return
        spent[day] = (spent[day] or 0.0) + rise.dollars * seconds / (rise.end - rise.begin)


def _compare(key: str, samples: Sequence[FleetSample], common: float | None) -> RunComparison:
    seen = [loss for sample in samples if (loss := sample.values.get("loss")) is not None]
    losses = _by_step(samples, "loss")
    compared = _until(losses, common)
    best = min(compared, key=lambda point: point[1], default=None)
    speeds = [speed for _, speed in _spread(_until(_by_step(samples, "steps_per_second"), common))]
    used = [share for _, share in _spread(_until(_by_step(samples, "gpu_utilization"), common))]
    costs = _until(_by_step(samples, "total_cost"), common)
    steps_seen = costs[-1][0] - costs[0][0] if costs else 0.0
    spent = costs[-1][1] - costs[0][1] if costs else 0.0
    return RunComparison(
        key=key,
        samples=len(samples),
        last_step=_last(samples, "step"),
        last_loss=seen[-1] if seen else None,
        total_cost=_last(samples, "total_cost"),
        common_step=common,
        best_loss=best[1] if best else None,
        best_loss_step=best[0] if best else None,
        loss_at_common_step=None if common is None else _value_at(losses, common),
        median_steps_per_second=median(speeds) if speeds else None,
        mean_gpu_utilization=_mean(used) if used else None,
        dollars_per_1000_steps=_times(spent, 1000.0 / steps_seen) if steps_seen > 0 and spent >= 0 else None,
        loss_trend_per_1000_steps=_times(_slope(_spread(compared)), 1000.0),
    )


def _until(points: Points, step: float | None) -> Points:
    """Return the points up to a step; none where it is unknown."""
    return [] if step is None else [point for point in points if point[0] <= step]


def _last(samples: Sequence[FleetSample], field: str) -> float | None:
    """Return the newest finite value."""
    values = (sample.values.get(field) for sample in reversed(samples))
    return next((value for value in values if value is not None and isfinite(value)), None)


def _points(samples: Sequence[FleetSample], field: str) -> Points:
    """Return (timestamp, value) of the finite values."""
    values = ((sample.timestamp, sample.values.get(field)) for sample in samples)
    return [(timestamp, value) for timestamp, value in values if value is not None and isfinite(value)]


def _by_step(samples: Sequence[FleetSample], field: str) -> Points:
    """Return (step, value) of the finite values, by rising step: going back to a checkpoint drops the later steps."""
    points: Points = []
    for sample in samples:
        step, value = sample.values.get("step"), sample.values.get(field)
        if step is None or not isfinite(step):
            continue
        while points and points[-1][0] > step:
            points.pop()
        if value is not None and isfinite(value):
            if points and points[-1][0] == step:
                points.pop()
            points.append((step, value))
    return points


def _spread(points: Points) -> Points:
    """Reduce to at most MOST_POINTS points: means of equal parts of the whole."""
    if len(points) <= MOST_POINTS:
        return points
    begin, whole = points[0][0], points[-1][0] - points[0][0]
    parts: dict[int, Points] = {}
    for point in points:
        share = (point[0] - begin) / whole if whole > 0 else 0.0
        parts.setdefault(min(MOST_POINTS - 1, int(share * MOST_POINTS)), []).append(point)
    return [(_mean(at for at, _ in part), _mean(value for _, value in part)) for part in parts.values()]


def _slope(points: Points) -> float | None:
    """Return the median of the slopes between all pairs; None for fewer than two points."""
    slopes = [
        (second[1] - first[1]) / (second[0] - first[0])
        for at, first in enumerate(points)
        for second in points[at + 1 :]
        if second[0] > first[0]
    ]
    return _times(median(slopes), 1.0) if slopes else None


def _value_at(points: Points, at: float) -> float | None:
    """Interpolate between the two nearest points; None outside of all points."""
    below = max((point for point in points if point[0] <= at), default=None)
    above = min((point for point in points if point[0] >= at), default=None)
    if below is None or above is None:
        return None
    if above[0] == below[0]:
        return below[1]
    share = (at - below[0]) / (above[0] - below[0])
    return (1.0 - share) * below[1] + share * above[1]


def _mean(values: Iterable[float]) -> float:
    """Return the mean of at least one value."""
    known = list(values)
    return fsum(value / len(known) for value in known)


def _times(value: float | None, factor: float) -> float | None:
    """Return the product; None if the value is unknown or the product is not finite."""
    return value * factor if value is not None and isfinite(value * factor) else None
