"""RunCsv: write what `top` sees of runs to CSV files (RFC 4180), for statistics and spreadsheets.

`RUN_matrix.csv` has a run's table columns, one row per look; `RUN_overall.csv` the usage of all runs at these times,
and the limits; `RUN_history.csv` the history of its metrics. A row is appended by one write, so that a process that
dies leaves whole rows and at most one partial row; that is cut off before the next append.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone

from training_monitor.core.errors import Hint, SettingsError, TrainingMonitorError
from training_monitor.core.shown import shown_cell
from training_monitor.runs.files import write_atomically
from training_monitor.runs.rows import IN_FILES, MIB
from training_monitor.runs.values import (
    CANCELED,
    FAILED,
    FINISHED,
    KILLED,
    MetricHistory,
    Run,
    RunRow,
    RunsSnapshot,
    Scalar,
)

ENDED = (FINISHED, FAILED, CANCELED, KILLED)
_RAW = ("Rate", "Loss")  # all other numbers get three decimals
_MOST_TEXT, _MOST_NAME = 500, 120  # characters of a cell, bytes of a file name
_PIECE = 65536
_OVERALL: Mapping[str, Callable[[RunsSnapshot, RunRow], Scalar]] = {
    "Overall_CPU": lambda snapshot, row: snapshot.usage.cpu_percent,
    "Overall_RAM": lambda snapshot, row: _megabytes(snapshot.usage.rss_bytes),
    "Overall_GPU": lambda snapshot, row: snapshot.usage.gpu_mib,
    "Max_CPU": lambda snapshot, row: None if snapshot.usage.max_cores is None else snapshot.usage.max_cores * 100.0,
    "Max_RAM": lambda snapshot, row: _megabytes(snapshot.usage.max_rss_bytes),
    "Max_GPU": lambda snapshot, row: snapshot.usage.max_gpu_mib,
    "Run_CPU": lambda snapshot, row: row.cpu_percent,
    "Run_RAM": lambda snapshot, row: _megabytes(row.rss_bytes),
    "Run_GPU": lambda snapshot, row: row.gpu_mib,
}
MATRIX_HEADER = ("Timestamp", *(column.title for column in IN_FILES))
OVERALL_HEADER = ("Timestamp", *_OVERALL)
HISTORY_HEADER = ("Metric", "Step", "Value")


class RunCsv:
    """The writer of the files of each run in `folder`, which is created if it does not exist.

    Units: seconds, per cent of one core, MB of 2**20 bytes, MiB of GPU memory, batches a second. An empty cell is
    unknown. A run that has ended gets one more row, and then none.

    Raises:
        SettingsError: the folder cannot be made.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._names: dict[str, str] = {}  # by the path of the run's file
        self._ready: set[str] = set()  # runs whose files are known to be ready for appending
        self._ended: set[str] = set()
        self._histories: dict[str, Mapping[str, MetricHistory]] = {}  # as last written
        self._told: set[int | None] = set()
        self._seen_at: float | None = None
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise SettingsError("csv_dir", folder, f"a writable folder ({error.strerror})") from error

    def write(self, snapshot: RunsSnapshot) -> None:
        """Append a row for each run.

        Nothing is written for a failed look, whose rows are old, or for a look that was already written.

        Raises:
            TrainingMonitorError: rows could not be written. An error of one kind is raised once until writing succeeds
                again: the other rows are written, and the next call tries all of them.
        """
        if snapshot.error is not None or snapshot.timestamp == self._seen_at:
            return
        self._seen_at = snapshot.timestamp
        failures: dict[int | None, OSError] = {}
        for row in snapshot.rows:
            try:
                self._write_run(row, snapshot)
            except OSError as error:
                self._ready.discard(row.run.path)
                failures.setdefault(error.errno, error)
        news, self._told = failures.keys() - self._told, set(failures)
        if news:
            errors = [failure for kind, failure in failures.items() if kind in news]
            what = "; ".join(f"{each.filename or self.folder}: {each.strerror or each}" for each in errors)
            hint = Hint("free disk space, or use another folder: {csv_dir=DIR}")
            raise TrainingMonitorError(f"rows could not be written: {what}", hint=hint)

    def _write_run(self, row: RunRow, snapshot: RunsSnapshot) -> None:
        run, has_ended = row.run, row.status in ENDED
        if has_ended and run.path in self._ended:
            return
        matrix, overall = (os.path.join(self.folder, f"{self._name(run)}_{kind}.csv") for kind in ("matrix", "overall"))
        time = _moment(snapshot.timestamp)
        values = _line((time, *(_cell(each.title, each.value(row) if each.value else None) for each in IN_FILES)))
        if run.path not in self._ready:
            last = _make_ready(matrix, _line(MATRIX_HEADER))
            _make_ready(overall, _line(OVERALL_HEADER))
            self._ready.add(run.path)
            if has_ended and _but_time(last) == _but_time(values):  # written before this program was restarted
                self._ended.add(run.path)
                return
        _append(matrix, _line(MATRIX_HEADER), values)
        if run.history and run.history != self._histories.get(run.path):
            write_atomically(os.path.join(self.folder, f"{self._name(run)}_history.csv"), _history(run))
            self._histories[run.path] = run.history
        uses = (_cell(title, of(snapshot, row)) for title, of in _OVERALL.items())
        _append(overall, _line(OVERALL_HEADER), _line((time, *uses)))
        (self._ended.add if has_ended else self._ended.discard)(run.path)

    def _name(self, run: Run) -> str:
        name = self._names.get(run.path)
        if name is None:
            name = safe_name(run.name)
            if name in self._names.values():
                name = f"{name}-{_digest(run.path)}"
            self._names[run.path] = name
        return name


