"""Count the training or validation batches of a run and its past epochs, and measure how fast batches are made. Pure.

The rate is robust: a pause does not move it, and a lasting change moves it soon.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import field
from math import log
from statistics import median

from training_monitor.core.frozen import dataclass

MOST_SAMPLES = 32
_LONGEST_WINDOW = 600.0  # seconds: a steady rate covers the last five to ten minutes
_LEAST_SPACING = 0.2
_APART = 6

_RECENT_SPACING = 2.0
_SPANS = (3, 5, 8, 12, 20)  # the numbers of newest spans that are tested for another speed
_LEAST_SECONDS = 15.0  # the least time that these spans must cover
_LEAST_CHANGE = log(1.1)
_SURE = 6.0  # standard errors
_LEAST_SPREAD = 0.05  # of the logarithms of speeds

Sample = tuple[float, int]


class Pace:
    """The rate of one kind of batch, in the time spent on such batches.

    At most 32 samples of (seconds, number of the batch that began) are kept. When they are full, every second one is
    dropped, until they reach back ten minutes; then the oldest are dropped. The last 40 spans, each of two seconds or
    of one longer batch, tell whether the speed has changed: then all earlier samples are dropped at once. A pause,
    however long, is in one span, and most spans must agree.
    """

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._recent: deque[Sample] = deque(maxlen=2 * _SPANS[-1] + 1)
        self._spacing = _LEAST_SPACING
        self._rate: float | None = None
        self.changes = 0  # how often the speed has changed

    def add(self, seconds: float, batches: int) -> None:
        """Note that batch number `batches` begins after so many seconds of making them."""
        sample, samples = (seconds, batches), self._samples
        if _is_apart(sample, self._recent, _RECENT_SPACING):
            self._recent.append(sample)
            self._forget_another_speed()
        if not _is_apart(sample, samples, self._spacing if len(samples) > 1 else 0.0):
            return
        samples.append(sample)
        if len(samples) > MOST_SAMPLES:
            if seconds - samples[0][0] < _LONGEST_WINDOW:
                del samples[1::2]
                self._spacing *= 2
            else:
                del samples[0]
        slopes = _slopes(samples, max(1, len(samples) // _APART))
        self._rate = median(slopes) if slopes else None

    def rate(self) -> float | None:
        """Return batches per second, None with fewer than two samples.

        It is the median of the slopes between samples that are a sixth of all samples apart. With slopes between all
        pairs, half would cross one pause in the middle and move the median; here a pause is in one slope of five.
        """
        return self._rate

    def _forget_another_speed(self) -> None:
        """Drop the samples from before the last change of speed."""
        recent = list(self._recent)
        for count in _SPANS:
            before, now = recent[:-count], recent[-count - 1 :]
            if len(before) <= _SPANS[0]:
                return
            if now[-1][0] - now[0][0] >= _LEAST_SECONDS and _is_another_speed(_slopes(before), _slopes(now)):
                self._samples[:] = now[:-1]
                self._recent = deque(now, maxlen=self._recent.maxlen)
                self._spacing = _RECENT_SPACING
                self.changes += 1
                return


def _is_apart(sample: Sample, samples: Sequence[Sample], spacing: float) -> bool:
    """Return whether a sample is newer than the last one by more than so many seconds, and by a batch."""
    return not samples or (sample[1] > samples[-1][1] and sample[0] - samples[-1][0] > spacing)


def _slopes(samples: Sequence[Sample], apart: int = 1) -> list[float]:
    return [(later[1] - earlier[1]) / (later[0] - earlier[0]) for earlier, later in zip(samples, samples[apart:])]


def _is_another_speed(before: Sequence[float], now: Sequence[float]) -> bool:
    """Return whether the medians differ by more than chance, with three of four new spans on the same side."""
    past, present = [log(each) for each in before], [log(each) for each in now]
    usual, away = median(past), median(present) - median(past)
    agreeing = sorted((each - usual) * (1 if away > 0 else -1) for each in present)[len(present) // 4]
    error = max(_spread(past, present), _LEAST_SPREAD) * (1 / len(past) + 1 / len(present)) ** 0.5
    return agreeing >= _LEAST_CHANGE and abs(away) >= _SURE * error


def _spread(*groups: Sequence[float]) -> float:
    """Return the standard deviation within groups, estimated from the median of the deviations."""
    away = [abs(each - median(group)) for group in groups for each in group]
    few = len(away) / (len(away) - len(groups) - 1)
    return 1.4826 * median(away) * few


MOST_DURATIONS = 16


@dataclass(frozen=True, slots=True)
class Span:
    """The duration of the batches of a past epoch or validation, pauses included, and their rate.

    `rate` is None if it is unknown, or changed in between.
    """

    seconds: float
    batches: int
    rate: float | None

    def at(self, rate: float | None) -> float:
        """Return the seconds that it would take at this rate, with the same pauses."""
        if not rate or not self.rate:
            return self.seconds
        return max(0.0, self.seconds + self.batches * (1.0 / rate - 1.0 / self.rate))


@dataclass(slots=True)
class Part:
    """The training or the validation batches of a run.

    Attributes:
        total: batches in this epoch. count: batches begun in the whole run, as they were counted.
        first: `count` before this epoch (or this validation).
        skipped: how far the script's own number of the last batch is ahead of the count in this epoch.
        leaps: batches of the whole run that the script's own numbers skipped (negative: counted more than once).
        made, made_of: batches of the last epoch, and its announced total.
        seconds: time spent on such batches in the whole run; before: the part of it before this epoch.
        began_at, changes: number of the last batch, and changes of the pace, before this epoch.
        changed_at: `seconds` when the last batch began; is_over: it has ended, and no other one has begun.
        past: the last epochs.
    """

    total: int | None = None
    count: int = 0
    first: int = 0
    skipped: int = 0
    leaps: int = 0
    from_zero: bool = False
    made: int | None = None
    made_of: int | None = None
    seconds: float = 0.0
    before: float = 0.0
    began_at: int = 0
    changes: int = 0
    changed_at: float = 0.0
    is_over: bool = False
    pace: Pace = field(default_factory=Pace)
    past: deque[Span] = field(default_factory=lambda: deque(maxlen=MOST_DURATIONS))

    def begin(self, total: int | None) -> None:
        """Count from here; with `total` None, keep the known one."""
        self.first, self.before, self.skipped, self.changed_at = self.count, self.seconds, 0, self.seconds
        self.began_at, self.changes = self.count + self.leaps, self.pace.changes
        self.mark()
        if total is not None:
            self.total = total

    def mark(self) -> None:
        """Note that the next batch begins here, or would if there were one."""
        self.pace.add(self.seconds, self.count + self.leaps + 1)

    def observe(self, count: int) -> bool:
        """Note the counter; True if batches have begun."""
        if count <= self.count:
            return False
        self.count, self.changed_at, self.is_over = count, self.seconds, False
        self.pace.add(self.seconds, count + self.leaps)
        return True

    def place(self, batch: int, begun: int) -> None:
        """Note the script's own number of the batch that was begun as number `begun` of all.

        The first number of an epoch may be that of a resume. Later numbers that skip or repeat some tell how many
        batches of `total` a counted one is. A smaller number starts anew.
        """
        self.from_zero = self.from_zero or batch == 0
        counted = max(1, begun - self.first)
        skipped = batch + self.from_zero - counted
        if counted > 1 and skipped >= self.skipped - 1:
            self.leaps += skipped - self.skipped
        self.skipped = skipped

    def end_epoch(self) -> None:
        self.mark()
        self.past.append(self.span())
        self.made, self.made_of = self.batch, self.total

    @property
    def is_steady(self) -> bool:
        """Whether the speed was the same in all of this epoch."""
        return self.changes == self.pace.changes

    def span(self) -> Span:
        """Return this epoch so far."""
        batches = self.count + self.leaps - self.began_at
        return Span(self.elapsed, batches, self.pace.rate() if self.is_steady else None)

    @property
    def durations(self) -> list[float]:
        return [span.seconds for span in self.past]

    @property
    def expected(self) -> int | None:
        """The expected batches of this epoch: those of the last one with the same total, unless that is too few."""
        return self.made if self.made and self.made_of == self.total and self.made >= (self.batch or 0) else self.total

    @property
    def batch(self) -> int | None:
        """The batch that was begun last in this epoch, from 1."""
        done = self.count - self.first
        return done + self.skipped if done else None

    @property
    def elapsed(self) -> float:
        return self.seconds - self.before

    def waiting(self, left: int | None) -> int | None:
        """Return the batches of this epoch that have not begun; None if unknown.

        Args:
            left: batches of the whole run that have not begun; None if the run has no end of its own.
        """
        known = [] if left is None else [left]
        if self.expected is not None:
            known.append(max(0, self.expected - (self.batch or 0)))
        return min(known, default=None)

    def remaining(self, left: int | None = None) -> float | None:
        """Return the seconds until the last batch has ended, by the rate, else by the durations of earlier epochs."""
        rate, waiting = self.pace.rate(), self.waiting(left)
        if waiting is None or not rate:
            return max(0.0, usual_seconds(self.past, rate) - self.elapsed) if self.past else None
        is_within = self.expected is None or (self.batch or 0) <= self.expected
        is_under_way = self.batch and is_within and not self.is_over
        current = 1.0 - rate * (self.seconds - self.changed_at) if is_under_way else 0.0
        return (waiting + max(0.0, current)) / rate


def usual_seconds(spans: Iterable[Span], rate: float | None) -> float:
    """Return the median of the seconds that these spans would take at this rate."""
    return median(span.at(rate) for span in spans)
