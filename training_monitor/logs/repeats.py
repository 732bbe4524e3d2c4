"""Read the lines of a log, but of those that only replace the values of earlier ones only the newest. Pure.

A training prints the same line with other numbers, thousands of times. When one was read that taught its reader
nothing about how the log counts, others of its shape with the same totals, names and epochs teach nothing either, and
where a later one shows the same fields, their values are never asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from training_monitor.logs.events import NO_EVENTS, Events
from training_monitor.logs.parts import find_numbers_in, shows_progress
from training_monitor.logs.shapes import MOST_SHAPES, shapes_and_lines
from training_monitor.logs.text import Parts, clean_line, places_of

if TYPE_CHECKING:
    from training_monitor.logs.training_log import ProgressReader

Line = tuple[bytes, str]  # its shape, and itself
StepAndLoss = tuple[int | None, float | None]


class _Repeat(NamedTuple):
    """A line that was read, and what is asked of its repetitions.

    Attributes:
        fixed, texts: what reads the parts in which they are the same, and these.
        counter, loss: where their step and loss stand.
        most: the greatest step that teaches nothing.
        shown: the fields that it showed.
        events: those in it.
    """

    fixed: Callable[[str], object] | None
    texts: object
    counter: slice | None
    loss: slice | None
    most: float
    shown: frozenset[str]
    events: Events

    def read(self, line: str) -> StepAndLoss | None:
        """Return the step and the loss of a line of the same shape; None if it is no repetition."""
        if self.fixed and self.fixed(line) != self.texts:
            return None
        step = None
        if self.counter is not None and (step := int(line[self.counter].replace(",", ""))) > self.most:
            return None
        return step, None if self.loss is None else float(line[self.loss])


class Repeats:
    """What is known of the lines that repeat; kept from one part of a log to the next."""

    def __init__(self) -> None:
        self._known: dict[bytes, _Repeat | None] = {}
        self._once: set[bytes] = set()  # shapes of which one line was read
        self._skipped: list[tuple[frozenset[str], Line]] = []

    def read(
        self,
        reader: ProgressReader,
        text: str,
        events_in: Callable[[str, bytes], Events] = lambda piece, shape: NO_EVENTS,
    ) -> Iterator[tuple[Line, Events, StepAndLoss]]:
        """Read the next lines of a log; yield those that are not blank, with their events, step and loss.

        Their values are in the reader when all were read.
        """
        known, skipped = self._known, self._skipped
        for line in shapes_and_lines(text):
            shape, raw = line
            repeat = known.get(shape)
            if repeat is not None and (values := repeat.read(raw)):
                skipped.append((repeat.shown, line))
                yield line, repeat.events, values
                continue
            piece, of_piece, parts = clean_line(raw, shape)
            if piece:
                events = events_in(piece, of_piece)
                yield line, events, self._read(reader, line, (piece, of_piece, parts), events)
        self._finish(reader)

    def _read(
        self, reader: ProgressReader, line: Line, clean: tuple[str, bytes, Parts | None], events: Events
    ) -> StepAndLoss:
        (shape, raw), (piece, of_piece, parts) = line, clean
        found: Mapping[str, Any] = {}
        if shows_progress(piece, of_piece):
            self._finish(reader)
            learned = reader.learned
            found = reader.read_piece(piece, of_piece)
            if learned != reader.learned:
                self._known.clear()
                return found.get("step"), found.get("loss")
        if len(self._once) > MOST_SHAPES:
            self._once.clear()
            self._known.clear()
        if parts is not None and shape not in self._known:
            if shape in self._once:
                self._known[shape] = _find_repeat(raw, piece, parts, found, reader, events)
            self._once.add(shape)
        return found.get("step"), found.get("loss")

    def _finish(self, reader: ProgressReader) -> None:
        """Read the newest of the lines left out that show the same fields; all if one lacks a field."""
        if not self._skipped:
            return
        skipped, before = [*self._skipped], reader.copy() if len(self._skipped) > 1 else None
        self._skipped.clear()
        newest = dict(skipped)
        for shown in reversed(dict(reversed(skipped))):
            if _names(_read_again(reader, newest[shown])) != shown and before:
                reader.go_back(before)
                for _, line in skipped:
                    _read_again(reader, line)
                return


def _read_again(reader: ProgressReader, line: Line) -> Mapping[str, Any]:
    piece, shape, _ = clean_line(line[1], line[0])
    return reader.read_piece(piece, shape)


def _find_repeat(
    raw: str, piece: str, parts: Parts, found: Mapping[str, Any], reader: ProgressReader, events: Events
) -> _Repeat | None:
    """Return how repetitions are known of a line that showed these fields and taught nothing; None if they are not."""
    shown, most = _names(found), reader.most
    numbers = find_numbers_in(piece, reader.columns)
    if numbers is None or most is None or not numbers.shown <= shown or (numbers.counter and not shown):
        return None
    if (numbers.fractional and not reader.epochs.fractional) or not reader.epochs.learns_nothing_from(found, piece):
        return None
    step, loss = found.get("step"), found.get("loss")
    numbers = numbers.moved(places_of(parts))
    if numbers is None or events.save or events.sample or (events.message and not _is_no_number(raw, numbers.loss)):
        return None
    fixed = itemgetter(*numbers.fixed) if numbers.fixed else None
    repeat = _Repeat(
        fixed=fixed,
        texts=fixed and fixed(raw),
        counter=None if step is None else numbers.counter,
        loss=None if loss is None else numbers.loss,
        most=most,
        shown=shown,
        events=events,
    )
    return repeat if repr(repeat.read(raw)) == repr((step, loss)) else None


def _is_no_number(raw: str, loss: slice | None) -> bool:
    """Whether the loss is written as nan or inf, which is an error whatever else the line says."""
    return loss is not None and raw[loss][-1:].isalpha()


def _names(found: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the fields that have a value."""
    return frozenset([name for name, value in found.items() if value is not None])
