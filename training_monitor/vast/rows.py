"""What a row of the account's listing says: for whose job an instance was rented, and whether it is stopped. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from training_monitor.core.regex import regex

STOPPED = ("stopped", "exited")
EARLIEST_START = 1.5e9  # vast.ai rented nothing before 2017
_LABEL = regex(r"training_monitor/(?P<owner>[^/]+)/(?P<job>[^/]+)/(?P<attempt>[1-9][0-9]{0,5})")


def format_label(owner: str, job_id: str, attempt: int) -> str:
    """Return the label of an instance: its owner, and the job and attempt for which it was rented."""
    return f"training_monitor/{owner}/{job_id}/{attempt}"


def read_label(label: object) -> tuple[str, str, int] | None:
    """Return owner, job id and attempt from one of our labels; None for any other label."""
    found = _LABEL.fullmatch(label) if isinstance(label, str) else None
    return (found["owner"], found["job"], int(found["attempt"])) if found else None


def is_stopped(row: Mapping[str, Any]) -> bool:
    """Return whether the service says that an instance is stopped, and intended to be."""
    status = row.get("actual_status")
    stopped = status in STOPPED or row.get("cur_state") in STOPPED
    return stopped and status != "running" and row.get("intended_status") != "running"


def is_scheduled(row: Mapping[str, Any]) -> bool:
    """Return whether a stopped instance is to run again, but its GPUs are not free yet."""
    is_down = row.get("actual_status") in STOPPED and row.get("cur_state") in STOPPED
    return is_down and row.get("intended_status") == "running"
