"""Edits of a run's variables: check whether the run accepts them, and merge them into its control file. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping

from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.records import encode
from training_monitor.runs.progress_file import MAX_VALUE, Edit, read_edits
from training_monitor.runs.values import EDITABLE_TYPES, RUNNING, UNKNOWN, Run, Variable


def why_read_only(variable: Variable) -> str:
    """Return why this variable cannot be edited; "" if it can."""
    if variable.is_editable:
        return ""
    return f"{variable.name} is of type {variable.type}: only {', '.join(EDITABLE_TYPES)} can be edited"


def check_edits(run: Run, values: Mapping[str, str]) -> None:
    """Raise TrainingMonitorError if the run would not read these values, or one of them cannot be written."""
    if run.status != RUNNING:
        raise TrainingMonitorError(f"run {run.name!r} is {run.status or UNKNOWN}: nobody would read the edit")
    known = {variable.name: variable for variable in run.variables}
    for name, value in values.items():
        if name not in known:
            raise TrainingMonitorError(f"run {run.name!r} has no variable {name[:100]!r} that can be edited")
        if refusal := why_read_only(known[name]):
            raise TrainingMonitorError(f"run {run.name!r}: {refusal}")
        if len(value) > MAX_VALUE:
            raise TrainingMonitorError(f"{name}: {len(value)} characters", hint=f"at most {MAX_VALUE}")


def merge_edits(control: str, run: Run, added: Mapping[str, Edit]) -> str:
    """Return the text of a control file with more edits, and without those that the run has answered.

    Args:
        control: the present text of the file; an unreadable one has no edits.
    """
    answered = {variable.name: variable.edit for variable in run.variables}
    kept = {name: edit for name, edit in read_edits(control).items() if edit.edit != answered.get(name)}
    return json.dumps({"edits": kept | dict(added)}, default=encode, indent=1) + "\n"
