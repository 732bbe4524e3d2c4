"""A job of a real Slurm that trains as it is told, and its supervisors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Surroundings, wait_until
from tests.loopback.slurm import Slurm, running_slurm
from tests.requirements import require

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
        time.sleep(25)
    if then == "limit":
        os.system("scontrol update JobId=$SLURM_JOB_ID TimeLimit=0")
        time.sleep(1000)
    if then == "requeue":
        os.system("scontrol requeue $SLURM_JOB_ID")
        time.sleep(1000)
"""
TIMES = ("--retry-delay", "0.3", "--interval", "1", "--stall-after", "2", "--roll-call-timeout", "0", "--json")


@pytest.fixture(scope="module", name="cluster")
def make_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    require("slurmctld")
    with running_slurm(tmp_path_factory.mktemp("slurm")) as cluster:
        (cluster.folder / "train.py").write_text(TRAIN)
        yield cluster


@pytest.fixture(name="slurm")
def make_slurm(cluster: Slurm, surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    yield cluster
    cluster.ask("scancel", "--user=root", check=False)


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


@pytest.fixture(name="training")
def make_training(slurm: Slurm, tmp_path: Path) -> Training:
    return Training(slurm, tmp_path)


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
