"""The last samples and the last log lines of one member, in memory that does not grow."""

from __future__ import annotations

import re
import sys
import threading
from array import array
from collections import deque

from training_monitor.policy.fleet_values import REPORTED, FleetSample
from training_monitor.policy.training_metrics import KEPT_LOGS

_NOT_KNOWN = -sys.float_info.max  # nan is a value, that of a loss
_WIDTH = 1 + len(REPORTED)
LINE_LENGTH = 1000
_PIECE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")


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


class LastLines:
    """The last lines of a log, each once; of a line drawn over by carriage returns the last drawing."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT_LOGS)
        self._drawn, self._partial, self._hidden = False, "", ""

    def add(self, text: str, partial: str = "") -> None:
        """Take in what is new, and the line that is not finished."""
        for found in _PIECE.finditer(text):
            line, end = found[1][:LINE_LENGTH], found[2]
            if line.strip():
                if self._drawn and self._lines:
                    self._lines.pop()
                self._lines.append(line)
            if line.strip() or end in ("\n", "\r\n"):
                self._drawn = end == "\r"
        self._partial = last_drawing(partial)[:LINE_LENGTH]

    def clear(self) -> None:
        """Forget them; the line that is not finished is shown again when it has changed."""
        self._lines.clear()
        self._drawn, self._hidden = False, self._partial

    def shown(self) -> tuple[str, ...]:
        """Oldest first."""
        lines = tuple(self._lines)
        if not self._partial.strip() or self._partial == self._hidden:
            return lines
        return (*(lines[:-1] if self._drawn else lines), self._partial)[-KEPT_LOGS:]


def last_drawing(line: str) -> str:
    """What is seen of a line with carriage returns in it; one at its end stays."""
    drawn = line.rstrip("\r")
    return drawn.rpartition("\r")[2] + line[len(drawn) :][:1]
