"""What runs on of a Ray job that Ray has forgotten, by real processes with Ray's mark in their environment."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.conftest import Place
from tests.integration.test_claims import ANN, take
from training_monitor.core.errors import LeaseLost
from training_monitor.jobs.claims import only_as_owner
from training_monitor.jobs.ray_jobs import Forgotten, end_forgotten
from training_monitor.targets.asking import Site

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start `sh -c SCRIPT` as a driver of a job."""
    started = []

    def start(job_id: str, script: str = "exec sleep 600") -> subprocess.Popen[bytes]:
        said = json.dumps({"runtime_env": {}, "metadata": {"job_submission_id": job_id, "job_name": job_id}})
        process = subprocess.Popen(["sh", "-c", script], env={**os.environ, "RAY_JOB_CONFIG_JSON_ENV_VAR": said})
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_the_processes_of_all_attempts_are_ended_and_no_others(target: Place, start: Start) -> None:
    mine = [start(each) for each in ("lora", "lora-attempt-1", "lora-attempt-12")]
    other = [start(each) for each in ("lora-2-attempt-1", "other-lora-attempt-1", "loran")]
    found = end_forgotten(Site.of(target.address), "lora", "lora-attempt-12")
    assert found.ended == len(mine) and [each.wait(10) for each in mine] == [-15] * 3
    assert [each.poll() for each in other] == [None, None, None]
    assert end_forgotten(Site.of(target.address), "lora", None) == Forgotten(0, (), 0, "")


def test_processes_of_a_training_that_was_taken_over_are_left_alone(target: Place, start: Start) -> None:
    driver = start("lora-attempt-1")
    mine = take(target, name="lora")
    assert mine
    assert take(target, mine.number, owner=replace(ANN, host="node7"), name="lora")
    with pytest.raises(LeaseLost, match="taken over by ann@node7"):
        end_forgotten(Site.of(target.address), "lora", None, guard=lambda question: only_as_owner(question, mine))
    assert driver.poll() is None


def test_a_process_that_ignores_term_is_killed(target: Place, start: Start) -> None:
    stubborn = start("lora-attempt-1", "trap '' TERM; while :; do sleep 0.1; done")
    assert end_forgotten(Site.of(target.address), "lora", "lora-attempt-1").ended >= 1
    assert stubborn.wait(10) == -9


def test_a_job_under_a_name_of_its_own_is_found_by_that(target: Place, start: Start) -> None:
    mine = start("raysubmit_Ab3")
    assert end_forgotten(Site.of(target.address), "lora", "raysubmit_Ab3").ended == 1
    assert mine.wait(10) == -15


def test_the_end_of_its_log_is_read_in_the_folder_of_the_session_that_ended(
    local: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    logs = tmp_path / "ray" / "session_2026-01-01_00-00-00_000000_1" / "logs"
    logs.mkdir(parents=True)
    (logs / "job-driver-lora-attempt-1.log").write_text("step 41/100 loss 0.5\n")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert end_forgotten(Site.of(local.address), "lora", "lora-attempt-1").log_tail == "step 41/100 loss 0.5\n"


def test_the_number_of_an_attempt_that_only_its_log_tells_of_is_not_given_again(
    local: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for session, number in (("session_1", 12), ("session_2", 3)):
        logs = tmp_path / "ray" / session / "logs"
        logs.mkdir(parents=True)
        for name in (f"lora-attempt-{number}", "lora-attempt-x", "lora-2-attempt-40"):
            (logs / f"job-driver-{name}.log").write_text("step 41/100 loss 0.5\n")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert end_forgotten(Site.of(local.address), "lora", None).attempts == 12
