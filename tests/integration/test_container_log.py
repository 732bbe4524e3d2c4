"""Pods whose training is their process 1 and prints to the container's log, by the real kubectl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import run_command
from tests.integration.conftest import Surroundings, wait_until
from tests.integration.ray_cluster import record_calls
from tests.loopback.kubernetes import NO_PROCESSES, ContainerState, KubernetesApi, Pod
from tests.requirements import require
from training_monitor import JobMonitor, get_training_health
from training_monitor.look.meant import find_one

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


def test_the_first_command_its_pid_and_its_name_read_the_containers_log(train: Pod, kube: KubernetesApi) -> None:
    job = check("train")
    assert (job["state"], job["verdict"], job["pid"], job["total_steps"]) == ("running", "ok", 1, 1000)
    assert job["step"] >= 5 and job["log"] == "container:"
    assert len(kube.log_reads) == 1 and len(kube.execs) == 2  # to find it, and to look
    assert check("train", "1")["step"] >= 5
    assert "step 3/1000" in run_command("logs", "train", "container:", "--tail", "2000").stdout


@pytest.mark.parametrize("output", ["a log", "its container's log"])
def test_a_look_takes_one_exec_and_where_there_is_no_log_one_kubectl_logs(
    kube: KubernetesApi, surroundings: Surroundings, output: str
) -> None:
    """By the programs that are started, of which the first command needs two more: to find it, and to see its pod."""
    require("unshare")
    pod = kube.add_pod("train", restart_policy="Never")
    (pod.root / "train.py").write_text(TRAIN)
    run = f"{sys.executable} train.py 0"
    pod.start(["sh", "-c", f"{run} >run.log 2>&1" if output == "a log" else f"exec {run}"])
    notes = record_calls(surroundings.folder / "counted", os.environ["PATH"], "kubectl")
    logs: Counter[str] = Counter() if output == "a log" else Counter(logs=1)

    def counted(call: Callable[[], object]) -> Counter[str]:
        notes.write_text("")
        call()
        return Counter(each for each in notes.read_text().split() if each in ("get", "exec", "logs"))

    with pytest.MonkeyPatch.context() as patches:
        patches.setenv("PATH", f"{notes.parent}{os.pathsep}{os.environ['PATH']}")
        try:
            log = pod.root / "run.log"
            wait_until(lambda: "step 6/" in (log.read_text() if log.exists() else "".join(pod.logs.get("main", ()))))
            assert check("train")["step"] > 5
            further = JobMonitor("train", find_one("train").job)
            assert counted(lambda: check("train")) == Counter(get=1, exec=2) + logs
            assert counted(further.update) == Counter(exec=1) + logs
        finally:
            pod.stop()


def test_process_1_is_not_to_be_ended_by_us(train: Pod) -> None:
    for command, *options in (("stop",), ("stop", "--notify"), ("watch", "--terminate")):
        refused = run_command(command, "train", "1", *options)
        assert refused.returncode == 2 and "delete the pod" in refused.stderr, refused
    assert train.main and train.main.poll() is None


@pytest.mark.parametrize(
    ("named", "ending", "state", "verdict", "status"),
    [
        ([], ("Succeeded", 0, "Completed"), "finished", "ok", 0),
        (["1"], ("Failed", 137, "OOMKilled"), "failed", "failed", 1),
    ],
    ids=["finished", "killed for memory"],
)
def test_the_end_of_a_pod_is_the_answer(
    train: Pod, named: list[str], ending: tuple[str, int, str], state: str, verdict: str, status: int
) -> None:
    check("train")
    train.end(*ending)
    job = check("train", *named, status=status)
    assert (job["state"], job["verdict"]) == (state, verdict) and job["step"] >= 5, job["reason"]
    assert (job["failure"] or {}).get("category") == ("host_oom" if status else None), job["failure"]


def test_a_container_that_is_restarted_loses_no_line_of_its_log(train: Pod, kube: KubernetesApi) -> None:
    from training_monitor.logs.sources import CONTAINER_LOG, source_named
    from training_monitor.targets.asking import Site

    site, text, cursor = Site.of("train"), "", None
    for turn in range(3):
        new = site.ask_one(source_named(CONTAINER_LOG, "log").read(cursor, 64 * 1024))
        text, cursor = text + new.text, new.cursor
        train.restart([sys.executable, "train.py", f"{turn + 1}00"], "Error", 1)
        wait_until(lambda: len(train.logs["main"]) > 3)
    text += site.ask_one(source_named(CONTAINER_LOG, "log").read(cursor, 64 * 1024)).text
    numbers = [int(line.split("/")[0].removeprefix("step ")) for line in text.splitlines()]
    assert numbers[0] == 0 and {100, 200, 300} <= set(numbers)
    assert all(later in (before + 1, 100, 200, 300) for before, later in zip(numbers, numbers[1:])), numbers


def test_a_bare_pod_is_in_the_namespace_of_the_context(kube: KubernetesApi) -> None:
    require("unshare")
    pod = kube.add_pod("train-team", namespace="team")
    (pod.root / "train.py").write_text(TRAIN)
    pod.start([sys.executable, "train.py", "0"])
    try:
        wait_until(lambda: len(pod.logs.get("main", ())) > 5)
        kubectl = [require("kubectl"), "config", "use-context", "elsewhere"]
        subprocess.run(kubectl, check=True, capture_output=True)
        assert check("train-team")["step"] >= 5
        assert check("train-team", "-n", "team")["step"] >= 5
        other = run_command("check", "train-team", "-n", "default")
        assert other.returncode in (2, 3) and '"train-team" not found' in other.stderr, other
    finally:
        pod.stop()


def test_a_pod_that_there_is_not_is_answered_with_those_of_like_names(train: Pod, kube: KubernetesApi) -> None:
    for name in ("llm-master-0", "llm-worker-0"):
        kube.add_pod(name)
    for typed, meant in {"llm": "llm-master-0 or k8s://default/llm-worker-0", "trian": "train"}.items():
        done = run_command("check", typed)
        assert done.returncode == 3 and f"did you mean k8s://default/{meant}?" in done.stderr, done


def test_a_job_that_may_not_create_pods_is_answered_with_the_warnings_of_its_cluster(kube: KubernetesApi) -> None:
    over = 'Error creating: pods "llm-x7k2p" is forbidden: exceeded quota: gpus, requested: nvidia.com/gpu=8'
    for number, (kind, name, reason, message) in enumerate(
        [
            ("Job", "llm", "FailedCreate", over),
            ("Job", "llm", "FailedCreate", over),
            ("Pod", "llm", "BackOff", "of a pod"),
            ("Job", "llm-eval", "FailedCreate", "of another job"),
        ]
    ):
        metadata = {"name": f"{name}.{number}", "namespace": "default"}
        about = {"kind": kind, "name": name, "namespace": "default"}
        event = {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": about, "type": "Warning"}
        kube.events.append({**event, "reason": reason, "message": message})
    for typed in ("llm", "llm-x7k2p"):
        done = run_command("check", typed)
        assert done.returncode == 3 and done.stderr.count(f"job llm: FailedCreate: {over}") == 1, done
        assert "of another job" not in done.stderr and "of a pod" not in done.stderr, done


@pytest.fixture(params=[{"trainer": 1}, {}], ids=["with GPUs", "without"])
def meshed(kube: KubernetesApi, request: pytest.FixtureRequest) -> Iterator[Pod]:
    """A pod whose training runs behind a sidecar."""
    require("unshare")
    pod = kube.add_pod("meshed", containers=["proxy", "trainer"], gpus=request.param, restart_policy="Never")
    (pod.root / "train.py").write_text(TRAIN)
    pod.start([sys.executable, "train.py", "0"], container="trainer")
    wait_until(lambda: len(pod.logs.get("trainer", ())) > 5)
    yield pod
    pod.stop()


def test_the_training_is_found_behind_a_sidecar(meshed: Pod) -> None:
    done = json.loads(run_command("check", "meshed", "--json").stdout)
    assert done["target"] == "k8s://default/meshed/trainer" and done["jobs"][0]["step"] >= 5
    assert any("k8s://default/meshed/proxy" in each for each in done["remedies"]), done
    if not meshed.gpus:
        return
    assert json.loads(run_command("check", "meshed", "1", "--json").stdout)["jobs"][0]["step"] >= 5
    proxy = json.loads(run_command("check", "k8s://default/meshed/proxy", "--json").stdout)
    assert (proxy["jobs"], proxy["target"]) == ([], "k8s://default/meshed/proxy")


def test_a_training_that_ended_beside_a_living_sidecar_has_ended(kube: KubernetesApi) -> None:
    for order in (["trainer", "proxy"], ["proxy", "trainer"]):  # none with GPUs
        pod = kube.add_pod("meshed", containers=order, restart_policy="Never", enter=tuple(NO_PROCESSES))
        pod.states["trainer"] = ContainerState(terminated="Error", exit_code=7)
        done = json.loads(run_command("check", "meshed", "--json").stdout)
        assert (done["target"], done["verdict"]) == ("k8s://default/meshed/trainer", "failed"), done
        assert "exit code 7" in done["reason"]
        pod.states["proxy"] = ContainerState(waiting="CrashLoopBackOff", last_terminated="Error")
        code = run_command("check", "meshed", "--json").returncode
        assert code == (3 if order[0] == "trainer" else 1)  # unknown, or that of the default container, which crashes


READERS = {
    "wait": (["wait", "meshed", "--timeout", "1"], "finished was not met within 1s"),
    "logs": (["logs", "meshed", "1", "--tail", "2000"], "step 3/1000"),
    "why": (["why", "meshed"], "train.py"),
    "fleet": (["fleet", "meshed", "--once"], "/1000"),
    "logs of the container": (["logs", "meshed", "container:", "--tail", "2000"], "step 3/1000"),
    "watch a PID": (["watch", "meshed", "1", "--once"], "running  "),
    "health": (["health", "meshed"], ""),
}


def test_commands_that_read_take_the_same_container(meshed: Pod, kube: KubernetesApi, tmp_path: Path) -> None:
    for reader, (words, said) in [*READERS.items()][not meshed.gpus :: 2]:
        kube.execs.clear()
        done = run_command(*words, TRAINING_MONITOR_STATE_DIR=str(tmp_path / f"state of {reader}"))
        assert said in done.stdout, (reader, done)
        asked = {each.container for each in kube.execs}
        if not meshed.gpus:
            assert kube.execs[-1].container == "trainer", (reader, kube.execs)
        elif reader == "health":  # it asks the default container while it does not know yet which one has the GPUs
            assert asked <= {"trainer", "proxy"} and kube.execs[-1].container == "trainer", kube.execs
        else:
            assert asked <= {"trainer"}, (reader, kube.execs)


def test_health_asks_once_where_the_default_container_is_meant(kube: KubernetesApi) -> None:
    kube.add_pod("plain", containers=["trainer", "logger"], gpus={"trainer": 1})
    get_training_health("plain", None)
    assert [each.container for each in kube.execs] == ["trainer"]
