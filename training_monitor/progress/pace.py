"""How fast batches are made: a robust rate that a pause leaves alone and a lasting change moves soon. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import log
from statistics import median

MOST_SAMPLES = 32
_LONGEST_WINDOW = 600.0  # seconds: a steady rate is that of the last five to ten minutes
_LEAST_SPACING = 0.2
_APART = 6

_RECENT_SPACING = 2.0
_SPANS = (3, 5, 8, 12, 20)  # how many of the last spans are asked whether they are of another speed
_LEAST_SECONDS = 15.0  # that these must have taken
_LEAST_CHANGE = log(1.1)
_SURE = 6.0  # standard errors
_LEAST_SPREAD = 0.05  # of the logarithms of speeds

Sample = tuple[float, int]


class Pace:
    """The rate of one kind of batch over the time in which such batches were made.

    At most 32 samples of (seconds, number of the batch that began) are kept. When they are full, every second one
    goes, until they reach back ten minutes; then the oldest go. The last 40 spans of two seconds, or of a batch where
    that takes longer, tell whether the speed is another one since: then all samples before go at once. A pause, however
    long, is in one span, and most of them must agree.
    """

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._recent: deque[Sample] = deque(maxlen=2 * _SPANS[-1] + 1)
        self._spacing = _LEAST_SPACING
        self._rate: float | None = None
        self.changes = 0  # how often the speed became another one

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
        """Batches a second, None with fewer than two samples.

        It is the median of the slopes between samples that are a sixth of all apart. Of the slopes between all pairs
        half would cross one pause in the middle, and the median move with it; here a pause is in one slope of five.
        """
        return self._rate

    def _forget_another_speed(self) -> None:
        """Forget the samples before the speed became what it is in the last spans."""
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
    """Whether a sample is newer than the last one by more than so many seconds, and by a batch."""
    return not samples or (sample[1] > samples[-1][1] and sample[0] - samples[-1][0] > spacing)


def _slopes(samples: Sequence[Sample], apart: int = 1) -> list[float]:
    return [(later[1] - earlier[1]) / (later[0] - earlier[0]) for earlier, later in zip(samples, samples[apart:])]


def _is_another_speed(before: Sequence[float], now: Sequence[float]) -> bool:
    """Whether the medians differ by more than chance explains, and three of four spans now are on that side."""
    past, present = [log(each) for each in before], [log(each) for each in now]
    usual, away = median(past), median(present) - median(past)
    agreeing = sorted((each - usual) * (1 if away > 0 else -1) for each in present)[len(present) // 4]
    error = max(_spread(past, present), _LEAST_SPREAD) * (1 / len(past) + 1 / len(present)) ** 0.5
    return agreeing >= _LEAST_CHANGE and abs(away) >= _SURE * error


def _spread(*groups: Sequence[float]) -> float:
    """The standard deviation within groups, by the median of the deviations."""
    away = [abs(each - median(group)) for group in groups for each in group]
    few = len(away) / (len(away) - len(groups) - 1)
    return 1.4826 * median(away) * few
