"""The last samples of a member, and the last lines of its log, in bounded memory. Pure."""

from __future__ import annotations

import sys
import threading
from array import array
from collections import deque

from training_monitor.core.regex import regex
from training_monitor.fleet.metrics import KEPT_LOGS
from training_monitor.fleet.values import REPORTED, FleetSample

LINE_LENGTH = 1000
_NOT_KNOWN = -sys.float_info.max  # nan is a valid value of a loss
_PIECE = regex(r"([^\r\n]*)(\r\n|\r|\n|\Z)")


class LastSamples:
    """Samples of the last `seconds`, at most `size`; of more, every second one is dropped, but never the newest.

    There is a column for each value that was ever known, so that a member takes some 20 kB.
    """

    def __init__(self, size: int, seconds: float) -> None:
        self._size, self._seconds, self._gap = size, seconds, 0.0
        self._times, self._status = array("d"), list[str | None]()
        self._columns: dict[str, array[float]] = {}
        self._lock = threading.Lock()

    def add(self, sample: FleetSample) -> None:
        """Add the newest sample."""
        with self._lock:
            times = self._times
            if len(times) > 1 and 0.0 <= times[-1] - times[-2] < self._gap:
                self._keep(slice(len(times) - 1))
            self._append(sample)
            oldest = sample.timestamp - self._seconds
            self._keep(slice(next(at for at, each in enumerate(self._times) if each >= oldest), None))
            if len(self._times) > self._size:
                self._keep(slice((len(self._times) - 1) % 2, None, 2))
                self._gap = 0.75 * (self._times[-1] - self._times[0]) / len(self._times)

    def _append(self, sample: FleetSample) -> None:
        values = {name: sample.values.get(name) for name in REPORTED}
        for name, value in values.items():
            if value is not None and name not in self._columns:
                self._columns[name] = array("d", [_NOT_KNOWN]) * len(self._times)
        for name, column in self._columns.items():
            value = values[name]
            column.append(_NOT_KNOWN if value is None else value)
        self._times.append(sample.timestamp)
        self._status.append(sample.status and sys.intern(sample.status))

    def _keep(self, kept: slice) -> None:
        if kept == slice(0, None):
            return
        self._times, self._status = self._times[kept], self._status[kept]
        self._columns = {name: column[kept] for name, column in self._columns.items()}

    def values(self, name: str) -> list[float | None]:
        """Return one value of all samples, oldest first."""
        with self._lock:
            column = self._columns.get(name)
            if column is None:
                return [None] * len(self._times)
            return [None if value == _NOT_KNOWN else value for value in column]

    def all(self) -> tuple[FleetSample, ...]:
        """Return the samples, oldest first."""
        with self._lock:
            times, status = self._times[:], self._status[:]
            rows = [dict.fromkeys(REPORTED) for _ in times]
            for name, column in self._columns.items():
                for row, value in zip(rows, column):
                    row[name] = None if value == _NOT_KNOWN else value
        return tuple(map(FleetSample, times, rows, status))


class LastLines:
    """The last lines of a log; of a line redrawn with carriage returns only the last drawing."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT_LOGS)
        self._drawn, self._partial, self._hidden = False, "", ""

    def add(self, text: str, partial: str = "") -> None:
        """Add new text, and the unfinished last line."""
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
        """Forget the lines; the unfinished line is shown again once it has changed."""
        self._lines.clear()
        self._drawn, self._hidden = False, self._partial

    def shown(self) -> tuple[str, ...]:
        """Return the lines, oldest first."""
        lines = tuple(self._lines)
        if not self._partial.strip() or self._partial == self._hidden:
            return lines
        return (*(lines[:-1] if self._drawn else lines), self._partial)[-KEPT_LOGS:]


def last_drawing(line: str) -> str:
    """Return what is visible of a line with carriage returns in it; one at its end stays."""
    drawn = line.rstrip("\r")
    return drawn.rpartition("\r")[2] + line[len(drawn) :][:1]
