"""A Ray cluster dies four times under a training that two machines take turns to supervise: one training at any time.

The training dies with it, or runs on: then it is supervised by its process, and nothing is started.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import wait_until
from tests.integration.ray_cluster import HEAD, LABELS, ProcessCensus, RayHead, endless_training, kill_trainings
from tests.loopback.kubernetes import KubernetesApi

CRASHES = 4
SURVIVED = (2, 4)
MACHINE_DIES = (3, 4)
ADOPTED = "is still running as process"


class Rival(threading.Thread):
    """A machine that supervises again and again until the training is done, whoever else does."""

    def __init__(self, name: str, folder: Path, entrypoint: str) -> None:
        super().__init__(daemon=True)
        self.machine, self.out, self.up = name, folder / f"{name}.out", threading.Event()
        self.over, self.process = threading.Event(), None
        options = [HEAD, "again", "--checkpoint-dir", str(folder / "c"), "--entrypoint", entrypoint, "--json"]
        options += ["--retry-delay", "1", "--interval", "2", "--max-retries", "50"]
        naming = ["unshare", "--uts", "sh", "-c", f'hostname {name}; exec "$@"', "sh"]
        self._words = [*naming, sys.executable, "-m", "training_monitor", "restart", *options]
        state = str(folder / f"state {name}")
        self._environ = {**os.environ, "TRAINING_MONITOR_STATE_DIR": state, "TRAINING_MONITOR_LEASE": "6"}
        self.process: subprocess.Popen[bytes] | None
        self.out.touch()
        self.up.set()
        self.start()

    def run(self) -> None:
        while not self.over.is_set():
            if self.up.wait(0.2):
                with self.out.open("a") as out:
                    self.process = subprocess.Popen(self._words, env=self._environ, stdout=out, stderr=out)
                if self.process.wait() == 0:
                    return
                self.over.wait(1)

    def kill(self) -> None:
        """SIGKILL, and stay down."""
        self.up.clear()
        if self.process:
            self.process.kill()

    def end(self) -> None:
        self.over.set()
        self.kill()
        self.join()

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.read_text().splitlines() if line.startswith("{")]

    def said(self, text: str) -> int:
        return sum(text in event.get("text", "") for event in self.events())


def steps_of(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()]


@pytest.mark.timeout(1500)
def test_cluster_deaths_leave_one_training_and_count_lost_steps(
    lean_ray: Path, kube: KubernetesApi, tmp_path: Path
) -> None:
    head, (entrypoint, made) = RayHead(lean_ray), endless_training(tmp_path)
    census, rivals = ProcessCensus(str(tmp_path / "train.py")), list[Rival]()

    def newest() -> Path:
        return max(made.iterdir(), key=lambda file: file.stat().st_mtime)

    try:
        head.start()
        kube.add_pod(HEAD, env=head.pod_environment, labels=LABELS)
        census.start()
        ann = Rival("machine-a", tmp_path, entrypoint)
        assert wait_until(lambda: any(made.iterdir()), 120), ann.out.read_text()
        bob = Rival("machine-b", tmp_path, entrypoint)
        rivals = [ann, bob]
        for number in range(1, CRASHES + 1):
            attempts, adopted = len(list(made.iterdir())), sum(each.said(ADOPTED) for each in rivals)
            assert wait_until(lambda: len(steps_of(newest())) > 25, 60)
            head.crash()
            if number not in SURVIVED:
                kill_trainings(str(tmp_path / "train.py"))
            if number in MACHINE_DIES:
                down, other = (ann, bob) if number == MACHINE_DIES[0] else (bob, ann)
                down.kill()
            head.start()
            survived = number in SURVIVED

            def is_supervised(survived: bool = survived, attempts: int = attempts, adopted: int = adopted) -> bool:
                if survived:
                    return sum(each.said(ADOPTED) for each in rivals) > adopted
                return len(list(made.iterdir())) > attempts

            assert wait_until(is_supervised, 120), [each.out.read_text()[-2000:] for each in rivals]
            assert len(list(made.iterdir())) == attempts + (not survived)
            if number in MACHINE_DIES:
                assert other.said("taken over from"), other.out.read_text()[-2000:]
                down.up.set()
        (made / "enough").touch()
        assert wait_until(lambda: not any(each.is_alive() for each in rivals), 120)
    finally:
        for each in rivals:
            each.end()
        head.stop()
    assert census.end() == 1
    known = 0
    for each in rivals:
        result = next(event for event in reversed(each.events()) if event.get("kind") == "result")
        assert result["success"], result
        known += check_lost_steps(result["attempts"], made)
    assert known >= (CRASHES - len(SURVIVED)) // 2


def check_lost_steps(attempts: list[dict[str, Any]], made: Path) -> int:
    """Compare a report with the steps that each training wrote down; returns of how many attempts it knows the loss.

    It does not know that of an attempt after which the other machine supervised.
    """
    known = 0
    for attempt, following in zip(attempts, attempts[1:]):
        [file] = made.glob(f"{attempt['job_id']}.*")
        steps = steps_of(file)
        if attempt["steps_lost"] is None:
            other_one = following["start_step"] is None or following["start_step"] > attempt["final_step"]
            assert other_one or not attempt["final_step_known"], attempt
            continue
        known += 1
        assert attempt["final_step"] == steps[-1], (attempt, steps[-3:])
        assert attempt["steps_lost"] == steps[-1] - following["start_step"], (attempt, following)
    return known
