"""The rows that `python3 -m bench` prints: what something costs, beside a reference that ran in turn with it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple


class Row(NamedTuple):
    """One measurement.

    Attributes:
        what: what was measured.
        ours, reference: medians in the same unit; `reference` is None where there is nothing to compare with.
        unit: for instance ms, or MB/s, of which more is better.
        beside: what the reference is.
        goal: what is to be reached, in words: `at most 3x`, `20 MB/s`.
    """

    what: str
    ours: float
    unit: str
    reference: float | None
    beside: str
    goal: str

    @property
    def ratio(self) -> float | None:
        """How many times the reference's time ours takes."""
        if not self.reference:
            return None
        return self.reference / self.ours if self.unit.endswith("/s") else self.ours / self.reference


def in_turn(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Run the calls in turn, so that other load of the machine meets all of them; return the median seconds of each."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            started = time.perf_counter()
            call()
            taken[name].append(time.perf_counter() - started)
    return {name: statistics.median(times) for name, times in taken.items()}


def as_table(rows: Iterable[Row]) -> list[str]:
    """Format the rows as a table in Markdown."""
    lines = ["| measurement | result | reference | ratio | goal |", "| --- | ---: | --- | ---: | --- |"]
    for row in rows:
        beside = row.beside if row.reference is None else f"{row.beside}: {short(row.reference)} {row.unit}"
        ratio = "" if row.ratio is None else f"{short(row.ratio)}x"
        lines.append(f"| {row.what} | {short(row.ours)} {row.unit} | {beside} | {ratio} | {row.goal} |")
    return lines


def short(number: float) -> str:
    """Format with three significant digits."""
    return f"{number:.0f}" if abs(number) >= 100 else f"{number:.3g}"
