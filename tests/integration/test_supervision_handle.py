"""start_supervision: auto_restart in a thread, with real jobs of this machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Place, wait_until
from training_monitor import RestartPolicy, TargetUnreachable, TrainingMonitorError, list_jobs, start_supervision
from training_monitor.core.models import JobStatus
from training_monitor.jobs.jobs import look_at_job

POLICY = RestartPolicy(retry_delay=0.1, check_interval=0.3)


def begin(command: str, **more: Any) -> Any:
    return start_supervision("local", "fit", None, policy=POLICY, job_config={"command": command}, **more)


def test_it_runs_beside_the_program_and_has_the_report(local: Place, tmp_path: Path) -> None:
    events = list[str]()
    command = f"[ -e '{tmp_path}/second' ] || {{ touch '{tmp_path}/second'; exit 1; }}"
    handle = begin(command, on_event=lambda event: events.append(event.kind))
    assert "fit on local: supervising" in repr(handle)
    report = handle.result(60)
    assert (report["success"], report["total_retries"], handle.state) == (True, 1, "ended")
    assert events[-1] == "finished"


def test_told_to_stop_looking_it_leaves_the_job_to_the_same_call(local: Place, tmp_path: Path) -> None:
    command = f"while [ ! -e '{tmp_path}/end' ]; do sleep 0.2; done"
    handle = begin(command)
    assert wait_until(lambda: "process:fit-attempt-1" in [job.job_id for job in list_jobs("local")])
    with pytest.raises(TimeoutError, match="still being supervised after 0.1 s"):
        handle.result(0.1)
    began = time.monotonic()
    handle.stop_looking()
    assert handle.state == "stopped" and time.monotonic() - began < 2
    with pytest.raises(TrainingMonitorError, match="fit on local is no longer being watched"):
        handle.result()
    assert look_at_job("local", "process:fit-attempt-1").status is JobStatus.RUNNING
    again = begin(command)
    (tmp_path / "end").touch()
    report = again.result(60)
    assert report["success"] and report["job_id"] == "process:fit-attempt-1"


def test_an_error_that_ended_it_is_raised_where_the_result_is_asked_for(local: Place) -> None:
    handle = start_supervision("local", "fit", None)
    with pytest.raises(TargetUnreachable, match="Ray does not respond"):
        handle.result(60)
    assert handle.state == "failed"
    with pytest.raises(TargetUnreachable):
        handle.result()


def test_a_defect_in_a_callback_is_raised_too(local: Place) -> None:
    def fail(event: object) -> None:
        raise ZeroDivisionError("in the callback")

    handle = begin("true", on_event=fail)
    with pytest.raises(ZeroDivisionError, match="in the callback"):
        handle.result(60)
    assert handle.state == "failed"
