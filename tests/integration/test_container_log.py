"""Pods whose training is their process 1 and prints to the container's log, by the real kubectl."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.commands import run_command
from tests.integration.conftest import wait_until
from tests.loopback.kubernetes import KubernetesApi, Pod
from tests.requirements import require

TRAIN = """
import sys, time
for step in range(int(sys.argv[1]), 1000):
    print(f"step {step}/1000 loss: 0.5", flush=True)
    time.sleep(0.1)
"""


@pytest.fixture
def train(kube: KubernetesApi) -> Iterator[Pod]:
    """A pod with `command: [python, train.py]`."""
    require("unshare")
    pod = kube.add_pod("train", restart_policy="Never")
    (pod.root / "train.py").write_text(TRAIN)
    pod.start([sys.executable, "train.py", "0"])
    wait_until(lambda: len(pod.logs.get("main", ())) > 5)
    yield pod
    pod.stop()


def check(*words: str, status: int = 0) -> dict[str, Any]:
    done = run_command("check", *words, "--json")
    assert done.returncode == status, done.stdout + done.stderr
    [job] = json.loads(done.stdout)["jobs"]
    assert isinstance(job, dict)
    return job


def test_the_first_command_reads_the_containers_log(train: Pod, kube: KubernetesApi) -> None:
    job = check("train")
    assert (job["state"], job["verdict"], job["pid"], job["total_steps"]) == ("running", "ok", 1, 1000)
    assert job["step"] >= 5 and job["log"] == "container:"
    assert len(kube.log_reads) == 1 and len(kube.execs) == 2  # to find it, and to look


def test_its_pid_and_its_log_are_what_it_is_called(train: Pod) -> None:
    assert check("train", "1")["step"] >= 5
    assert "step 3/1000" in run_command("logs", "train", "container:").stdout


@pytest.mark.parametrize("words", [("terminate",), ("watch", "--terminate")])
def test_process_1_is_not_to_be_ended_by_us(train: Pod, words: tuple[str, ...]) -> None:
    refused = run_command(words[0], "train", "1", *words[1:])
    assert refused.returncode == 2 and "delete the pod" in refused.stderr, refused
    assert train.main and train.main.poll() is None
