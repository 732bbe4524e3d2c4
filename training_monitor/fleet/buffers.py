"""The last samples of a member, and the last lines of its log, in bounded memory. Pure."""

from __future__ import annotations

import threading
from array import array
from collections import deque

from training_monitor.core.columns import Columns
from training_monitor.core.regex import regex
from training_monitor.fleet.metrics import KEPT_LOGS
from training_monitor.fleet.rows import clean_text
from training_monitor.fleet.values import REPORTED, FleetSample

LINE_LENGTH, MOST_LINE = 1000, 500  # characters of a line: read, and shown
_COLUMNS = ("status", *REPORTED)
_PIECE = regex(r"([^\r\n]*)(\r\n|\r|\n|\Z)")


class LastSamples:
    """Samples of the last `seconds`, at most `size`; of more, every second one is dropped, but never the newest."""

    def __init__(self, size: int, seconds: float) -> None:
        self._size, self._seconds, self._gap = size, seconds, 0.0
        self._times, self._rows = array("d"), Columns(_COLUMNS)
        self._lock = threading.Lock()

    def add(self, sample: FleetSample) -> None:
        """Add the newest sample."""
        with self._lock:
            times = self._times
            if len(times) > 1 and 0.0 <= times[-1] - times[-2] < self._gap:
                self._keep(slice(len(times) - 1))
            values = (None if (value := sample.values.get(name)) is None else float(value) for name in REPORTED)
            self._times.append(sample.timestamp)
            self._rows.append([sample.status, *values])
            oldest = sample.timestamp - self._seconds
            if self._times[0] < oldest:
                self._keep(slice(next(at for at, each in enumerate(self._times) if each >= oldest), None))
            if len(self._times) > self._size:
                self._keep(slice((len(self._times) - 1) % 2, None, 2))
                self._gap = 0.75 * (self._times[-1] - self._times[0]) / len(self._times)

    def _keep(self, kept: slice) -> None:
        self._times = self._times[kept]
        self._rows.keep(kept)

    def values(self, name: str) -> list[float | None]:
        """Return one value of all samples, oldest first."""
        with self._lock:
            return list(self._rows.column(name))

    def all(self) -> tuple[FleetSample, ...]:
        """Return the samples, oldest first."""
        with self._lock:
            times, (status, *values) = self._times[:], self._rows.all()
        return tuple(map(FleetSample, times, (dict(zip(REPORTED, row)) for row in zip(*values)), status))


class LastLines:
    """The last lines of a log; of a line redrawn with carriage returns only the last drawing."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT_LOGS)
        self._drawn, self._partial, self._hidden = False, "", ""

    def add(self, text: str, partial: str = "") -> None:
        """Add new text, and the unfinished last line."""
        for found in _PIECE.finditer(text):
            line, end = clean_text(found[1], MOST_LINE), found[2]
            if line.strip():
                if self._drawn and self._lines:
                    self._lines.pop()
                self._lines.append(line)
            if line.strip() or end in ("\n", "\r\n"):
                self._drawn = end == "\r"
        self._partial = clean_text(last_drawing(partial), MOST_LINE)

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
