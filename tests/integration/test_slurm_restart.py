"""Jobs of a real Slurm that are kept going: a supervisor ends them, submits them again, and adopts what Slurm requeues."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Surroundings, wait_until
from tests.loopback.slurm import Slurm, running_slurm
from tests.requirements import require

# Makes a step every 0.1 s, saves every 10, and does at a step what FOLDER/at_STEP says, once.
TRAIN = """
import os, pickle, sys, time
folder = sys.argv[1]
given = os.environ.get("RESUME_FROM_CHECKPOINT") or ""
assert sys.argv[2:] in ([], ["--resume", given]), sys.argv
last = int(given.rpartition("_")[2] or 0)
with open(f"{folder}/began", "a") as file:
    print(os.environ["SLURM_JOB_ID"], os.environ["SLURMD_NODENAME"], last, file=file, flush=True)
print("resumed from", given, flush=True)
for step in range(last + 1, 101):
    time.sleep(0.1)
    print(f"step {step}/100 loss: {5 / step:.4f}", flush=True)
    if step % 10 == 0:
        path = f"{folder}/checkpoints/step_{step}"
        os.makedirs(path)
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


class Training:
    """A job that trains into a folder, and its supervisors."""

    def __init__(self, slurm: Slurm, folder: Path, *options: str) -> None:
        self.slurm, self.folder = slurm, folder
        (folder / "checkpoints").mkdir()
        self.options = options

    def plan(self, step: int, then: str) -> None:
        (self.folder / f"at_{step}").write_text(then)

    def submit(self) -> str:
        script = f"exec {sys.executable} -u {self.slurm.folder}/train.py {self.folder} $*"
        self.job = self.slurm.submit(script, *self.options)
        return self.job

    def supervise(self, *options: str) -> subprocess.Popen[str]:
        words = ["restart", f"slurm://{self.job}", "--checkpoint-dir", str(self.folder / "checkpoints"), *TIMES]
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


def test_a_hang_is_ended_and_continued_from_its_checkpoint(training: Training) -> None:
    training.plan(35, "hang")
    job = training.submit()
    result, said = training.end("--resume-argument=--resume")
    assert result["success"] and result["final_step"] == 100, said
    assert [(each["job_id"], each["status"]) for each in result["attempts"]] == [
        (f"slurm:{job}", "STALLED"),
        (f"slurm:{job}-attempt-2", "SUCCEEDED"),
    ]
    assert [step for _, _, step in training.began()] == [0, 30], said


def test_a_crash_is_continued_from_its_checkpoint(training: Training) -> None:
    training.plan(35, "crash")
    training.submit()
    result, said = training.end()
    assert result["success"] and result["total_retries"] == 1, said
    assert "illegal memory access" in result["attempts"][0]["reason"]
    assert [step for _, _, step in training.began()] == [0, 30]
