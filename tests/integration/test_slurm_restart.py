"""Jobs of a real Slurm that are kept going: ended, submitted again, and run again where Slurm may requeue them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.integration.conftest import SshServer, wait_until
from tests.integration.slurm_training import Training, make_cluster, make_slurm, make_training  # noqa: F401 (fixtures)
from tests.loopback.slurm import Slurm
from training_monitor.core.errors import CommandFailed
from training_monitor.jobs.jobs import get_job_config, start_job
from training_monitor.jobs.stopping import stop_job
from training_monitor.targets.asking import Site


def test_a_hang_is_looked_at_ended_and_continued_from_its_checkpoint_over_a_login_node(
    slurm: Slurm, tmp_path: Path, sshd: SshServer
) -> None:
    sshd.set_environment(slurm.environment)
    training = Training(slurm, tmp_path, "--nodes=2", "--ntasks=4", "--ntasks-per-node=2")
    training.login = f"{sshd.address.removeprefix('ssh://')}/"
    training.plan(35, "hang")  # where rank 3 waits for a lock
    training.launcher = "srun --mpi=none"
    job = training.submit()
    result, said = training.end("--resume-argument=--resume", "--roll-call-timeout", "20", "llama")
    assert result["success"] and result["final_step"] == 100, said
    assert [(each["job_id"], each["status"]) for each in result["attempts"]] == [
        (f"slurm:{job}", "STALLED"),
        ("slurm:llama-attempt-2", "SUCCEEDED"),
    ]
    explanation = result["attempts"][0]["explanation"]
    assert "ank 0" in explanation and "train.py" in explanation, said
    assert [step for _, _, step in training.began()] == [0] * 4 + [30] * 4, said
    again, _ = training.end("llama")
    assert again["success"] and len(training.began()) == 8  # it begins with the last attempt


def test_a_time_limit_is_no_failure_and_counts_as_progress(training: Training) -> None:
    training.plan(15, "limit")
    training.submit()
    result, said = training.end("--max-retries", "1", "--stall-after", "100", timeout=300)  # slurmctld is slow with it
    assert result["success"] and result["total_retries"] == 1, said
    assert result["attempts"][0]["failure"]["category"] == "time_limit", said
    assert [step for _, _, step in training.began()] == [0, 10]


def test_what_a_person_cancels_stays_cancelled(training: Training, slurm: Slurm) -> None:
    training.submit()
    assert training.is_at(1)
    supervisor = training.supervise()
    assert supervisor.stdout
    supervisor.stdout.readline()
    slurm.ask("scancel", training.job)
    said, _ = supervisor.communicate(timeout=60)
    result = json.loads(said.splitlines()[-1])
    assert result["outcome"] == "stopped" and "scancel" in result["reason"], result
    assert len(training.began()) == 1 and slurm.ask("squeue", "--noheader") == ""


def test_a_job_with_the_number_of_a_former_attempt_is_not_cancelled(slurm: Slurm) -> None:
    number = slurm.submit("sleep 300")
    former = Path(os.environ["TRAINING_MONITOR_JOBS_DIR"]) / ".slurm" / "train-attempt-1"
    former.mkdir(parents=True)
    (former / "number").write_text(f"{number}\n")
    assert wait_until(lambda: slurm.state(number) == "RUNNING", 30)
    assert stop_job("local", "slurm:train-attempt-1", grace=1) == "FAILED"  # as long as it is known, and held
    assert slurm.state(number) == "RUNNING"
    with pytest.raises(CommandFailed, match="another job"):
        start_job(Site.of("local"), "slurm:train-attempt-2", {"job": "slurm:train-attempt-1", "requeue": True}, None)
    assert slurm.state(number) == "RUNNING" and "training_monitor" not in slurm.ask("scontrol", "show", "job", number)


def test_the_script_of_an_earlier_job_with_the_same_number_is_not_submitted(slurm: Slurm) -> None:
    number = slurm.submit("sleep 301")
    kept = Path(os.environ["TRAINING_MONITOR_JOBS_DIR"]) / ".slurm" / number
    kept.mkdir(parents=True)
    (kept / "script").write_text("#!/bin/sh\nsleep 300\n")
    (kept / "job").write_text(f"JobId={number} JobName=other SubmitTime=1000000000 Command=(null)\n")
    for _ in range(2):
        assert get_job_config(Site.of("local"), f"slurm:{number}")
        assert "sleep 301" in (kept / "script").read_text()


def test_with_requeue_the_same_job_runs_again_and_its_log_is_copied(training: Training, slurm: Slurm) -> None:
    training.plan(15, "hang")
    training.plan(35, "ecc")
    job = training.submit()
    supervisor = training.supervise("--requeue")
    try:
        for count in (1, 2):
            assert wait_until(lambda n=count: f"Restarts={n} " in slurm.ask("scontrol", "show", "job", job, "-o"), 60)
            time.sleep(1)
            slurm.ask("scontrol", "update", f"JobId={job}", "StartTime=now")
        said, complained = supervisor.communicate(timeout=120)
    finally:
        supervisor.kill()
    result = json.loads(said.splitlines()[-1])
    assert result["success"] and result["total_retries"] == 2, (said, complained)
    assert [each["status"] for each in result["attempts"]] == ["STALLED", "FAILED", "SUCCEEDED"]
    [(first, *_), (second, bad, _), (third, good, _)] = training.began()
    assert {first, second, third} == {job} and bad != good
    copied = Path(os.environ["TRAINING_MONITOR_JOBS_DIR"]) / ".slurm" / f"{job}-attempt-2" / "former_log"
    assert "step 15/100" in copied.read_text()


def test_a_bad_node_is_excluded_and_two_attempts_in_one_log_are_told_apart(slurm: Slurm, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    training = Training(slurm, tmp_path, f"--output={log}", "--comment=mine", "--job-name=one log")
    training.plan(35, "ecc")
    training.submit()
    result, said = training.end()
    assert result["success"], said
    [(_, bad, _), (again, good, _)] = training.began()
    assert bad != good
    line = slurm.ask("scontrol", "show", "job", again, "-o")
    assert f" ExcNodeList={bad} " in line and " JobName=one log " in line
    text = log.read_text()
    assert text.count("step 35/100") == 2 and text.index("uncorrectable ECC") < text.index("resumed from /")
    assert [each["final_step"] for each in result["attempts"]] == [35, 100]
