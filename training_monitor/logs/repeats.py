"""Lines of a log that only replace the values of an earlier one: of these, the newest tells what all of them do. Pure.

A training prints the same line with other numbers, thousands of times. When one was read that taught its reader
nothing about how the log counts, others of its shape with the same totals, names and epochs teach nothing either, and
where a later one shows the same fields, their values are never asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from training_monitor.logs.job_progress import EpochCount
from training_monitor.logs.parts import find_numbers_in, shows_progress
from training_monitor.logs.text import clean_line

Line = tuple[bytes, str]  # its shape, and itself
StepAndLoss = tuple[int | None, float | None]


# Fields of `Progress` whose values decide how later lines are read
_LASTING = ("total_steps", "total_epochs", "epoch_steps", "epochs_planned", "steps_before", "finished")


def lasting(fields: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what of the fields of `Progress` decides how later lines are read."""
    unknown = fields.get("step") is None, fields.get("epoch_step") is None
    return (*map(fields.get, _LASTING), *unknown)


class Reader(Protocol):
    """What reads the pieces of a log one by one.

    Attributes:
        epochs: how the log counts.
        learned: what decides how later pieces are read; equal as long as nothing was learned.
        most: the greatest step that a piece may show without teaching anything; None if none may.
    """

    @property
    def epochs(self) -> EpochCount: ...
    @property
    def learned(self) -> object: ...
    @property
    def most(self) -> float | None: ...

    def read_piece(self, piece: str, shape: bytes) -> Mapping[str, Any]:
        """Read a piece; return the fields of `Progress` that it shows."""

    def state(self) -> Any:
        """Return all that a piece may change."""

    def go_back(self, state: Any) -> None:
        """Return to a former state."""


class _Repeat(NamedTuple):
    """A line that was read, and what is asked of its repetitions.

    Attributes:
        fixed: where they have the same text.
        counter, loss: where their step and loss stand.
        most: the greatest step that teaches nothing.
        shown: the fields that it showed.
    """

    fixed: tuple[tuple[slice, str], ...]
    counter: slice | None
    loss: slice | None
    most: float
    shown: frozenset[str]

    def read(self, line: str) -> StepAndLoss | None:
        """Return the step and the loss of a line of the same shape, as far as they are asked; None if it is none."""
        fixed, counter, loss_at, most, _ = self
        for at, text in fixed:
            if line[at] != text:
                return None
        step = None
        if counter is not None and (step := int(line[counter])) > most:
            return None
        if loss_at is None:
            return step, None
        loss = float(line[loss_at])
        return None if loss == math.inf else (step, loss)


class Repeats:
    """Reads the lines of a text, but of those that repeat one another only the newest."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._known: dict[bytes, _Repeat | None] = {}
        self._once: set[bytes] = set()  # shapes of which one line was read
        self._skipped: list[Line] = []

    def skip(self, line: Line) -> StepAndLoss | None:
        """Leave a line out if it repeats an earlier one; return its step and its loss, which is None if it shows none.

        The step may be None if the loss is.
        """
        shape, raw = line
        repeat = self._known.get(shape)
        found = repeat and repeat.read(raw)
        if found:
            self._skipped.append(line)
        return found

    def read(self, line: Line, piece: str, shape: bytes, start: int | None) -> Mapping[str, Any]:
        """Read a line that was not left out; return the fields that it shows.

        Args:
            piece, shape: of its clean text.
            start: where that begins in the line; None to read all lines of its shape.
        """
        found: Mapping[str, Any] = {}
        if shows_progress(piece, shape):
            self.finish()
            learned = self._reader.learned
            found = self._reader.read_piece(piece, shape)
            if learned != self._reader.learned:
                self._known.clear()
                return found
        if line[0] not in self._once:
            self._once.add(line[0])
        elif line[0] not in self._known:
            self._known[line[0]] = None if start is None else _find_repeat(line[1], start, found, self._reader)
        return found

    def finish(self) -> None:
        """Read the newest of the lines left out of each shape; all if one lacks a field that others may show."""
        skipped, self._skipped = self._skipped, []
        if not skipped:
            return
        newest, in_order, before = dict(skipped), reversed(dict(reversed(skipped))), self._reader.state()
        for shape in in_order:
            repeat = self._known[shape]
            if repeat is None or _names(self._read((shape, newest[shape]))) != repeat.shown:
                self._reader.go_back(before)
                for line in skipped:
                    self._read(line)
                return

    def _read(self, line: Line) -> Mapping[str, Any]:
        piece, shape, _ = clean_line(line[1], line[0])
        return self._reader.read_piece(piece, shape)


def _find_repeat(line: str, start: int, found: Mapping[str, Any], reader: Reader) -> _Repeat | None:
    """Return how repetitions are known of a line that showed these fields and taught nothing; None if they are not."""
    piece, shown = line[start:], _names(found)
    numbers, most = find_numbers_in(piece), reader.most
    if numbers is None or most is None or not numbers.shown <= shown or (numbers.counter and not shown):
        return None
    if (numbers.fractional and not reader.epochs.fractional) or not reader.epochs.learns_nothing_from(found, piece):
        return None
    step, loss = found.get("step"), found.get("loss")
    numbers = numbers.moved(start)
    repeat = _Repeat(
        fixed=tuple([(at, line[at]) for at in numbers.fixed]),
        counter=None if step is None else numbers.counter,
        loss=None if loss is None else numbers.loss,
        most=most,
        shown=shown,
    )
    return repeat if repeat.read(line) == (step, loss) else None


def _names(found: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the fields that have a value."""
    return frozenset([name for name, value in found.items() if value is not None])
