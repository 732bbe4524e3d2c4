"""Detect a run that is slower than it was, or whose ETA does not converge. Pure.

A run is slow when its steps take a multiple of their time in its own past, by medians over intervals in which the step
advanced, so that pauses do not count; how many intervals are needed depends on how much the run's step times vary. Its
past is its fastest stretch, however long ago, or the usual step time in its log. A slow run stays slow until its speed
is back.

An ETA does not converge when what the pace of the steps gives falls by less than a share of the time spent on steps,
over a good part of an hour in which steps become slower and slower. That shows long before the speed has halved. Pauses
are left out: a printed ETA jumps after each of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import exp, gcd, inf, log
from typing import NamedTuple

from training_monitor.core.units import format_duration, median
from training_monitor.verdict.limits import StallPolicy
from training_monitor.verdict.stall_history import Advance, Run

COUNTS = (5, 6, 7, 8, 10, 12, 20, 32, 64)  # of intervals whose median is compared
ENTER, LEAVE = 0.85, 0.5  # shares of the threshold, as logarithms: slow at 0.55 of the past speed, back at 0.71
STEADY = 0.6  # of the threshold: the least for the mean and for the faster quarter
PACE_GROWTH = 1.25  # how much slower the steps of a last third must be than those of the first for a flat ETA
THIRD_GROWTH = 0.1  # the least growth of a third over the one before, as a logarithm
STILL_SLOW = 1.15
ETA_SHARE = 0.3  # of itself that must elapse before an ETA can be called flat: earlier, it is noise
BLOCK_SECONDS = 900.0
STEPS_FOR_ONE = 20.0  # steps whose mean is taken to be as certain as one advance
Reading = tuple[float, float]  # time, ETA


class Slowdown(NamedTuple):
    """The result of a comparison: `ratio` is the present step time over the past one.

    `back_at` is when steps last took hardly longer than in the past.
    """

    ratio: float
    slow: bool
    since: float
    back_at: float = -inf


def warm_at(run: Run, policy: StallPolicy) -> float:
    """Return when the warm-up was over; infinity while it lasts."""
    if run.first_step_at is None:
        return inf
    warm, steps = run.first_step_at + policy.warmup_seconds, 0.0
    for each in run.advances:
        if each.end > warm and (steps >= policy.warmup_steps or not run.by_step):
            return each.begin
        steps += each.steps
    return inf


class _Past(NamedTuple):
    """The run at its best: the logarithm of its step time, its spread, and the number of advances."""

    base: float
    spread: float
    size: int


class _Series:
    """The advances as logarithms of their step times, with sums for the mean of any part."""

    def __init__(self, calm: Sequence[Advance]) -> None:
        self.calm = calm
        self.seconds = list(accumulate((each.seconds for each in calm), initial=0.0))
        self.steps = list(accumulate((each.steps for each in calm), initial=0.0))
        self.raw = [log(each.step_time) for each in calm]
        self.logs = self._smoothed() if self._is_coarse() else self.raw

    def _is_coarse(self) -> bool:
        """Whether looks see so few log lines that their number varies without a change of speed."""
        line = gcd(*(int(each.steps) for each in self.calm))
        return median(each.steps for each in self.calm) < 4 * line

    def _smoothed(self) -> list[float]:
        """Return each advance averaged with the neighbour that makes it faster: a single pause stays single."""
        seconds, steps = self.seconds, self.steps
        pairs = [(c - a) / (d - b) for a, b, c, d in zip(seconds, steps, seconds[2:], steps[2:])]
        pairs = [self.calm[0].step_time, *pairs, self.calm[-1].step_time]
        return [log(min(before, after)) for before, after in zip(pairs, pairs[1:])]

    def mean(self, begin: int, end: int) -> float:
        """Return the logarithm of the mean step time."""
        return log((self.seconds[end] - self.seconds[begin]) / (self.steps[end] - self.steps[begin]))

    def usual(self, begin: int, end: int) -> float:
        """Return the lower of mean and median: the mean counts pauses."""
        return min(median(self.logs[begin:end]), self.mean(begin, end))


def find_slowdown(calm: Sequence[Advance], usual: float | None, policy: StallPolicy) -> Slowdown | None:
    """Compare the newest advances with the run's past, and with its `usual` step time if its log shows that.

    Once slow, a run stays slow until its steps take little longer than in the past.
    """
    if (told := _compare(calm, usual, policy)) is None:
        return None
    found, series, base = told
    near = _last_back(series, base + log(STILL_SLOW), policy)
    found = found._replace(back_at=calm[near - 1].end if near else -inf)
    if found.slow:
        return found
    back = _last_back(series, base - LEAVE * log(policy.speed_drop_threshold), policy)
    for end in moments(len(calm)):
        if end <= back:
            break
        if (then := _compare(calm[:end], usual, policy)) and then[0].slow:
            return found._replace(slow=True, since=then[0].since)
    return found


def _compare(
    calm: Sequence[Advance], usual: float | None, policy: StallPolicy
) -> tuple[Slowdown, _Series, float] | None:
    """Compare the newest advances alone; return (result, all advances, logarithm of the past step time)."""
    if len(calm) < (5 if usual else 10):
        return None
    series, count = _Series(calm), len(calm)
    past = _best_past(series, count - 5)
    if usual and (past is None or log(usual) < past.base):
        past = _Past(log(usual), 0.1, 40)
    if past is None:
        return None
    threshold = -log(policy.speed_drop_threshold)
    newest = exp(series.usual(count - 5, count) - past.base)
    begin = _begin_of_slowness(series, past.base + LEAVE * threshold)
    if begin is None:
        return Slowdown(newest, False, calm[-1].begin), series, past.base
    if begin >= 2 and not (usual and log(usual) <= past.base):
        past = _best_past(series, begin) or past  # excludes the slow stretch
    for size in COUNTS:
        if size > count - begin + size // 4:
            break
        growing = _is_growing(series.logs[-3 * size :], size)
        if _is_slow(series, count - size, count, past, policy, 0.55 if growing else ENTER * threshold):
            ratio = exp(median(series.logs[-size:]) - past.base)
            return Slowdown(ratio, True, calm[begin].begin), series, past.base
    return Slowdown(newest, False, calm[begin].begin), series, past.base


def _last_back(series: _Series, limit: float, policy: StallPolicy) -> int:
    """Return after how many advances those of the last `slow_seconds` were last within the limit; 0 for never."""
    for end in range(len(series.raw), 4, -1):
        begin = min(end - 5, bisect_right(series.seconds, series.seconds[end] - policy.slow_seconds) - 1)
        if median(series.raw[max(0, begin) : end]) <= limit:
            return end
    return 0


def moments(count: int) -> Iterator[int]:
    """Yield earlier lengths of `count` things, newest first: of the oldest only some, always the same ones."""
    return (end for end in range(count - 1, 0, -1) if count - end <= 24 or end % (4 if count - end <= 120 else 16) == 0)


def _is_slow(series: _Series, begin: int, end: int, past: _Past, policy: StallPolicy, threshold: float) -> bool:
    """Whether these advances are slower than the past by the threshold, significantly, steadily and for long enough.

    The first and the last of them may be slow in part: a patch of slow minutes looks longer than it is.
    """
    if begin < 0 or series.seconds[end - 1] - series.seconds[begin + 1] < policy.slow_seconds:
        return False
    if series.mean(begin, end) - past.base < STEADY * threshold:
        return False
    logs = series.logs[begin:end]
    rise = median(logs) - past.base
    sure = rise >= 7.0 * past.spread * (1.0 / len(logs) + 1.0 / past.size) ** 0.5
    return sure and rise >= threshold and quantile(logs, 0.25) - past.base >= STEADY * threshold


def _best_past(series: _Series, count: int) -> _Past | None:
    """Return the fastest stretch of about a quarter of an hour among the first `count` advances."""
    if not _is_enough(series, 0, count):
        return None
    begin, end = min(_blocks(series, count), key=lambda block: series.usual(*block))
    logs = series.logs[begin:end]
    size = max(end - begin, min(40, int((series.steps[end] - series.steps[begin]) / STEPS_FOR_ONE)))
    middle = median(logs)
    deviation = max(
        1.4826 * median(abs(each - middle) for each in logs), (quantile(logs, 0.75) - quantile(logs, 0.25)) / 1.35
    )
    return _Past(series.usual(begin, end), max(deviation, 0.25 if size < 10 else 0.05), size)


def _is_enough(series: _Series, begin: int, end: int) -> bool:
    """Whether a stretch shows a usual speed: some advances, or fewer if each spans many steps."""
    steps = series.steps[end] - series.steps[begin] if end > begin else 0.0
    return end - begin >= 5 or (end - begin >= 2 and steps >= 10 * STEPS_FOR_ONE)


def _blocks(series: _Series, count: int) -> list[tuple[int, int]]:
    """Split the first `count` advances into blocks of about the same duration; old advances may be longer."""
    most, blocks, begin = max(5, min(count // 3, 24)), [], 0
    for end in range(2, count + 1):
        lasts = series.seconds[end] - series.seconds[begin] >= BLOCK_SECONDS
        if end - begin >= most or (lasts and _is_enough(series, begin, end)):
            blocks.append((begin, end))
            begin = end
    return blocks or [(0, count)]


def _begin_of_slowness(series: _Series, limit: float) -> int | None:
    """Return the advance from which on all stretches of five were above the limit; None if the newest is not."""
    begin = None
    for end in range(len(series.logs), 4, -5):
        if series.usual(end - 5, end) <= limit:
            break
        begin = end - 5
    return begin


def _is_growing(logs: Sequence[float], count: int) -> bool:
    """Whether each of three blocks is clearly slower than the one before."""
    if len(logs) < 3 * count:
        return False
    first, second, third = (median(logs[at : at + count]) for at in (0, count, 2 * count))
    return second - first >= 0.14 and third - second >= 0.14


# ---------------------------------------------------------------- ETA


class FlatEta(NamedTuple):
    """An ETA that did not converge over the last `seconds`, in which `steps` were made."""

    eta: float
    seconds: float
    steps: float
    since: float

    def describe(self) -> str:
        span = f"{self.seconds / 60:.0f} minutes" if self.seconds < 2.5 * 3600 else format_duration(self.seconds)
        return f"ETA not converging: stayed at ~{_round(self.eta)} over the last {span} despite {self.steps:.0f} steps"


def find_flat_eta(
    advances: Sequence[Advance],
    left: float,
    readings: Sequence[Reading],
    slowdown: Slowdown | None,
    policy: StallPolicy,
) -> FlatEta | None:
    """Find the shortest stretch with a flat ETA, of at least a quarter of an hour; sequences are oldest first.

    The ETA is what the pace of the steps gives for the `left` ones, pauses left out. The printed one, of which
    `readings` are known, must agree. An earlier finding counts until the speed is back.
    """
    if not advances:
        return None
    series = _Series(advances)
    if found := _find_flat_eta(series, len(advances), left, readings, policy):
        return found
    if slowdown is None or slowdown.ratio < STILL_SLOW:
        return None
    for end in moments(len(advances)):
        when = advances[end - 1].end
        if when <= slowdown.back_at:
            break
        before = left + series.steps[-1] - series.steps[end]
        known = readings[: bisect_right(readings, (when, inf))]
        if found := _find_flat_eta(series, end, before, known, policy):
            return found
    return None


def _find_flat_eta(
    series: _Series, end: int, left: float, readings: Sequence[Reading], policy: StallPolicy
) -> FlatEta | None:
    """Try ever longer stretches among the first `end` advances."""
    if end < max(3, policy.min_samples - 1):
        return None
    newest, begin = series.calm[end - 1], end
    span = max(policy.eta_seconds, newest.seconds)
    while begin:
        begin = bisect_left(series.calm, newest.end - span, hi=end, key=lambda each: each.begin)
        if end - begin >= 3 and (found := _flat_eta(series, begin, end, left, readings, policy)):
            return found
        span *= 1.3
    return None


def _flat_eta(
    series: _Series, begin: int, end: int, left: float, readings: Sequence[Reading], policy: StallPolicy
) -> FlatEta | None:
    """Compare the first, the middle and the last third: each must be slower by more than chance."""
    within, count = series.calm[begin:end], end - begin
    thirds = [(begin + count * part // 3, begin + count * (part + 1) // 3) for part in range(3)]
    first, middle, last = (series.usual(*third) for third in thirds)
    pace, total = exp(last), series.steps[end] - series.steps[begin]
    ended, begun = series.steps[thirds[2][0]], (series.steps[thirds[0][1]] + series.steps[begin]) / 2.0
    now, then = left + (series.steps[end] - ended) / 2.0, left + series.steps[end] - begun
    fallen, stepped = then * exp(first) - now * pace, (then - now) * (exp(first) + pace) / 2.0
    seconds = within[-1].end - within[0].begin
    if seconds < max(0.8 * policy.eta_seconds, ETA_SHARE * left * pace):
        return None
    if fallen >= policy.eta_convergence_threshold * stepped or last - first < log(PACE_GROWTH):
        return None
    if count < 9:
        if min(each.steps for each in within) < STEPS_FOR_ONE or middle < first - 0.05:
            return None
    elif min(middle - first, last - middle) < max(THIRD_GROWTH, 3.0 * _noise(series, thirds)):
        return None
    known = [each for each in readings if each[0] >= within[0].begin]
    if known and _has_fallen(known, policy):
        return None
    return FlatEta(known[-1][1] if known else left * pace, seconds, total, within[0].begin)


def _noise(series: _Series, thirds: Sequence[tuple[int, int]]) -> float:
    """Return by how much the medians of two thirds differ by chance."""
    spread = max(quantile(series.logs[a:b], 0.75) - quantile(series.logs[a:b], 0.25) for a, b in thirds) / 1.35
    return float(spread * (2.0 / (thirds[0][1] - thirds[0][0])) ** 0.5)


def _has_fallen(readings: Sequence[Reading], policy: StallPolicy) -> bool:
    """Whether the printed ETA came nearer, by medians of its first and last readings."""
    edge = max(1, len(readings) // 4)
    (begun, before), (ended, after) = (
        (median(when for when, _ in part), median(eta for _, eta in part))
        for part in (readings[:edge], readings[-edge:])
    )
    return before - after >= policy.eta_convergence_threshold * (ended - begun) > 0


def eta_convergence(readings: Sequence[Reading]) -> float | None:
    """Return by what share of elapsed time the ETA shrank in the last half hour: 1 is on schedule, below 0 it grew."""
    known = [each for each in readings if each[0] >= readings[-1][0] - 1800.0]
    if len(known) < 3 or known[-1][0] <= known[0][0]:
        return None
    return (known[0][1] - known[-1][1]) / (known[-1][0] - known[0][0])


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _round(seconds: float) -> str:
    """Format the ETA as 2h or 40m."""
    if seconds >= 2 * 3600 - 300:
        return f"{seconds / 3600:.0f}h"
    return f"{max(1.0, seconds / 60):.0f}m"
