"""Samples of the history for other programs: CSV (RFC 4180) and JSON lines."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import IO, Any

from training_monitor.cli.history_tables import View, plain
from training_monitor.cli.output import hint, printable
from training_monitor.errors import SettingsError
from training_monitor.history import HistoryMember
from training_monitor.parse.history_chunk import FIELDS
from training_monitor.policy.fleet_values import FleetSample
from training_monitor.units import plural

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # what a spreadsheet takes for one
Write = Callable[[dict[str, Any]], object]


def export(view: View, members: Sequence[HistoryMember], csv_file: str | None, json_file: str | None) -> None:
    """Write the samples of the members, one member after the other; `-` is stdout. Say how many went to a file.

    Raises:
        SettingsError: a file cannot be written.
    """
    fields = view.fields or FIELDS
    for option, path, begin in (("--csv", csv_file, _begin_csv), ("--jsonl", json_file, _begin_lines)):
        if path is None:
            continue
        with _opened(option, path) as file:
            write, count = begin(file, ("time", "timestamp", "member", "status", *fields)), 0
            for member in members:
                for sample in view.read(member.key, fields):
                    write(_row(member.key, sample, fields))
                    count += 1
        if path != "-":
            hint(f"{plural(count, 'sample')} of {plural(len(members), 'member')} in {path}")


@contextmanager
def _opened(option: str, path: str) -> Iterator[IO[str]]:
    if path == "-":
        yield sys.stdout
        return
    try:
        with open(path, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            yield file
    except OSError as error:
        raise SettingsError(option, path, f"a file that can be written: {error.strerror}") from error


def _row(key: str, sample: FleetSample, fields: Sequence[str]) -> dict[str, Any]:
    moment = datetime.fromtimestamp(sample.timestamp, timezone.utc)
    return {
        "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "timestamp": sample.timestamp,
        "member": key,
        "status": sample.status,
        **{name: sample.values[name] for name in fields},
    }


def _begin_csv(file: IO[str], names: Sequence[str]) -> Write:
    writer = csv.DictWriter(file, names)
    writer.writeheader()
    return lambda row: writer.writerow({name: _cell(value) for name, value in row.items()})


def _cell(value: object) -> object:
    """A text so that no spreadsheet calculates with it; a number as it is; of None, nothing."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _begin_lines(file: IO[str], names: Sequence[str]) -> Write:
    return lambda row: file.write(f"{json.dumps({name: plain(row[name]) for name in names})}\n")
