"""A training without a log that ends after it was found, and before the first look at it: seen, and gone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import Surroundings, wait_until
from tests.integration.test_check import EndingTransport, start_silent
from training_monitor import check_training, explain_training, monitor_job, start_background_monitor
from training_monitor.core.errors import JobNotFound
from training_monitor.core.reports import MonitorReport
from training_monitor.look.meant import find_one
from training_monitor.supervision import TrainingWatcher, watch_training
from training_monitor.supervision.waiting import wait_for


@pytest.fixture
def gone(tmp_path: Path) -> Iterator[EndingTransport]:
    process, transport = start_silent(tmp_path), EndingTransport()
    transport.ending = [process]
    yield transport
    process.kill()
    process.wait()


def test_check_says_that_it_is_gone(gone: EndingTransport) -> None:
    [job] = check_training("local", gone.ending[0].pid, transport=gone)["jobs"]
    assert (job["state"], job["pid"]) == ("unknown", gone.ending[0].pid) and job["reason"].startswith("it ended"), job


def test_a_wait_ends_with_it(gone: EndingTransport) -> None:
    report = wait_for("local", gone.ending[0].pid, timeout=60, interval=0.1, transport=gone)
    assert report.outcome == "unknown" and "it ended" in report.reason, report


def test_a_wait_for_its_end_ends_with_it(gone: EndingTransport) -> None:
    job = find_one("local", gone.ending[0].pid, transport=gone).job
    report = monitor_job("local", job, 0.1, timeout=60, transport=gone)
    assert (report["status"], report["reason"]) == ("UNKNOWN", "it ended, and no log shows whether it succeeded")


def test_a_watch_ends_with_it(gone: EndingTransport) -> None:
    job = find_one("local", gone.ending[0].pid, transport=gone).job
    report = watch_training(TrainingWatcher("local", job, transport=gone))
    assert report.end == "ended", report


def test_why_says_that_no_rank_is_left(gone: EndingTransport) -> None:
    found = explain_training("local", gone.ending[0].pid, transport=gone)
    assert found["confidence"] == "none" and not found["ranks"], found


def test_a_background_monitor_of_a_pid_tells_how_its_log_ended(tmp_path: Path, surroundings: Surroundings) -> None:
    said = "for each in range(1, 41): print(f'step {each}/40 loss 0.5', flush=True); time.sleep(0.1)"
    (tmp_path / "train.py").write_text(f"import time\n{said}\ntime.sleep(5)\nprint('Training completed')\n")
    with (tmp_path / "train.log").open("wb") as out:
        process = subprocess.Popen([sys.executable, "train.py"], stdout=out, cwd=tmp_path)
    ended = list[MonitorReport]()
    try:
        thread = start_background_monitor("local", process.pid, 0.2, ended.append)
        assert wait_until(lambda: thread.observations) and thread.verdict and thread.is_alive()
        process.wait()
        thread.join(60)
    finally:
        process.kill()
        process.wait()
    assert thread.error is None and ended == [thread.result] and thread.job_id == f"pid {process.pid}"
    assert (ended[0]["status"], ended[0]["final_step"]) == ("SUCCEEDED", 40), ended


def test_a_background_monitor_of_no_process_keeps_the_error(tmp_path: Path, surroundings: Surroundings) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    thread = start_background_monitor("local", process.pid)
    thread.join(60)
    assert isinstance(thread.error, JobNotFound) and thread.result is None