# ---------------------------------------------------------------- names and cells


def safe_name(name: str) -> str:
    """Return a file name for a run; a name that had to be changed ends with its digest, so that it is unique."""
    kept = "".join(each if each.isalnum() or each in " ._-+=,()[]" else "_" for each in name).lstrip(" .-")
    kept = kept.encode()[:_MOST_NAME].decode(errors="ignore")
    return kept if kept == name else f"{kept or 'run'}-{_digest(name)}"


def _digest(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:8]


def _moment(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _megabytes(count: float | None) -> float | None:
    return None if count is None else count / MIB


def _cell(title: str, value: Scalar) -> Scalar:
    """Round numbers, and put texts on one line that no spreadsheet evaluates."""
    if isinstance(value, str):
        return shown_cell(value[:_MOST_TEXT])
    return round(value, 3) if isinstance(value, float) and title not in _RAW else value


def _line(cells: Sequence[Scalar]) -> bytes:
    import csv

    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue().encode()


def _history(run: Run) -> str:
    lines = [_line(HISTORY_HEADER)]
    for name, history in run.history.items():
        lines += [_line((_cell("", name), step, value)) for step, value in zip(history.steps, history.values)]
    return b"".join(lines).decode()


def _but_time(line: bytes) -> bytes:
    return line.partition(b",")[2]


# ---------------------------------------------------------------- files


def _make_ready(path: str, header: bytes) -> bytes:
    """Cut off a partial last row; rename a file with another header. Returns the last row, empty if there is none.

    Raises:
        OSError: with the path.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return b""
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        begin = os.pread(file, len(header), 0)
        if begin == header:
            return _cut(file)
        if header.startswith(begin):  # a partial header
            os.ftruncate(file, 0)
            return b""
    finally:
        os.close(file)
    os.rename(path, _free_name(path))
    return b""


def _cut(file: int) -> bytes:
    """Cut off everything after the last line end. Returns the line before it."""
    end = start = os.fstat(file).st_size
    tail = b""
    while start and tail.count(b"\n") < 2:
        start = max(0, start - _PIECE)
        tail = os.pread(file, end - start, start)
    whole = tail[: tail.rfind(b"\n") + 1]
    if len(whole) < len(tail):
        os.ftruncate(file, start + len(whole))
    return whole[whole.rfind(b"\n", 0, -1) + 1 :]


def _free_name(path: str) -> str:
    """Return the first of FILE.1.csv, FILE.2.csv and so on that does not exist."""
    stem, number = path.removesuffix(".csv"), 1
    while os.path.lexists(f"{stem}.{number}.csv"):
        number += 1
    return f"{stem}.{number}.csv"


def _append(path: str, header: bytes, line: bytes) -> None:
    """Append a row by one write, after the header if the file is new. A row that does not fit is removed again.

    Raises:
        OSError: with the path.
    """
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    try:
        size = os.fstat(file).st_size
        data = line if size else header + line
        try:
            written = os.write(file, data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from error
        if written < len(data):
            os.ftruncate(file, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    finally:
        os.close(file)
