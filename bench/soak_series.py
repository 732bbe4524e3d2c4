"""Tell what grows in a soak from what is only noisy, and print it as a table and as curves. Pure.

A count grows if its median rises from the second to the last quarter, and Kendall's test is sure of a trend since the
first quarter; memory, sizes and numbers of objects may rise by RISE (memory and sizes: but not by MOST_RISE). What
malloc holds of freed memory is shown, not judged: it is a part of the memory, which is.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from training_monitor.core.units import format_sparkline

BLOCKS, SURE = 16, 3.0  # parts that Kendall's test compares; standard deviations
RISE, MOST_RISE = 0.1, 5.0
LEAST_OBJECTS = 10
SIZES = ("memory", "memory of the children", "state files", "other files")


class Series(NamedTuple):
    """What was measured of one thing: `unit` is empty for a count; `share` and `most` are by how much it may rise."""

    name: str
    values: Sequence[float]
    unit: str = ""
    share: float = 0.0
    most: float = float("inf")
    least: float = 0.0

    def quarter(self, number: int) -> Sequence[float]:
        """Return the values of a quarter, 1 to 4; of a short series, the nearest value."""
        size = len(self.values)
        first = min((number - 1) * size // 4, max(0, size - 1))
        return self.values[first : max(first + 1, number * size // 4)]

    @property
    def settled(self) -> Sequence[float]:
        return self.values[len(self.values) // 4 :]

    @property
    def allowance(self) -> float:
        return max(self.least, min(self.share * abs(statistics.median(self.quarter(2))), self.most))

    def grows(self) -> bool:
        """Return whether it rose by more than it may since its second quarter, and not by chance."""
        rise = statistics.median(self.quarter(4)) - statistics.median(self.quarter(2))
        return rise > self.allowance and trend(block_medians(self.settled)) >= SURE


def block_medians(values: Sequence[float], blocks: int = BLOCKS) -> list[float]:
    """Return the medians of equal parts, of which neighbours depend less on one another than single values do."""
    blocks = min(blocks, len(values))
    edges = [at * len(values) // blocks for at in range(blocks + 1)] if blocks else []
    return [statistics.median(values[first:end]) for first, end in zip(edges, edges[1:])]


def trend(values: Sequence[float]) -> float:
    """Return how many standard deviations the order of the values is from a random one, by Kendall's test."""
    size = len(values)
    score = sum((after > before) - (after < before) for at, after in enumerate(values) for before in values[:at])
    spread = size * (size - 1) * (2 * size + 5)
    spread -= sum(ties * (ties - 1) * (2 * ties + 5) for ties in Counter(values).values())
    return 0.0 if spread <= 0 else (score - (score > 0) + (score < 0)) / (spread / 18) ** 0.5


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """Return the rise in an hour: the median over all pairs (Theil and Sen); `times` in seconds."""
    pairs = [
        3600 * (values[end] - values[begin]) / (times[end] - times[begin])
        for end in range(len(times))
        for begin in range(end)
        if times[end] > times[begin]
    ]
    return statistics.median(pairs) if pairs else 0.0


def series_of(samples: Sequence[Mapping[str, float]]) -> list[Series]:
    """Return what was measured as series, in the order of the table; a class without objects counts 0."""
    names = dict.fromkeys(name for sample in samples for name in sample if name != "at")
    found = []
    for name in names:
        values = [sample.get(name, 0.0) for sample in samples]
        if name == "freed memory":
            found.append(Series(name, values, "MB", least=float("inf")))
        elif name in SIZES or name.startswith("memory of "):
            found.append(Series(name, values, "MB", RISE, MOST_RISE, 0.0 if name == "memory" else 0.5))
        elif name.startswith("objects"):
            found.append(Series(name, values, "", RISE, least=LEAST_OBJECTS))
        else:
            found.append(Series(name, values))
    return found


def as_table(samples: Sequence[Mapping[str, float]], series: Sequence[Series], *, judged: bool) -> Iterator[str]:
    """Format the series as a table in Markdown; slopes are those after the first quarter."""
    yield "| quantity | first quarter | second quarter | last quarter | maximum | slope per hour | result |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | --- |"
    times = [sample["at"] for sample in samples]
    for each in series:
        first, second, last = (statistics.median(each.quarter(number)) for number in (1, 2, 4))
        after = slope(times[-len(each.settled) :], each.settled)
        verdict = "not evaluated" if not judged or each.least == float("inf") else "grows" if each.grows() else "flat"
        shown = [f"{number:.4g} {each.unit}".strip() for number in (first, second, last, max(each.values), after)]
        yield f"| {each.name} | {' | '.join(shown)} | {verdict} |"


def as_curves(series: Sequence[Series], width: int = 60) -> Iterator[str]:
    wide = max((len(each.name) for each in series), default=0)
    for each in series:
        low, high = min(each.values), max(each.values)
        curve = format_sparkline(each.values, width)
        yield f"{each.name:{wide}}  {curve}  {low:.4g} to {high:.4g} {each.unit}".rstrip()


def shown_in(series: Sequence[Series]) -> list[Series]:
    """Return all series but those of single classes, unless one of these grows."""
    return [each for each in series if not each.name.startswith("objects ") or each.grows()]
