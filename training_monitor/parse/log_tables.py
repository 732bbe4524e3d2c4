"""Tables that a log prints row by row under one header: fastai, spaCy, skorch, the Trainer's table in notebooks."""

from __future__ import annotations

import re

from training_monitor.parse.log_text import in_known_words

MOST_COLUMNS = 40
_COUNTERS = re.compile(r"(?:epoch|step|iter|batch)(?: (?:epoch|step|iter|batch))+")
_HEADER = re.compile(r"[\s|#]{0,20}(?:epoch|step|iter|iteration|round|e|it)s?(?:[\s|]{1,40}|,)[^:=]{1,400}")
_COLUMN_GAP = re.compile(r"[|,]|\s{2,40}")
_CELL = re.compile(
    r"-?\d[\d,]{0,15}(?:\.\d{0,20})?(?:e[+-]?\d{1,3})?%?|\d{1,6}(?::\d\d){1,2}"
    r"|\d{1,6}(?:\.\d{1,3})?[smh]|nan|-?inf|no log|-"
)
_SHORT_NAMES = {"e": "epoch", "#": "step", "it": "step", "iter": "step", "iteration": "step", "round": "step"}


def read_header(line: str) -> tuple[str, ...] | None:
    """The names of the columns when a lower-case line is the header of a table whose first column counts."""
    if not _HEADER.fullmatch(line) or "loss" not in line:
        return None
    apart = tuple(name.strip() for name in _COLUMN_GAP.split(line.strip(" |#")) if name)
    if apart and _COUNTERS.fullmatch(apart[0]):
        apart = (*apart[0].split(), *apart[1:])
    names = apart if len(apart) > 2 else tuple(in_known_words(line).replace("|", " ").split())
    if not 2 <= len(names) <= MOST_COLUMNS or any(_CELL.match(name) for name in names):
        return None
    return tuple(_SHORT_NAMES.get(name, name) for name in names)


def row_as_pairs(names: tuple[str, ...], line: str) -> str | None:
    """A row of the table with the name before each number, as other loggers write it; None for any other line."""
    cells = line.replace("|", " ").split(maxsplit=MOST_COLUMNS)
    cells = cells if len(cells) > 1 else line.split(",", MOST_COLUMNS)
    if len(cells) != len(names) or not cells[0].isdigit() or not all(map(_CELL.fullmatch, cells)):
        return None
    return ", ".join(f"{name}: {cell}" for name, cell in zip(names, cells, strict=True))
