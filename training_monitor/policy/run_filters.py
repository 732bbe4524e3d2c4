"""Which runs are shown, and in which order. Pure: a selection is kept by the path of a run, never by its place."""

from __future__ import annotations

import re
from collections.abc import Sequence

from training_monitor.errors import SettingsError, closest
from training_monitor.policy.run_columns import COLUMNS
from training_monitor.policy.run_values import RunRow, Scalar

_DIGITS = re.compile(r"([0-9]{1,300})")  # the same file name has no more
NaturalKey = tuple[tuple[int, int, str], ...]


def natural_key(text: str) -> NaturalKey:
    """What to sort names by: `run 9` stands before `run 10`, and case only decides between equals.

    >>> sorted(["run10", "Run9", "run1"], key=natural_key)
    ['run1', 'Run9', 'run10']
    """
    parts = enumerate(_DIGITS.split(text.casefold()))
    return (*((0, int(part), "") if at % 2 else (1, 0, part) for at, part in parts if part), (-1, 0, text))


def filter_rows(rows: Sequence[RunRow], status: str | None, words: str) -> tuple[RunRow, ...]:
    """The rows of this status (None: any) in whose names all the words occur, in whatever case."""
    wanted = words.casefold().split()
    return tuple(
        row for row in rows if status in (None, row.status) and all(word in row.run.name.casefold() for word in wanted)
    )


def sort_rows(rows: Sequence[RunRow], column: str, descending: bool) -> tuple[RunRow, ...]:
    """Sort by the values of a column of COLUMNS; equals by name. What is not known stands last in both directions.

    Raises:
        SettingsError: there is no such column.
    """
    value_of = COLUMNS.get(column)
    if value_of is None:
        raise SettingsError("column", column, closest(column, tuple(COLUMNS)))
    named = sorted(rows, key=lambda row: natural_key(row.run.name))
    values = [(value_of(row), row) for row in named]
    known = [(_order(value), row) for value, row in values if not _is_unknown(value)]
    known.sort(key=lambda pair: pair[0], reverse=descending)
    return (*(row for _, row in known), *(row for value, row in values if _is_unknown(value)))


def _is_unknown(value: Scalar) -> bool:
    return value is None or value != value or value == ""


def _order(value: Scalar) -> tuple[float, NaturalKey]:
    """Numbers before texts, so that a column with both has an order too."""
    return (float("inf"), natural_key(value)) if isinstance(value, str) else (value or 0, ())
