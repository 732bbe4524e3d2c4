"""Edits of a run's variables: which ones a run would take, and what its control file then holds. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

from training_monitor.errors import TrainingMonitorError
from training_monitor.parse.progress_file import MAX_VALUE, Edit, read_edits
from training_monitor.policy.run_values import EDITABLE_TYPES, RUNNING, UNKNOWN, Run, Variable


def why_read_only(variable: Variable) -> str:
    """Why nobody can edit this variable; "" where somebody can."""
    if variable.is_editable:
        return ""
    return f"{variable.name} is of type {variable.type}: only {', '.join(EDITABLE_TYPES)} can be edited"


def check_edits(run: Run, values: Mapping[str, str]) -> None:
    """Raise TrainingMonitorError when nobody would read these values, or one of them cannot be written."""
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
    """The text of a control file with more edits, and without those that the run has answered.

    Args:
        control: text of the file as it is; one that holds nothing that can be read has no edits.
    """
    answered = {variable.name: variable.edit for variable in run.variables}
    kept = {name: edit for name, edit in read_edits(control).items() if edit.edit != answered.get(name)}
    return json.dumps({"edits": {name: asdict(edit) for name, edit in (kept | dict(added)).items()}}, indent=1) + "\n"
