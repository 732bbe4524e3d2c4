"""Read the lines of a log, but of those that only replace the values of earlier ones only the newest. Pure.

A training prints the same line with other numbers, thousands of times. When one was read that taught its reader
nothing about how the log counts, others of its shape with the same totals, names and epochs teach nothing either, and
where a later one shows the same fields, their values are never asked for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from training_monitor.logs.events import NO_EVENTS, Events
from training_monitor.logs.job_progress import EpochCount
from training_monitor.logs.parts import find_numbers_in, shows_progress
from training_monitor.logs.shapes import MOST_SHAPES, split_lines
from training_monitor.logs.text import Parts, clean_line, places_of

Line = tuple[bytes, str]  # its shape, and itself
StepAndLoss = tuple[int | None, float | None]


class Reader(Protocol):
    """What `ProgressReader` has for this."""

    epochs: EpochCount
    columns: tuple[str, ...] | None

    @property
    def learned(self) -> object: ...
    @property
    def most(self) -> float | None: ...
    def read_piece(self, piece: str, shape: bytes) -> Mapping[str, Any]: ...
    def copy(self) -> Any: ...
    def go_back(self, before: Any) -> None: ...


class _Repeat(NamedTuple):
    """A line that was read, and what is asked of its repetitions.

    Attributes:
        fixed, texts: what reads the parts in which they are the same, and these.
        counter, loss: where their step and loss stand; `bad_loss`: nan or inf, which is the same in all of them.
        most: the greatest step that teaches nothing.
        shown: the fields that it showed.
        events: those in it; None where nobody has to look at it.
    """

    fixed: Callable[[str], object] | None
    texts: object
    counter: slice | None
    loss: slice | None
    bad_loss: float | None
    most: float
    shown: frozenset[str]
    events: Events | None

    def read(self, line: str) -> StepAndLoss | None:
        """Return the step and the loss of a line of the same shape; None if it is no repetition."""
        if self.fixed and self.fixed(line) != self.texts:
            return None
        step = None
        if self.counter and (step := int(line[self.counter].replace(",", ""))) > self.most:
            return None
        return step, float(line[self.loss]) if self.loss else self.bad_loss


_NOTHING = _Repeat(None, None, None, None, None, math.inf, frozenset(), None)


class Repeats:
    """What is known of the lines that repeat; kept from one part of a log to the next."""

    def __init__(self) -> None:
        self._known: dict[bytes, _Repeat | None] = {}

    def read(
        self,
        reader: Reader,
        text: str,
        found: list[StepAndLoss],
        events_in: Callable[[str, bytes], Events] = lambda piece, shape: NO_EVENTS,
    ) -> Iterator[tuple[Line, Events]]:
        """Read the next lines of a log; add the step and loss of each to `found`, but of blank ones.

        Yields those that tell of events or whose loss is no number, each when it is the last in `found`. Their values
        are in the reader when all were read.
        """
        if len(self._known) > MOST_SHAPES:
            self._known.clear()
        known, (shapes, lines) = self._known, split_lines(text)
        newest, since = dict[bytes, int](), 0  # where lines left out stand, by shape; and after which line
        for at, (shape, raw) in enumerate(zip(shapes, lines, strict=True)):
            repeat = known.get(shape)
            if repeat and (values := repeat.read(raw)):
                newest[shape] = at
                found.append(values)
                if repeat.events:
                    yield (shape, raw), repeat.events
                continue
            piece, of_piece, parts = clean_line(raw, shape)
            if not piece:
                continue
            shown: Mapping[str, Any] = {}
            events, tells = events_in(piece, of_piece), shows_progress(piece, of_piece)
            if not tells and events is NO_EVENTS:
                known[shape] = _NOTHING
                found.append((None, None))
                continue
            if tells:
                self._finish(reader, newest, shapes, lines, range(since, at))
                newest.clear()
                since, learned = at + 1, reader.learned
                shown = reader.read_piece(piece, of_piece)
                if learned != reader.learned:
                    known.clear()
                    parts = None
            if parts is not None and shape not in known:
                known[shape] = _find_repeat(raw, piece, parts, shown, reader, events)
            loss = shown.get("loss")
            is_bad = loss is not None and not math.isfinite(loss)
            found.append((shown.get("step"), same_nan(loss) if is_bad else loss))
            if is_bad or events is not NO_EVENTS:
                yield (shape, raw), events
        self._finish(reader, newest, shapes, lines, range(since, len(lines)))

    def _finish(
        self, reader: Reader, newest: dict[bytes, int], shapes: list[bytes], lines: list[str], skipped: range
    ) -> None:
        """Read the newest of the lines left out that show the same fields; all if one lacks a field."""
        if not newest:
            return
        if len(skipped) == 1:
            newest.clear()
            _read_again(reader, shapes[skipped[0]], lines[skipped[0]])
            return
        last, before = dict[frozenset[str], int](), reader.copy()
        for shape, at in newest.items():
            if repeat := self._known[shape]:
                last[repeat.shown] = max(at, last.get(repeat.shown, 0))
        newest.clear()
        for shown, at in sorted(last.items(), key=itemgetter(1)):
            if _names(_read_again(reader, shapes[at], lines[at])) != shown:
                reader.go_back(before)
                for each in skipped:
                    _read_again(reader, shapes[each], lines[each])
                return


def _read_again(reader: Reader, shape: bytes, raw: str) -> Mapping[str, Any]:
    piece, of_piece, _ = clean_line(raw, shape)
    return reader.read_piece(piece, of_piece)


def _find_repeat(
    raw: str, piece: str, parts: Parts, found: Mapping[str, Any], reader: Reader, events: Events
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
    if numbers is None or events.save or events.sample:
        return None
    fixed, loss_at = itemgetter(*numbers.fixed) if numbers.fixed else None, None if loss is None else numbers.loss
    is_bad = loss_at is not None and raw[loss_at][-1:].isalpha()  # an error whatever else the line says
    if (events.message and not is_bad) or (loss_at and not is_bad and _may_overflow(raw[loss_at])):
        return None
    repeat = _Repeat(
        fixed=fixed,
        texts=fixed and fixed(raw),
        counter=None if step is None else numbers.counter,
        loss=None if is_bad else loss_at,
        bad_loss=same_nan(loss) if is_bad else None,
        most=most,
        shown=shown,
        events=None if events is NO_EVENTS and not is_bad else events,
    )
    return repeat if repr(repeat.read(raw)) == repr((step, loss)) else None


def _may_overflow(number: str) -> bool:
    """Whether a number of the same shape is infinite."""
    return math.isinf(float(re.sub(r"\d", "9", number)))


def same_nan(loss: float | None) -> float | None:
    """Return the loss; nan is always the same, so that it equals itself in a tuple."""
    return math.nan if loss is not None and math.isnan(loss) else loss


def _names(found: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the fields that have a value."""
    return frozenset([name for name, value in found.items() if value is not None])
