"""Requests and the work done on them as JSON texts and back: ASCII, so that names that are no UTF-8 survive."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from training_monitor.errors import TrainingMonitorError
from training_monitor.renting import Hook, JobState, JobWork, Rental, TrainingRequest, TrainingSpec
from training_monitor.watching import UploadedFile, UploadReport

Value = TypeVar("Value")
# what the fields that are no plain values hold, or hold several of; dict: a table of plain values
_PARTS: dict[type, dict[str, type]] = {
    TrainingRequest: {"spec": TrainingSpec, "offers": dict, "samples": Hook, "register": Hook},
    JobWork: {"rentals": Rental, "uploads": UploadReport, "outcome": JobState},
    UploadReport: {"files": UploadedFile},
}


def format_record(value: object) -> str:
    """A frozen value with all that is in it as one JSON text. Raises TypeError for what JSON cannot hold."""
    return json.dumps(value, default=_as_mapping, sort_keys=True)


def _as_mapping(value: object) -> dict[str, Any]:
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is nothing that JSON can hold")


def read_record(kind: type[Value], text: str) -> Value:
    """The value that `format_record` wrote, also of an earlier version: what that one did not know has its default.

    Raises:
        TrainingMonitorError: a later version wrote it.
        ValueError, TypeError: it is something else.
    """
    return _read(kind, json.loads(text))


def _read(kind: type[Value], values: Any) -> Value:
    if not isinstance(values, dict):
        raise TypeError(f"a {kind.__name__} is a table, not {str(values)[:80]!r}")
    names, parts = {each.name for each in fields(kind)}, _PARTS.get(kind, {})  # type: ignore[arg-type]
    if unknown := set(values) - names:
        raise TrainingMonitorError(
            f"a {kind.__name__} was written by a later version ({', '.join(sorted(unknown))[:200]})",
            hint="install that version again to go on with this job",
        )
    return kind(**{name: _part(value, parts.get(name)) for name, value in values.items()})


def _part(value: Any, kind: type | None) -> Any:
    """Lists are tuples, tables are of `kind` if there is one."""
    if isinstance(value, list):
        return tuple(_part(each, kind) for each in value)
    if kind is None or value is None:
        return value
    if kind is dict:
        return {key: _part(each, None) for key, each in value.items()}
    return JobState(value) if kind is JobState else _read(kind, value)
