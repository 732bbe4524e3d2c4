"""What runs on of a Ray job that Ray has forgotten, by real processes with Ray's mark in their environment."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Place, wait_until
from tests.integration.test_claims import ANN, take
from tests.loopback.ray_dashboard import RayDashboard
from training_monitor import RestartPolicy, auto_restart
from training_monitor.core.errors import LeaseLost
from training_monitor.core.models import Event
from training_monitor.core.store import Store
from training_monitor.jobs.claims import only_as_owner
from training_monitor.jobs.ray_jobs import Forgotten, drivers_question, end_forgotten
from training_monitor.targets.asking import Site
from training_monitor.targets.procfs import identify

KINDS = ("over_ssh",)  # of targets: what a shell does is the same on all
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start `sh -c SCRIPT` as a driver of a job."""
    started = []

    def start(job_id: str, script: str = "exec sleep 600", log: Path | None = None) -> subprocess.Popen[bytes]:
        said = json.dumps({"runtime_env": {}, "metadata": {"job_submission_id": job_id, "job_name": job_id}})
        environment, out = {**os.environ, "RAY_JOB_CONFIG_JSON_ENV_VAR": said}, log.open("wb") if log else None
        process = subprocess.Popen(["sh", "-c", script], env=environment, stdout=out, stderr=out)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


STEPS = "for n in $(seq 1 40); do echo step $n/40 loss=0.5; sleep 0.1; done"
FOREVER = "n=0; while :; do n=$((n+1)); echo step $n/100000 loss=0.5; sleep 0.1; done"


@pytest.fixture
def dashboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[RayDashboard]:
    with RayDashboard() as dashboard:
        monkeypatch.setenv("RAY_API_SERVER_ADDRESS", dashboard.address)
        yield dashboard


class Supervision(threading.Thread):
    """`auto_restart` of the Ray job `lora` on this machine, without a single restart."""

    def __init__(self, folder: Path, **more: object) -> None:
        super().__init__(daemon=True)
        self.events, self.result, self._folder = list[Event](), dict[str, Any](), folder
        limits: dict[str, Any] = {"stagnation_threshold": 60, "check_interval": 0.3, "roll_call_timeout": 0, **more}
        self._policy = RestartPolicy(0, 0.1, **limits)
        self.start()

    def run(self) -> None:
        config, store = {"entrypoint": "true"}, Store(str(self._folder / "state"))
        given: dict[str, Any] = {"job_config": config, "on_event": self.events.append, "store": store}
        self.result = auto_restart("local", "lora", None, policy=self._policy, **given)

    def texts(self) -> str:
        return "\n".join(f"{each.kind}: {each.text}" for each in self.events)

    def end(self) -> dict[str, Any]:
        self.join(60)
        assert self.result, self.texts()
        return self.result


def forget(dashboard: RayDashboard, supervision: Supervision) -> None:
    """Let Ray forget the job as soon as a step of it was seen."""
    assert wait_until(lambda: "RUNNING step" in supervision.texts(), 60), supervision.texts()
    dashboard.jobs.clear()


def test_a_training_that_ray_forgot_is_supervised_to_its_end_by_its_process(
    local: Place, dashboard: RayDashboard, start: Start, tmp_path: Path
) -> None:
    driver = start("lora-attempt-1", STEPS, tmp_path / "log")
    dashboard.add_job("lora-attempt-1", "RUNNING", "step 1/40\n")
    supervision = Supervision(tmp_path)
    forget(dashboard, supervision)
    result = supervision.end()
    assert driver.poll() == 0, "it was left alone"
    assert f"Ray no longer lists lora-attempt-1, which is still running as process {driver.pid}" in supervision.texts()
    assert (result["success"], result["final_step"], result["total_retries"]) == (True, 40, 0), result
    assert [each["job_id"] for each in result["attempts"]] == ["lora-attempt-1"]


def test_a_training_that_ray_forgot_and_that_is_killed_has_failed(
    local: Place, dashboard: RayDashboard, start: Start, tmp_path: Path
) -> None:
    driver = start("lora-attempt-1", FOREVER, tmp_path / "log")
    dashboard.add_job("lora-attempt-1", "RUNNING", "step 1/40\n")
    supervision = Supervision(tmp_path)
    forget(dashboard, supervision)
    assert wait_until(lambda: "is still running as process" in supervision.texts(), 60), supervision.texts()
    driver.kill()
    result = supervision.end()
    assert (result["outcome"], result["attempts"][-1]["status"]) == ("max_retries_reached", "FAILED"), result
    assert (result["final_step"] or 0) > 1, result


def test_a_training_that_ray_forgot_is_ended_where_it_makes_no_step(
    local: Place, dashboard: RayDashboard, start: Start, tmp_path: Path
) -> None:
    driver = start("lora-attempt-1", "echo step 1/40; sleep 2; echo step 2/40; sleep 600", tmp_path / "log")
    dashboard.add_job("lora-attempt-1", "RUNNING", "step 1/40\n")
    supervision = Supervision(tmp_path, stagnation_threshold=8)
    forget(dashboard, supervision)
    result = supervision.end()
    assert driver.wait(10) == -15 and "is still running as process" in supervision.texts()
    assert result["attempts"][-1]["status"] == "STALLED", result


def test_a_new_supervisor_adopts_what_ray_forgot_instead_of_ending_it(
    local: Place, dashboard: RayDashboard, start: Start, tmp_path: Path
) -> None:
    driver = start("lora-attempt-3", STEPS, tmp_path / "log")
    result = Supervision(tmp_path).end()
    assert driver.poll() == 0 and result["success"], result
    assert [each["job_id"] for each in result["attempts"]] == ["lora-attempt-3"]


def test_the_driver_of_a_job_is_its_oldest_process(target: Place, start: Start) -> None:
    driver = start("lora-attempt-12", "sleep 600 & wait")
    start("loran")
    [found] = Site.of(target.address).ask_one(drivers_question("lora", None))
    assert (found.job_id, found.pid) == ("lora-attempt-12", driver.pid)
    pid, begun, boot = found.process.split()
    assert (int(pid), boot) == (driver.pid, Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    assert int(begun) == identify(driver.pid).start_ticks


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


def test_an_attempt_number_known_from_a_log_is_not_reused(
    local: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for session, number in (("session_1", 12), ("session_2", 3)):
        logs = tmp_path / "ray" / session / "logs"
        logs.mkdir(parents=True)
        for name in (f"lora-attempt-{number}", "lora-attempt-x", "lora-2-attempt-40"):
            (logs / f"job-driver-{name}.log").write_text("step 41/100 loss 0.5\n")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert end_forgotten(Site.of(local.address), "lora", None).attempts == 12
