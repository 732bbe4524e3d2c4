"""Parse progress and control files (docs/progress_files.md), those of the earlier ttop too, and merge edits. Pure.

Values of a wrong type, impossible numbers and unknown keys are ignored: the rest is shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from math import inf, isfinite, nan
from typing import Any

from training_monitor.core.errors import ParseError, TrainingMonitorError
from training_monitor.core.masking import redact_named
from training_monitor.core.records import encode, table_in
from training_monitor.runs.values import (
    EDITABLE_TYPES,
    RUNNING,
    STATUSES,
    UNKNOWN,
    EarlierAttempt,
    Estimate,
    MetricHistory,
    Owner,
    OwnResources,
    Run,
    Scalar,
    Variable,
)
from training_monitor.targets.proc_stat import Identity

MAX_FILE_BYTES = 4 * 2**20
MAX_VALUE = 1000  # characters of a variable's text
_MAX_TEXT, _MAX_NAME, _MAX_PATH, _MAX_MESSAGE = 200, 100, 4096, 4000
MOST_ATTEMPTS = 10
_MAX_POINTS, _MAX_HISTORIES, _MAX_ENTRIES = 64, 32, 500
_MAX_WHOLE = 2**63
_MAX_EXIT_CODE = 255
_LAST_TIME = 253402300800.0  # the end of the year 9999
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_NOT_FINITE = {"nan": nan, "inf": inf, "-inf": -inf}
_COUNTS = "epoch total_epochs batch total_batches validation_batch total_validation_batches step total_steps".split()
_CONSTANTS = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}

_Document = Mapping[str, Any]


def _parse_int(digits: str) -> int | float:
    return int(digits) if len(digits) < 20 else float(digits)


_DECODER = json.JSONDecoder(parse_int=_parse_int, parse_constant=_CONSTANTS.__getitem__)


class NotAProgressFile(ParseError):
    """It is JSON, but not a run's: a folder of runs may hold such files."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit in a control file: `value` as text, `edit` its id, `edited_at` epoch seconds."""

    value: str
    edit: str
    edited_at: float | None = None


def parse_progress_file(text: str, run: Run, control: str | None = None) -> Run:
    """Parse a progress file, and from the text of its control file the edits that are not answered yet.

    Args:
        text: of the file, at most MAX_FILE_BYTES.
        run: its name and paths.
        control: text of the control file, None if there is none; an unreadable one has no edits.

    Raises:
        ParseError: It is not JSON, or too long.
        NotAProgressFile: It is JSON of something else.
    """
    document = _load(text, run.path)
    metadata, state, estimates = (table_in(document, key) for key in ("metadata", "state", "estimates"))
    metrics, status = table_in(document, "metrics"), document.get("status")
    if status not in STATUSES and "pid" not in metadata:
        raise NotAProgressFile("not a progress file: it has neither a status nor a process", source=run.path)
    counts: dict[str, Any] = {name: _whole(state.get(name)) for name in _COUNTS}
    return Run(
        run.name,
        run.path,
        run.control_path,
        run.folder,
        status=status if status in STATUSES else None,
        phase=_text(state.get("phase")),
        epochs_from_zero=state.get("epochs_from_zero") is True,
        **counts,
        run=_estimate(estimates, "run"),
        epoch_time=_estimate(estimates, "epoch"),
        training=_estimate(estimates, "training"),
        validation=_estimate(estimates, "validation"),
        validation_seconds=_last_duration(table_in(estimates, "validation")),
        metrics=_scalars(metrics),
        config=_scalars(table_in(metadata, "config")),
        history=_histories(table_in(document, "history")),
        attempt=_whole(document.get("attempt")) or 1,
        earlier=_earlier(document.get("earlier_attempts")),
        variables=_variables(table_in(document, "variables"), read_edits(control or "")),
        process=_identity(metadata),
        started_at=_time(document.get("start_time")) or _time(metadata.get("start_time")),
        ended_at=_time(document.get("end_time")),
        updated_at=_time(document.get("updated_at")),
        step_at=_time(state.get("step_at")),
        title=_text(metadata.get("run_name")),
        error_message=_text(document.get("error_message"), _MAX_MESSAGE),
        exit_code=_exit_code(document.get("exit_code")),
        script=_text(metadata.get("script_name")),
        stdout_path=_path(metadata.get("stdout_path")),
        stderr_path=_path(metadata.get("stderr_path")),
        wandb_url=_text(metadata.get("wandb_url"), _MAX_PATH),
        resources=_resources(table_in(document, "resources")),
    )


def parse_control_file(text: str) -> dict[str, Edit]:
    """Parse the edits of a control file by variable; a plain mapping written by hand is accepted too.

    Values are returned as text: true and false for a boolean, a number as Python writes it; an edit without an id gets
    this text as its id. Edits that are not text, number or boolean, or longer than MAX_VALUE, are ignored.

    Raises:
        ParseError: It is not a JSON object, or too long.
    """
    document = _load(text, "control file")
    edits = document.get("edits")
    found: dict[str, Edit] = {}
    if not isinstance(edits, dict):
        edits = {name: {"value": value} for name, value in document.items()}
    for name in _first(edits):
        entry = edits[name]
        value = _edited_text(entry.get("value")) if isinstance(entry, dict) else _edited_text(entry)
        if value is None:
            continue
        known = entry if isinstance(entry, dict) else {}
        found[name] = Edit(value, _text(known.get("edit")) or value, _time(known.get("edited_at")))
    return found


