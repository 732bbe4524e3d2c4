"""A pod that has ended is an answer, whoever asks: finished, or failed with its reason; by the real kubectl."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from tests.integration.commands import PYTHON, run_command
from tests.integration.conftest import wait_until
from tests.loopback.kubernetes import ContainerState, KubernetesApi, Pod
from tests.requirements import require

TRAIN = """
import time
for step in range(100000):
    print(f"step {step}/100000 loss: 0.5", flush=True)
    time.sleep(0.1)
"""
# How a pod ends, and what is said of it: its state, its reason and the kind of failure.
ENDS = {
    "finished": (("Succeeded", 0, "Completed"), "finished", "Completed (exit code 0", None),
    "failed": (("Failed", 1, "Error"), "failed", "Error (exit code 1", "unknown"),
    "killed for memory": (("Failed", 137, "OOMKilled"), "failed", "OOMKilled (exit code 137", "host_oom"),
    "evicted": (("Failed", 137, "Error"), "failed", "Evicted: the node was low on memory", "evicted"),
    "out of time": (("Failed", 143, "Error"), "failed", "DeadlineExceeded (exit code 143", "time_limit"),
    "preempted": (("Failed", 143, "Error"), "failed", "Preempting (exit code 143", "preemption"),
}
OF_POD = {  # what its status says beside its containers
    "evicted": ("Evicted", "the node was low on memory"),
    "out of time": ("DeadlineExceeded", ""),
    "preempted": ("Preempting", ""),
}


def start(kube: KubernetesApi, name: str) -> Pod:
    require("unshare")
    pod = kube.add_pod(name, restart_policy="Never")
    (pod.root / "train.py").write_text(TRAIN)
    pod.start([sys.executable, "train.py"])
    wait_until(lambda: len(pod.logs.get("main", ())) > 5)
    return pod


@pytest.fixture
def train(kube: KubernetesApi) -> Iterator[Pod]:
    pod = start(kube, "train-3f")
    yield pod
    pod.stop()


def end(pod: Pod, how: str) -> None:
    pod.reason, pod.message = OF_POD.get(how, ("", ""))
    pod.end(*ENDS[how][0])


def test_the_fleet_says_how_each_ended_and_where(kube: KubernetesApi, subtests: pytest.Subtests) -> None:
    names = {how: f"train-{how.replace(' ', '-')}" for how in ENDS}
    for how, name in names.items():
        end(start(kube, name), how)
    done = run_command("fleet", *names.values(), "--once", "--json")
    assert done.returncode == 1 and run_command("fleet", names["finished"], "--once").returncode == 0
    for member, (how, (_, state, reason, category)) in zip(json.loads(done.stdout)["members"], ENDS.items()):
        with subtests.test(how):
            assert member["state"] == state and reason in member["message"], member
            assert member["error"] is None and member["step"] >= 5, member
            assert (member["failure"] or {}).get("category") == category


@pytest.mark.parametrize("how", ["finished", "evicted"])
def test_its_supervision_ends_with_it(how: str, train: Pod) -> None:
    words = [PYTHON, "-m", "training_monitor", "run", "--target", train.name, "--name", "llm", "--interval", "1"]
    supervisor = subprocess.Popen(
        [*words, "--json", "--", sys.executable, "train.py"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    log = train.root / ".training_monitor/jobs/llm-attempt-1/log"
    assert wait_until(lambda: log.exists() and "step 5/" in log.read_text(), 60)
    end(train, how)
    said, errors = supervisor.communicate(timeout=60)
    *_, report = map(json.loads, said.splitlines())
    _, state, reason, category = ENDS[how]
    is_finished = state == "finished"
    assert (report["success"], supervisor.returncode) == (is_finished, 0 if is_finished else 1), said + errors
    assert report["reason"].startswith("completed: " if is_finished else "restart_failed: "), report
    assert reason in report["reason"] and report["total_retries"] == 0
    [attempt] = report["attempts"]
    assert (attempt["failure"] or {}).get("category") == category, attempt
    if not is_finished:
        assert "no attempt can start in a pod that has terminated" in report["reason"]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("finished", ("wait",)),
        ("killed for memory", ("wait",)),
        ("finished", ("wait", "--for", "step=99999")),
        ("killed for memory", ("watch",)),
    ],
)
def test_its_end_is_seen_by_the_next_look(how: str, words: tuple[str, ...], train: Pod, kube: KubernetesApi) -> None:
    def end_after_a_look() -> None:
        wait_until(lambda: len(kube.log_reads) >= 2)  # one to find it, one to look
        time.sleep(0.5)
        end(train, how)

    ends = threading.Thread(target=end_after_a_look)
    ends.start()
    command, *more = words
    done = run_command(command, train.name, *more, "--interval", "2")
    ends.join()
    state = ENDS[how][1]
    is_met = state == "finished" and "step=99999" not in words
    assert done.returncode == (0 if is_met else 1), done
    assert state in done.stdout, done


@pytest.mark.parametrize("command", ["why", "status"])
def test_what_can_no_longer_be_asked_says_how_it_ended(command: str, train: Pod) -> None:
    end(train, "killed for memory")
    done = run_command(command, train.name)
    assert done.returncode == 3 and f"pod {train.name} is Failed: OOMKilled (exit code 137, at " in done.stderr, done
    assert done.stderr.count("is Failed") == 1 and "taken for" not in done.stderr


def test_the_check_of_an_ended_pod_does_not_tell_what_a_search_covers(train: Pod) -> None:
    end(train, "killed for memory")
    done = run_command("check", train.name)
    assert done.returncode == 1 and "step" in done.stdout and not done.stderr, done


def test_a_container_that_has_ended_beside_others_says_how(kube: KubernetesApi, subtests: pytest.Subtests) -> None:
    require("unshare")
    done, failed = ContainerState(terminated="Completed", exit_code=0), ContainerState(terminated="Error", exit_code=1)
    for name, states in {"train-0": {"trainer": done}, "train-1": {"prepare": done, "trainer": failed}}.items():
        pod = kube.add_pod(name, containers=[*states, "proxy"], restart_policy="Never", states=states)
        pod.start(["sleep", "1000"], "proxy")  # with no processes but this one
    for words, code, said in [
        ("status train-0", 3, "pod train-0: Completed (container trainer, exit code 0, at "),
        ("check train-0", 0, "finished"),
        ("stop train-0", 0, "k8s://default/train-0/trainer has ended"),
        ("check train-1", 3, "pod train-1: Completed (container prepare, exit code 0, at "),
        ("check k8s://default/train-1/trainer", 1, "pod train-1/trainer is Failed: Error (exit code 1, at "),
    ]:
        with subtests.test(words):
            answer = run_command(*words.split())
            assert answer.returncode == code and said in answer.stdout + answer.stderr, answer


def test_a_pod_that_cannot_start_says_why_and_what_to_do(kube: KubernetesApi, subtests: pytest.Subtests) -> None:
    kube.add_pod("train-0", phase="Pending", states={"main": ContainerState(waiting="ErrImageNeverPull")})
    advice = "imagePullPolicy"
    for command, code in {
        "check": 1,
        "why": 3,
        "health": 1,
        "fleet --once": 1,
        "wait --timeout 1s": 3,
        "logs": 3,
    }.items():
        with subtests.test(command):
            done = run_command(*command.split(), "train-0")
            assert done.returncode == code and "ErrImageNeverPull" in done.stdout + done.stderr, done
            assert advice in done.stdout + done.stderr, done
            assert "could not be queried" not in done.stdout and "Could not read GPU" not in done.stdout, done
    done = run_command("stop", "train-0")
    assert done.returncode not in (0, 3) and "ErrImageNeverPull" in done.stderr, done
    assert "delete the pod" in done.stderr, done


def test_the_health_of_a_pod_that_waits_for_a_node_is_unknown(kube: KubernetesApi) -> None:
    kube.add_pod("train-0", phase="Pending", node="", reason="Unschedulable", message="3 Insufficient nvidia.com/gpu")
    report = json.loads(run_command("health", "train-0", "--json").stdout)
    assert report["verdict"] == "unknown" and not report["healthy"]
    [issue], [remedy] = report["issues"], report["remedies"]
    assert "Insufficient nvidia.com/gpu" in issue and "wait until other pods release" in remedy


def test_health_looks_at_the_container_in_which_the_training_runs(kube: KubernetesApi) -> None:
    require("unshare")
    pod = kube.add_pod("train-0", containers=["proxy", "trainer"])
    (pod.root / "train.py").write_text(TRAIN)
    pod.start([sys.executable, "train.py"], "trainer")
    assert wait_until(lambda: len(pod.logs.get("trainer", ())) > 5)
    report = json.loads(run_command("health", "train-0", "--json").stdout)
    pod.stop()
    assert not report["silent"] and kube.execs[-1].container == "trainer", report
