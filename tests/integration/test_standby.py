"""examples/kubernetes/standby.yaml: of two pods, one acts, and the other one continues when that is killed.

The pods are processes with a host name and a state folder each, started by the command of the manifest; kubectl and Ray
are real.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Surroundings, wait_until
from tests.integration.ray_cluster import ProcessCensus, RayHead, endless_training, kill_trainings
from tests.integration.test_kubernetes_examples import STANDBY, named, pod_templates, script_of
from tests.loopback.kubernetes import KubernetesApi

LEASE = 6


class SupervisorPod:
    """One replica: `start` starts its container, whose state outlives it."""

    def __init__(self, name: str, surroundings: Surroundings) -> None:
        self.name, self.out = name, surroundings.folder / f"{name}.out"
        words, environ = script_of(surroundings, *STANDBY)
        words[-1] = words[-1].replace(" --json", " --json --retry-delay 1 --interval 2")  # else it takes minutes
        self._words = ["unshare", "--uts", "sh", "-c", f'hostname {name}; exec "$@"', "sh", *words]
        state = {"TRAINING_MONITOR_STATE_DIR": str(surroundings.folder / f"state of {name}")}
        self._environ = {**environ, **state, "TRAINING_MONITOR_LEASE": str(LEASE)}
        self.out.touch()
        self.start()

    def start(self) -> None:
        with self.out.open("a") as out:
            self.process = subprocess.Popen(self._words, env=self._environ, stdout=out, stderr=out)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.read_text().splitlines() if line.startswith("{")]

    def says(self, text: str) -> None:
        """Wait until it has said this."""
        is_said = wait_until(lambda: any(text in event.get("text", "") for event in self.events()), 120)
        assert is_said, f"{text!r}: {self.out.read_text()[-3000:]}"

    def result(self) -> dict[str, Any]:
        assert self.process.wait(120) == 0, self.out.read_text()[-3000:]
        return self.events()[-1]


@pytest.fixture
def head(lean_ray: Path, kube: KubernetesApi, surroundings: Surroundings) -> Iterator[RayHead]:
    found = RayHead(lean_ray)
    labels = {**pod_templates(named("RayJob"))[0]["metadata"]["labels"], "ray.io/node-type": "head"}
    try:
        found.start()
        kube.add_pod("my-training-7h2xk-head-v9q4z", labels=labels, env=found.pod_environment)
        yield found
    finally:
        found.stop()


@pytest.mark.timeout(600)
def test_of_two_replicas_one_acts_and_the_other_continues_when_that_is_killed(
    head: RayHead, surroundings: Surroundings
) -> None:
    folder = surroundings.folder / "checkpoints" / "my-training"
    entrypoint, made = endless_training(folder)
    census, pods = ProcessCensus(str(folder)), list[SupervisorPod]()
    census.start()
    try:
        head.submit("my-training", entrypoint)
        first = SupervisorPod("supervisors-a", surroundings)
        pods.append(first)
        first.says("my-training")
        second = SupervisorPod("supervisors-b", surroundings)
        pods.append(second)
        second.says("waiting until it ends")
        assert wait_until(lambda: (folder / "c" / "step_20").exists(), 120)
        kill_trainings(str(folder))
        first.says("my-training-attempt-2 started")

        first.kill()  # the container, which the kubelet starts again in the same pod
        first.start()
        first.says("resuming the supervision of my-training: 1 restart so far")
        time.sleep(LEASE + 2)
        assert first.process.poll() is second.process.poll() is None
        assert len(second.events()) == 1, second.out.read_text()

        first.kill()  # with its node
        killed = time.monotonic()
        second.says("taken over from ")
        assert time.monotonic() - killed >= LEASE / 2
        second.says("my-training-attempt-2 is RUNNING: supervising it")
        kill_trainings(str(folder))
        second.says("my-training-attempt-3 started")
        first.start()  # the node is back
        first.says("waiting until it ends")

        (made / "enough").touch()
        result = second.result()
        assert (result["success"], result["total_retries"]) == (True, 1), result
        names = ["my-training-attempt-2", "my-training-attempt-3"]
        assert [each["job_id"] for each in result["attempts"]] == names
        former = first.result()
        assert former["reason"].startswith("completed: ") and "supervisors-b" in former["reason"]
        assert set(head.jobs()) == {"my-training", *names}
    finally:
        for each in pods:
            each.kill()
        assert census.end() == 1
