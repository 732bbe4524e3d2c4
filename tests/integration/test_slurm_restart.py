"""Jobs of a real Slurm that are kept going: ended, submitted again, and adopted where Slurm requeued them."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import SshServer, Surroundings, wait_until
from tests.loopback.slurm import Slurm, running_slurm
from tests.requirements import require
from training_monitor.core.models import JobStatus
from training_monitor.jobs.jobs import get_job_config, look_at_job, start_job
from training_monitor.targets.asking import Site, side_by_side

# Makes a step every 0.1 s, saves every 10, and does at a step what FOLDER/at_STEP says, once.
TRAIN = """
import os, pickle, sys, threading, time
folder = sys.argv[1]
given = os.environ.get("RESUME_FROM_CHECKPOINT") or ""
assert sys.argv[2:] in ([], ["--resume", given]), sys.argv
rank = int(os.environ.get("SLURM_PROCID", 0))
last = int(given.rpartition("_")[2] or 0)
with open(f"{folder}/began", "a") as file:
    print(os.environ["SLURM_JOB_ID"], os.environ["SLURMD_NODENAME"], last, file=file, flush=True)
print("resumed from", given, flush=True)
for step in range(last + 1, 101):
    time.sleep(0.1)
    if rank:
        if step == 35 and rank == 3 and not last:
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        if step == 35 and not last:
            time.sleep(1000)
        continue
    print(f"step {step}/100 loss: {5 / step:.4f}", flush=True)
    if step % 10 == 0:
        path = f"{folder}/checkpoints/step_{step}"
        os.makedirs(path, exist_ok=True)
        with open(f"{path}/model.pt", "wb") as file:
            pickle.dump([step] * 1000, file)
    try:
        with open(f"{folder}/at_{step}") as file:
            then = file.read().strip()
        os.unlink(f"{folder}/at_{step}")
    except OSError:
        continue
    if then == "crash":
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    if then == "ecc":
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
    if then == "hang":
        time.sleep(1000)
    if then == "pause":
        time.sleep(35)
    if then == "limit":
        os.system("scontrol update JobId=$SLURM_JOB_ID TimeLimit=0")
        time.sleep(1000)
    if then == "requeue":
        os.system("scontrol requeue $SLURM_JOB_ID")
        time.sleep(1000)
"""
TIMES = ("--retry-delay", "0.3", "--interval", "0.5", "--stall-after", "2", "--roll-call-timeout", "0", "--json")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    require("slurmctld")
    with running_slurm(tmp_path_factory.mktemp("slurm")) as cluster:
        (cluster.folder / "train.py").write_text(TRAIN)
        yield cluster


@pytest.fixture
def slurm(cluster: Slurm, surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    yield cluster
    cluster.ask("scancel", "--user=root", check=False)


def wait_until_saved(slurm: Slurm) -> None:
    """Wait until slurmctld has saved its state, if there is anything to save.

    Killed before, it would forget the last job, and give its number to another one.
    """
    saved, since = slurm.folder / "state" / "job_state", time.time()
    wait_until(lambda: saved.exists() and saved.stat().st_mtime > since, 10)


class Training:
    """A job that trains into a folder, and its supervisors."""

    def __init__(self, slurm: Slurm, folder: Path, *options: str) -> None:
        self.slurm, self.folder = slurm, folder
        (folder / "checkpoints").mkdir()
        self.options, self.login, self.launcher = options, "", ""

    def plan(self, step: int, then: str) -> None:
        (self.folder / f"at_{step}").write_text(then)

    def submit(self) -> str:
        script = f"exec {self.launcher} {sys.executable} -u {self.slurm.folder}/train.py {self.folder} $*"
        self.job = self.slurm.submit(script, *self.options)
        return self.job

    def supervise(self, *options: str) -> subprocess.Popen[str]:
        words = [
            "restart",
            f"slurm://{self.login}{self.job}",
            "--checkpoint-dir",
            str(self.folder / "checkpoints"),
            *TIMES,
        ]
        return subprocess.Popen(
            [sys.executable, "-m", "training_monitor", *words, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, *options: str, timeout: float = 120) -> tuple[dict[str, Any], str]:
        """Supervise it to its end, and return the result, and what was said of it."""
        supervisor = self.supervise(*options)
        try:
            said, complained = supervisor.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            supervisor.kill()
            said, complained = supervisor.communicate()
        *events, result = [json.loads(line) for line in said.splitlines()] or [{}]
        text = "\n".join(f"{each['kind']}: {each['text']}" for each in events)
        assert result.get("kind") == "result", f"{text}\n{result}\n{complained}"
        return result, f"{text}\n{result['reason']}"

    def began(self) -> list[tuple[str, str, int]]:
        """The number, node and first step of each of its processes."""
        file = self.folder / "began"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(job, node, int(step)) for job, node, step in map(str.split, lines)]

    def is_at(self, count: int) -> bool:
        return wait_until(lambda: len(self.began()) >= count, 60)


@pytest.fixture
def training(slurm: Slurm, tmp_path: Path) -> Training:
    return Training(slurm, tmp_path)


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
    for step in (15, 35):
        training.plan(step, "limit")
    training.submit()
    result, said = training.end("--max-retries", "1", "--stall-after", "100", timeout=300)  # slurmctld is slow with it
    assert result["success"] and result["total_retries"] == 2, said
    assert [each["failure"]["category"] for each in result["attempts"][:2]] == ["time_limit"] * 2, said
    assert [step for _, _, step in training.began()] == [0, 10, 30]


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


class Census(threading.Thread):
    """Counts the processes of a training, again and again."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder, self.done, self.most, self.looks = str(folder), threading.Event(), 0, 0

    def run(self) -> None:
        while not self.done.wait(0.1):  # a step takes as long
            self.most, self.looks = max(self.most, len(self.pids())), self.looks + 1

    def pids(self) -> list[str]:
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = Path(f"/proc/{entry}/cmdline").read_text(errors="replace").split("\0")
            except OSError:
                continue
            if words[2:3] and words[2].endswith("/train.py") and self.folder in words:
                found.append(entry)
        return found


def test_there_is_one_job_through_kills_of_the_supervisor_and_of_slurmctld(training: Training, slurm: Slurm) -> None:
    for step, then in ((12, "crash"), (33, "hang"), (52, "crash")):
        training.plan(step, then)
    training.submit()
    census, chance = Census(training.folder), random.Random(48)
    census.start()
    try:
        for kill in range(5):
            supervisor = training.supervise()
            with pytest.raises(subprocess.TimeoutExpired):
                supervisor.wait(chance.uniform(0.5, 4.0))
            supervisor.send_signal(signal.SIGKILL)
            supervisor.communicate()
            if kill == 3:
                wait_until_saved(slurm)
                slurm.kill("slurmctld")
                time.sleep(1)
                slurm.start_controller()
        result, said = training.end(timeout=240)
    finally:
        census.done.set()
        census.join()
    assert result["success"] and result["final_step"] == 100, said
    assert census.most == 1 and census.looks > 100
    jobs = [job for job, _, _ in training.began()]
    assert len(jobs) == len(set(jobs)) == len(result["attempts"]), (training.began(), said)
    assert slurm.ask("squeue", "--noheader") == ""
