"""What the scripts of a process job print: `key=value` lines, then `log`, then the end of the log as it is."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from training_monitor.errors import ParseError, TargetUnreachable
from training_monitor.models import SUPERVISOR, TIME_LIMIT, JobStatus, JobView
from training_monitor.parse.training_log import parse_progress

START_SECONDS = 30.0
_STOPPERS = {SUPERVISOR: "its supervisor, to restart it", TIME_LIMIT: "its time limit"}
_KEYS = {words: key for key, words in _STOPPERS.items()}  # earlier versions wrote the words


def parse_fields(text: str) -> tuple[dict[str, str], str]:
    """Split a script's reply into its fields and the log text behind the line `log`."""
    fields: dict[str, str] = {}
    head, mark, rest = f"\n{text}".partition("\nlog\n")
    if not mark:
        head, rest = head.removesuffix("\nlog"), ""
    for line in head.split("\n"):
        key, equals, value = line.partition("=")
        if equals:
            fields[key] = value
    return fields, rest


def parse_process_job(text: str, job_id: str) -> JobView | None:
    """One look at a process job; None when the target has no such job. Raises ParseError, TargetUnreachable."""
    fields, log = parse_fields(text)
    state = fields.get("state")
    if state == "missing":
        return None
    if state == "hidden":
        raise TargetUnreachable(
            f"processes of {job_id} run, and its run directory is not there",
            hint="look whether the file system of TRAINING_MONITOR_JOBS_DIR is mounted",
        )
    status = _status(fields)
    if status is None:
        raise ParseError("no state in the reply", source="process job", text=text)
    now, log_time = _number(fields, "now"), _number(fields, "log_time")
    return JobView(
        job_id=job_id,
        status=status,
        message=_message(fields, status),
        exit_code=_whole(fields, "exit_code"),
        progress=parse_progress(log),
        log_size=_whole(fields, "log_size"),
        log_age=max(0.0, now - log_time) if now is not None and log_time is not None else None,
        log_tail=log,
        started_at=_number(fields, "started"),
        survivors=_whole(fields, "members") or 0,
        stopped_by=_stopper(fields) if status is JobStatus.STOPPED else None,
    )


def _status(fields: Mapping[str, str]) -> JobStatus | None:
    state = fields.get("state")
    if state == "running":
        return JobStatus.RUNNING
    if state == "starting":
        now, started = _number(fields, "now"), _number(fields, "started")
        if now is None or started is None or now - started < START_SECONDS:
            return JobStatus.PENDING
        return JobStatus.FAILED
    if state in ("exited", "gone") and "stopped_by" in fields:  # written only while it ran
        return JobStatus.STOPPED
    if state in ("exited", "gone"):
        return JobStatus.SUCCEEDED if fields.get("exit_code") == "0" else JobStatus.FAILED
    return None


def _stopper(fields: Mapping[str, str]) -> str:
    return _KEYS.get(fields["stopped_by"], fields["stopped_by"])


def _message(fields: Mapping[str, str], status: JobStatus) -> str | None:
    if status is JobStatus.STOPPED:
        return f"stopped by {_STOPPERS.get(_stopper(fields), fields['stopped_by'])}"
    if fields.get("state") == "gone":
        return "its process is gone and left no exit status: killed from outside (SIGKILL, out of memory) or a reboot"
    if fields.get("state") == "starting" and status is JobStatus.FAILED:
        return f"it never started: no process after {START_SECONDS:g} s"
    code, left = fields.get("exit_code"), _whole(fields, "members")
    if code == "0" and left:
        return f"exit status 0, and {left} of its processes run on"
    return f"exit status {code}{_signal(code)}" if code is not None else None


def _signal(code: str) -> str:
    names = {"137": "SIGKILL", "139": "SIGSEGV", "134": "SIGABRT", "143": "SIGTERM", "130": "SIGINT", "129": "SIGHUP"}
    return f" ({names[code]})" if code in names else ""


def _number(fields: Mapping[str, str], key: str) -> float | None:
    try:
        number = float(fields[key])
    except (KeyError, ValueError):
        return None
    return number if isfinite(number) else None


def _whole(fields: Mapping[str, str], key: str) -> int | None:
    number = _number(fields, key)
    return None if number is None else int(number)
