"""The columns of a table of runs (titles and unformatted values), and the filtering and sorting of its rows. Pure.

A selection is kept by the path of a run, never by its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from training_monitor.core.errors import SettingsError, closest
from training_monitor.core.regex import regex
from training_monitor.runs.values import LOSSES, Estimate, RunRow, Scalar

MIB = 2.0**20
_WORDED = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}  # JSON has no numbers for them
_DIGITS = regex(r"([0-9]{1,300})")  # a file name has no more
NaturalKey = tuple[tuple[int, int, str], ...]


def loss_of(row: RunRow) -> float | None:
    """Return the newest loss of a run, by the first of LOSSES: nan and infinities are values, None is unknown."""
    for name in LOSSES:
        loss = row.run.metrics.get(name)
        if isinstance(loss, str):
            loss = _WORDED.get(loss)
        if loss is not None and not isinstance(loss, bool):
            return float(loss)
    return None


def _estimate(part: Callable[[RunRow], Estimate], title: str) -> dict[str, Callable[[RunRow], Scalar]]:
    return {
        f"{title} Elapsed": lambda row: part(row).elapsed,
        f"{title} Remaining": lambda row: part(row).remaining,
        f"{title} Total": lambda row: part(row).total,
    }


# Title -> value. Times in seconds, CPU in per cent of one core, RAM in MB of 2**20 bytes, GPU in MiB, Rate in batches
# a second; None is unknown.
DOCUMENTED: Mapping[str, Callable[[RunRow], Scalar]] = {
    "Run Name": lambda row: row.run.name,
    "Status": lambda row: row.status,
    "Phase": lambda row: row.run.phase,
    "Epoch": lambda row: row.run.epoch,
    "Batch": lambda row: row.run.batch,
    **_estimate(lambda row: row.run.run, "Run"),
    **_estimate(lambda row: row.run.epoch_time, "Epoch"),
    **_estimate(lambda row: row.run.training, "Train"),
    "Val Time": lambda row: row.run.validation_seconds,
    **_estimate(lambda row: row.run.validation, "Val"),
    "CPU": lambda row: row.cpu_percent,
    "RAM": lambda row: None if row.rss_bytes is None else row.rss_bytes / MIB,
    "GPU": lambda row: row.gpu_mib,
    "Procs": lambda row: row.processes,
    "Threads": lambda row: row.threads,
    "PID": lambda row: row.run.process.pid if row.run.process else None,
    "Wandb URL": lambda row: row.run.wandb_url,
}
ADDED: Mapping[str, Callable[[RunRow], Scalar]] = {
    "Rate": lambda row: row.rate,
    "Val Batch": lambda row: row.run.validation_batch,
    "Loss": loss_of,
    "ETA": lambda row: row.eta_seconds,
    "State": lambda row: None if row.verdict.state == "unknown" else row.verdict.state,
}
COLUMNS: Mapping[str, Callable[[RunRow], Scalar]] = {**DOCUMENTED, **ADDED}


def natural_key(text: str) -> NaturalKey:
    """Return a sort key for names: `run 9` comes before `run 10`, and case only decides between equals.

    >>> sorted(["run10", "Run9", "run1"], key=natural_key)
    ['run1', 'Run9', 'run10']
    """
    parts = enumerate(_DIGITS.split(text.casefold()))
    return (*((0, int(part), "") if at % 2 else (1, 0, part) for at, part in parts if part), (-1, 0, text))


def filter_rows(rows: Sequence[RunRow], status: str | None, words: str) -> tuple[RunRow, ...]:
    """Return the rows of this status (None: any) whose names contain all the words, ignoring case."""
    wanted = words.casefold().split()
    return tuple(
        row for row in rows if status in (None, row.status) and all(word in row.run.name.casefold() for word in wanted)
    )


def sort_rows(rows: Sequence[RunRow], column: str, descending: bool) -> tuple[RunRow, ...]:
    """Sort by the values of a column of COLUMNS; equals by name. Unknown values come last in both directions.

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
    """Sort numbers before texts, so that a mixed column has an order too."""
    return (float("inf"), natural_key(value)) if isinstance(value, str) else (value or 0, ())