def parse_owner(text: str) -> Owner | None:
    """Parse the record of the process that writes a run; None if it names no process."""
    try:
        document = _load(text, "owner record")
    except ParseError:
        return None
    process, parent = _identity(table_in(document, "process")), _identity(table_in(document, "parent"))
    numbers = document.get("member")
    member = tuple(_whole(each) or 0 for each in numbers[:_MAX_ENTRIES]) if isinstance(numbers, list) else ()
    return Owner(process, parent, member) if process else None


def read_edits(control: str) -> dict[str, Edit]:
    """Return the edits in the text of a control file; none if it is invalid."""
    try:
        return parse_control_file(control) if control else {}
    except ParseError:
        return {}


def why_read_only(variable: Variable) -> str:
    """Return why this variable cannot be edited; "" if it can."""
    if variable.is_editable:
        return ""
    return f"{variable.name} is of type {variable.type}: only {', '.join(EDITABLE_TYPES)} can be edited"


def check_edits(run: Run, values: Mapping[str, str]) -> None:
    """Raise TrainingMonitorError if the run would not read these values, or one of them cannot be written."""
    if run.status != RUNNING:
        raise TrainingMonitorError(f"run {run.name!r} is {run.status or UNKNOWN}, so it would never read the edit")
    known = {variable.name: variable for variable in run.variables}
    for name, value in values.items():
        if name not in known:
            raise TrainingMonitorError(f"run {run.name!r} has no variable {name[:100]!r} that can be edited")
        if refusal := why_read_only(known[name]):
            raise TrainingMonitorError(f"run {run.name!r}: {refusal}")
        if len(value) > MAX_VALUE:
            raise TrainingMonitorError(
                f"the value of {name} is too long: {len(value)} characters", hint=f"use at most {MAX_VALUE} characters"
            )


def merge_edits(control: str, run: Run, added: Mapping[str, Edit]) -> str:
    """Return the text of a control file with more edits, and without those that the run has answered.

    Args:
        control: the present text of the file; an unreadable one has no edits.
    """
    answered = {variable.name: variable.edit for variable in run.variables}
    kept = {name: edit for name, edit in read_edits(control).items() if edit.edit != answered.get(name)}
    return json.dumps({"edits": kept | dict(added)}, default=encode, indent=1) + "\n"


def convert(text: str, kind: str) -> bool | int | float | str:
    """Convert a text to a value of this type.

    Raises:
        ValueError: It is not one; the message says what is expected.
    """
    if len(text) > MAX_VALUE:
        raise ValueError(f"the value is longer than {MAX_VALUE} characters")
    word = text.strip()
    if kind == "str":
        return text
    if kind == "bool":
        if word.lower() in _TRUE + _FALSE:
            return word.lower() in _TRUE
        raise ValueError("expected true or false")
    try:
        return _whole_number(word) if kind == "int" else _finite(word)
    except (ValueError, OverflowError) as error:
        raise ValueError("expected a whole number" if kind == "int" else "expected a finite number") from error


