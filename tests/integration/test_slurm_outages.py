"""One job of a real Slurm at a time, whatever dies: the controller, a node, the supervisor, or an answer on its way."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

from tests.integration.conftest import wait_until
from tests.integration.slurm_training import Census, Training, make_cluster, make_slurm, make_training  # noqa: F401 (fixtures)
from tests.loopback.slurm import Slurm
from training_monitor.core.models import JobStatus
from training_monitor.jobs.jobs import get_job_config, look_at_job, start_job
from training_monitor.targets.asking import Site, side_by_side


def wait_until_saved(slurm: Slurm) -> None:
    """Wait until slurmctld has saved its state, if there is anything to save.

    Killed before, it would forget the last job, and give its number to another one.
    """
    saved, since = slurm.folder / "state" / "job_state", time.time()
    wait_until(lambda: saved.exists() and saved.stat().st_mtime > since, 10)


def test_a_requeue_by_slurm_is_adopted_and_not_doubled(training: Training, slurm: Slurm) -> None:
    job = training.submit()
    supervisor = training.supervise()
    assert supervisor.stdout
    try:
        supervisor.stdout.readline()
        time.sleep(2)  # it has seen the first run
        for step in range(1, 101):
            training.plan(step, "requeue")
        assert wait_until(lambda: "Restarts=1 " in slurm.ask("scontrol", "show", "job", job, "-o"), 60)
        assert wait_until(lambda: slurm.state(job) == "PENDING", 60)
        for step in range(1, 101):
            (training.folder / f"at_{step}").unlink(missing_ok=True)
        time.sleep(3)
        slurm.ask("scontrol", "update", f"JobId={job}", "StartTime=now")
        said, complained = supervisor.communicate(timeout=120)
    finally:
        supervisor.kill()
    result = json.loads(said.splitlines()[-1])
    assert result["success"] and result["total_retries"] == 0, (said, complained)
    assert [number for number, _, _ in training.began()] == [job, job]
    assert [each["status"] for each in result["attempts"]] == ["FAILED", "SUCCEEDED"]
    assert (result["attempts"][0]["final_step"] or 0) < 100 and result["final_step"] == 100
    again, _ = training.end()
    assert again["success"] and again["job_id"] == f"slurm:{job}"  # a new run begins with what is there


def test_a_silent_controller_is_an_outage_and_a_crash_is_continued(training: Training, slurm: Slurm) -> None:
    training.plan(15, "pause")
    training.plan(95, "crash")
    training.submit()
    assert training.is_at(1)
    supervisor = training.supervise("--stall-after", "100")
    assert supervisor.stdout
    try:
        supervisor.stdout.readline()  # it has begun
        wait_until_saved(slurm)
        slurm.kill("slurmctld")
        assert any("unreachable" in line for line in supervisor.stdout)
        slurm.start_controller()
        said, complained = supervisor.communicate(timeout=120)
    finally:
        supervisor.kill()
    result = json.loads(said.splitlines()[-1])
    assert result["success"] and result["total_retries"] == 1, (said, complained)
    assert "illegal memory access" in result["attempts"][0]["reason"]
    assert [step for _, _, step in training.began()] == [0, 90]


SLOW_SBATCH = """#!/bin/sh
sleep 1
{sbatch} "$@" >/dev/null
echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2
exit 1
"""


def test_a_submission_whose_reply_is_lost_is_found_and_of_two_one_stays(
    training: Training, slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = training.submit()
    site = Site.of("local")
    config = get_job_config(site, f"slurm:{job}")
    assert config
    (tmp_path / "bin").mkdir()
    wrapper = tmp_path / "bin" / "sbatch"
    wrapper.write_text(SLOW_SBATCH.format(sbatch=shutil.which("sbatch")))
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    name = f"slurm:{job}-attempt-2"
    how = side_by_side([partial(start_job, site, name, config, None)] * 2)
    assert set(how) <= {"started", "exists"}
    assert start_job(site, name, config, None) == "exists"
    lines = [each.split("|") for each in slurm.ask("squeue", "--me", "-h", "--states=all", "-o", "%A|%T|%k|%E").split()]
    own = sorted(each for each in lines if each[2] == f"training_monitor:{job}-attempt-2")
    assert [each[1] for each in own] == ["PENDING", "CANCELLED"] and own[0][3].startswith(f"afterany:{job}("), lines
    slurm.ask("scancel", job)
    assert wait_until(lambda: look_at_job("local", name).status is JobStatus.RUNNING, 30)
    assert wait_until(lambda: training.began()[-1:] and training.began()[-1][0] == own[0][0])


def test_the_job_of_a_node_that_died_runs_on_another(training: Training, slurm: Slurm) -> None:
    training.options = ("--no-requeue",)
    job = training.submit()
    assert training.is_at(1) and wait_until(lambda: (training.folder / "checkpoints" / "step_20").exists())
    [(_, node, _)] = training.began()
    supervisor = training.supervise("--stall-after", "100")
    assert supervisor.stdout
    supervisor.stdout.readline()
    slurm.kill(node)
    try:
        for pid in Census(training.folder).pids():
            above = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
            for each in (above, pid):
                os.kill(int(each), signal.SIGKILL)
        said, complained = supervisor.communicate(timeout=120)
    finally:
        supervisor.kill()
        slurm.start_node(node)
    result = json.loads(said.splitlines()[-1])
    assert result["success"], (said, complained)
    first, second = result["attempts"]
    assert (first["job_id"], first["failure"]["category"]) == (f"slurm:{job}", "node_lost")
    assert first["suspect_nodes"] == [node] and second["node"] not in (None, node)


def test_there_is_one_job_through_kills_of_the_supervisor_and_of_slurmctld(training: Training, slurm: Slurm) -> None:
    for step, then in ((12, "crash"), (33, "hang")):
        training.plan(step, then)
    training.submit()
    census, chance = Census(training.folder), random.Random(48)
    census.start()
    try:
        for kill in range(3):
            supervisor = training.supervise()
            with pytest.raises(subprocess.TimeoutExpired):
                supervisor.wait(chance.uniform(0.5, 4.0))
            supervisor.send_signal(signal.SIGKILL)
            supervisor.communicate()
            if kill == 1:
                wait_until_saved(slurm)
                slurm.kill("slurmctld")
                time.sleep(1)
                slurm.start_controller()
        result, said = training.end(timeout=240)
    finally:
        census.done.set()
        census.join()
    assert result["success"] and result["final_step"] == 100, said
    assert census.most == 1 and census.looks > 50
    jobs = [job for job, _, _ in training.began()]
    assert len(jobs) == len(set(jobs)) == len(result["attempts"]), (training.began(), said)
    assert slurm.ask("squeue", "--noheader") == ""
