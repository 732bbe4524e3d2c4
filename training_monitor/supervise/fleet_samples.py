"""The last samples of one member, in memory that is taken once and does not grow."""

from __future__ import annotations

import sys
import threading
from array import array

from training_monitor.policy.fleet_values import REPORTED, FleetSample

_NOT_KNOWN = -sys.float_info.max  # nan is a value, that of a loss
_WIDTH = 1 + len(REPORTED)


class LastSamples:
    """At most `size` samples; the oldest give way to new ones."""

    def __init__(self, size: int) -> None:
        self._size, self._count = size, 0
        self._numbers = array("d", bytes(8 * _WIDTH * size))
        self._statuses: list[str | None] = [None] * size
        self._lock = threading.Lock()

    def add(self, sample: FleetSample) -> None:
        """Take in the newest one."""
        values = (sample.values.get(name) for name in REPORTED)
        row = array("d", (sample.timestamp, *(_NOT_KNOWN if each is None else each for each in values)))
        with self._lock:
            at = self._count % self._size
            self._numbers[at * _WIDTH : (at + 1) * _WIDTH] = row
            self._statuses[at] = sample.status
            self._count += 1

    def all(self) -> tuple[FleetSample, ...]:
        """Oldest first."""
        with self._lock:
            count, numbers, statuses = self._count, self._numbers[:], self._statuses[:]
        places = (number % self._size for number in range(max(0, count - self._size), count))
        return tuple(_read(numbers[at * _WIDTH : (at + 1) * _WIDTH], statuses[at]) for at in places)


def _read(row: array[float], status: str | None) -> FleetSample:
    values = {name: None if each == _NOT_KNOWN else each for name, each in zip(REPORTED, row[1:])}
    return FleetSample(row[0], values, status)
