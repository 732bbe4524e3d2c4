"""Lines of a log that only replace the values of an earlier one: of these, the newest tells what all of them do. Pure.

A training prints the same line with other numbers, thousands of times. When one was read that taught nothing about how
the log counts, others of its shape with the same totals, names and epochs teach nothing either, and where a later one
shows the same fields, their values are never asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from training_monitor.logs.job_progress import EpochCount
from training_monitor.logs.training_log import find_numbers_in

StepAndLoss = tuple[int | None, float]


class Repeat(NamedTuple):
    """A line that was read, and what is asked of its repetitions.

    Attributes:
        fixed: where they have the same text.
        counter, loss: where their step and loss stand.
        most: the greatest step that leaves the known total as it is.
        shown: the fields that it showed.
    """

    fixed: tuple[tuple[slice, str], ...]
    counter: slice | None
    loss: slice | None
    most: float
    shown: frozenset[str]

    def read(self, line: str) -> StepAndLoss | None:
        """Return the step and the loss of a line of the same shape, None and nan if not asked; None if it is none."""
        fixed, counter, loss_at, most, _ = self
        for at, text in fixed:
            if line[at] != text:
                return None
        step = None
        if counter is not None and (step := int(line[counter])) > most:
            return None
        loss = math.nan if loss_at is None else float(line[loss_at])
        return None if loss == math.inf else (step, loss)


def find_repeat(
    line: str, start: int, found: Mapping[str, Any], newest: Mapping[str, Any], epochs: EpochCount
) -> Repeat | None:
    """Return how repetitions of a line are known that taught nothing; None if they are not.

    Args:
        start: where the clean line begins.
        found, newest: the fields of `Progress` that it showed, and those of the log by now.
    """
    piece, shown = line[start:], shown_in(found)
    numbers = find_numbers_in(piece)
    if numbers is None or not numbers.shown <= shown or (numbers.counter and not shown) or newest["finished"]:
        return None
    if (numbers.fractional and not epochs.fractional) or not epochs.learns_nothing_from(found, piece):
        return None
    step, loss, total = found.get("step"), found.get("loss"), found.get("total_steps")
    step = None if loss is None and total is not None else step
    numbers = numbers.moved(start)
    repeat = Repeat(
        fixed=tuple([(at, line[at]) for at in numbers.fixed]),
        counter=None if step is None else numbers.counter,
        loss=None if loss is None else numbers.loss,
        most=math.inf if total is not None else newest["total_steps"] or math.inf,
        shown=shown,
    )
    return repeat if repeat.read(line) == (step, math.nan if loss is None else loss) else None


def shown_in(found: Mapping[str, Any]) -> frozenset[str]:
    """Return the fields that have a value."""
    return frozenset([name for name, value in found.items() if value is not None])
