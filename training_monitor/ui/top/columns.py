"""The columns that a person chose for `top`, kept in the state folder from one start to the next."""

from __future__ import annotations

import os

from training_monitor.core.errors import StateError, TrainingMonitorError
from training_monitor.core.frozen import dataclass
from training_monitor.core.records import format_record, read_record
from training_monitor.core.settings import state_dir
from training_monitor.core.store_files import ELSEWHERE, check_file, make_private
from training_monitor.runs.files import read_text, remove_left_beside, write_atomically

_FILE = "top_columns.json"
_MAX_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """The titles of the columns that are not shown: one of a later version is shown until it is hidden."""

    hidden: tuple[str, ...] = ()


def columns_path() -> str:
    """Return where the choice is kept."""
    return os.path.join(state_dir(), _FILE)


def load_hidden_columns() -> frozenset[str]:
    """Return the titles of the hidden columns; none where nobody chose any.

    Raises:
        TrainingMonitorError: the file cannot be read, is damaged, or could have been written by others.
    """
    path = columns_path()
    try:
        check_file(path, os.lstat(path))
        text = read_text(path, _MAX_BYTES)
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror}", hint=ELSEWHERE) from error
    try:
        return frozenset(read_record(ColumnChoice, text).hidden)
    except TrainingMonitorError as error:
        raise StateError(f"{path} cannot be read: {error.what}", hint="choose the columns again") from error


def keep_hidden_columns(hidden: frozenset[str]) -> str:
    """Write the titles of the hidden columns, and return the path of the file. Raises StateError if it cannot."""
    path = columns_path()
    make_private(os.path.dirname(path))
    try:
        write_atomically(path, format_record(ColumnChoice(tuple(sorted(hidden)))), mode=0o600)
        remove_left_beside(path)
    except OSError as error:
        raise StateError(f"{path} cannot be written: {error.strerror}", hint=ELSEWHERE) from error
    return path