def _whole_number(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        number = _finite(word)
        if number != int(number):
            raise
        return int(number)


def _finite(word: str) -> float:
    number = float(word)
    if not isfinite(number):
        raise ValueError(word)
    return number


def _load(text: str, source: str) -> _Document:
    if len(text) > MAX_FILE_BYTES:
        raise ParseError(f"the file is longer than {MAX_FILE_BYTES} bytes", source=source)
    try:
        document = _DECODER.decode(text)
    except RecursionError as error:
        raise ParseError("nested too deeply", source=source) from error
    except ValueError as error:
        raise ParseError(f"not JSON ({error})", source=source, text=text[-600:]) from error
    if not isinstance(document, dict):
        raise NotAProgressFile("not a JSON object", source=source, text=text[:200])
    return document


def _first(table: _Document) -> list[str]:
    return list(table)[:_MAX_ENTRIES]


def _text(value: object, limit: int = _MAX_TEXT) -> str | None:
    return value[:limit] if isinstance(value, str) and value else None


def _path(value: object) -> str | None:
    """Return an absolute path; it is never cut, since that would name another file."""
    if not isinstance(value, str) or not value.startswith("/") or len(value) > _MAX_PATH or "\0" in value:
        return None
    return value


def _amount(value: Any) -> float | None:
    """Return a finite number from zero on; exact types: a boolean does not count, and this is called fifty times."""
    if type(value) is float:
        return value if 0 <= value < inf else None
    return float(value) if type(value) is int and value >= 0 else None


def _whole(value: Any) -> int | None:
    if type(value) is float and value.is_integer():  # false for nan and infinity
        value = int(value)
    return value if type(value) is int and 0 <= value < _MAX_WHOLE else None


def _exit_code(value: object) -> int | None:
    code = _whole(value)
    return code if code is None or code <= _MAX_EXIT_CODE else None


def _time(value: object) -> float | None:
    """Return epoch seconds, also from ISO text; without a time zone in the local one, as the earlier ttop wrote."""
    if isinstance(value, str) and len(value) < 64:
        try:
            value = datetime.fromisoformat(value.removesuffix("Z") + ("+00:00" if value.endswith("Z") else ""))
            value = value.timestamp()
        except (ValueError, OverflowError, OSError):
            return None
    seconds = _amount(value)
    return seconds if seconds is not None and seconds < _LAST_TIME else None


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _scalars(table: _Document) -> dict[str, Scalar]:
    return {
        name[:_MAX_NAME]: redact_named(name, _scalar(table[name])) for name in _first(table) if _is_scalar(table[name])
    }


def _scalar(value: Any) -> Scalar:
    """Return the value; a float that is not finite becomes a text, since JSON has no number for it."""
    if isinstance(value, float) and not isfinite(value):
        return "nan" if value != value else "inf" if value > 0 else "-inf"
    return value[:_MAX_TEXT] if isinstance(value, str) else value


def _estimate(estimates: _Document, key: str) -> Estimate:
    span = table_in(estimates, key)
    rate, elapsed, remaining, total = (span.get(name) for name in ("rate", "elapsed", "remaining", "total"))
    return Estimate(_amount(rate), _amount(elapsed), _amount(remaining), _amount(total))


def _last_duration(span: _Document) -> float | None:
    durations = span.get("durations")
    return _amount(durations[-1]) if isinstance(durations, list) and durations else None


def _histories(table: _Document) -> dict[str, MetricHistory]:
    """Read the histories of metrics, each thinned to 64 points."""
    found = {}
    for name in list(table)[:_MAX_HISTORIES]:
        history = table_in(table, name)
        steps, values = history.get("steps"), history.get("values")
        if isinstance(steps, list) and isinstance(values, list):
            points = [(step, _point(value)) for each, value in zip(steps, values) if (step := _whole(each)) is not None]
            if len(points) > _MAX_POINTS:
                points = [points[(at + 1) * len(points) // _MAX_POINTS - 1] for at in range(_MAX_POINTS)]
            found[name[:_MAX_NAME]] = MetricHistory(*zip(*points)) if points else MetricHistory()
    return found


def _earlier(attempts: object) -> tuple[EarlierAttempt, ...]:
    tables = [each for each in attempts if isinstance(each, dict)] if isinstance(attempts, list) else []
    return tuple(
        EarlierAttempt(
            each["status"], _time(each.get("start_time")), _time(each.get("end_time")), _whole(each.get("step"))
        )
        for each in tables[-MOST_ATTEMPTS:]
        if each.get("status") in STATUSES
    )


def _point(value: object) -> float | None:
    if isinstance(value, str):
        return _NOT_FINITE.get(value)
    is_number = isinstance(value, float) or (type(value) is int and abs(value) < _MAX_WHOLE)
    return float(value) if is_number else None  # type: ignore[arg-type]


def _variables(table: _Document, edits: Mapping[str, Edit]) -> tuple[Variable, ...]:
    found = []
    for name in _first(table):
        entry = table[name]
        if not isinstance(entry, dict):
            entry = {"value": entry}
        if name and len(name) <= MAX_VALUE:
            found.append(_variable(name, entry, edits.get(name)))
    return tuple(found)


def _variable(name: str, entry: _Document, asked: Edit | None) -> Variable:
    value, edit = entry.get("value"), _text(entry.get("edit"), MAX_VALUE)
    kind = _text(entry.get("type"), _MAX_NAME) or type(value).__name__
    if not _is_scalar(value):  # none of the types that can be edited
        kind, value = type(value).__name__, _json_of(value)
    return Variable(
        name=name,
        value=redact_named(name, value)[:MAX_VALUE] if isinstance(value, str) else _scalar(value),
        type=kind,
        edit=edit,
        error=_text(entry.get("error"), _MAX_MESSAGE),
        pending=redact_named(name, asked.value) if asked and asked.edit != edit else None,
    )


def _json_of(value: object) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        return "nested too deeply to be shown"


def _edited_text(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value) if isinstance(value, int | float) else value
    return text if isinstance(text, str) and len(text) <= MAX_VALUE else None


def _identity(metadata: _Document) -> Identity | None:
    pid = _whole(metadata.get("pid"))
    if not pid:
        return None
    hostname, boot_id, namespace = (_text(metadata.get(key)) for key in ("hostname", "boot_id", "pid_namespace"))
    return Identity(pid, _whole(metadata.get("start_ticks")), hostname, boot_id, namespace)


def _resources(table: _Document) -> OwnResources:
    return OwnResources(
        cpu_percent=_amount(table.get("cpu_percent")),
        rss_bytes=_whole(table.get("rss_bytes")),
        gpu_mib=_amount(table.get("gpu_mib")),
        threads=_whole(table.get("threads")),
    )
