"""Situations on loopback machines: what a reader of the skill alone types, and what must come out."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.evals.conftest import HEAD, put
from tests.evals.reader import Reader, advice
from tests.integration.conftest import SshServer, Surroundings, kill, wait_until
from tests.integration.roll_call_training import PYTHON, REPOSITORY, Plan, Training, place_of, running
from tests.loopback.kubernetes import KubernetesApi, Pod
from tests.loopback.ray_dashboard import RayDashboard
from training_monitor.cli import demo_training

HUNG = """
import os, sys, time
for step in range(1, 41):
    print(f"step {step}/500 loss {2.0 / step:.4f} 4.0 steps/s", flush=True)
os.utime("train.log", (time.time() - 1200,) * 2)  # as if the last step were twenty minutes ago
time.sleep(600)
"""
OUT_OF_MEMORY = """
for step in range(1, 13):
    print(f"step {step}/500 loss {2.0 / step:.4f}", flush=True)
class OutOfMemoryError(RuntimeError):
    __module__ = "torch"
raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB")
"""
SOCKETS = """\
node-1:211:411 [0] NCCL INFO NET/OFI No eligible providers were found
node-1:211:411 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.7<0>
node-1:211:411 [0] NCCL INFO Using network Socket
node-1:211:411 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0
"""


def start(folder: Path, script: str) -> subprocess.Popen[bytes]:
    """A training as `python3 train.py > train.log 2>&1 &` starts it."""
    put(folder / "train.py", script)
    with (folder / "train.log").open("wb") as log:
        return subprocess.Popen([sys.executable, "train.py"], cwd=folder, stdout=log, stderr=log)


def test_stalled(reader: Reader, surroundings: Surroundings, sshd: SshServer) -> None:
    reader.shown[sshd.address] = "ssh://me@gpu1"
    log = surroundings.folder / "lora" / "train.log"
    training = start(log.parent, HUNG)
    assert wait_until(lambda: "step 40/" in log.read_text() and time.time() - log.stat().st_mtime > 600)
    reader.is_asked("My LoRA on gpu1 has said nothing for a while. Is it stuck?")
    [job] = reader.types("check", sshd.address, str(log), "--json")["jobs"]
    assert (job["state"], job["step"], job["recommendation"]) == ("stalled", 40, "alert")
    assert job["seconds_without_step"] >= 1200 > job["limit_seconds"] > 0
    silence, limit = (f"{job[key] / 60:.0f} minutes" for key in ("seconds_without_step", "limit_seconds"))
    do = advice(job["verdict"], job["state"], reader.status)
    reader.concludes(f"It is stuck at step 40 of 500: no step for {silence}, and {limit} are the limit. Next: {do}.")
    assert do.startswith("run why and tell the user") and "ask the user whether to end" in do
    kill(training.pid)
    training.wait()


def test_hung(reader: Reader, surroundings: Surroundings) -> None:
    reader.shown |= {
        str(Path(PYTHON).parents[1]): "/usr",
        str(REPOSITORY): "/home/me/lib",
        socket.gethostname(): "gpu1",
    }
    training = Training(Plan(odd={1: "pipe"}, with_monitor=True), surroundings.folder / "llama")
    with running(training):
        training.wait_until_ready()
        reader.is_asked("My run with four ranks hangs. Which of them is it? I want to end it and start it again.")
        said = reader.types("why", "local", str(training.members[0].pid), "--json")
    [culprit] = said["culprits"]
    assert reader.status == 0 and (culprit["rank"], said["confidence"]) == (1, "high")
    file, line = place_of("odd: pipe")
    assert culprit["where"] == f"{file}:{line} load_batch" and culprit["pid"] == training.members[1].pid
    reader.concludes(f"{said['explanation']} It still runs: a start without a change there would hang again.")


def test_out_of_memory(reader: Reader, surroundings: Surroundings, head: Pod) -> None:
    log = head.root / "run" / "train.log"
    assert start(log.parent, OUT_OF_MEMORY).wait(60) == 1
    reader.is_asked("The training in my pod is gone. Why, and shall I just start it again?")
    [job] = reader.types("check", HEAD, str(log), "--json")["jobs"]
    assert (job["verdict"], job["state"], job["step"]) == ("failed", "failed", 12)
    failure = job["failure"]
    assert (failure["category"], failure["action"]) == ("cuda_oom", "stop")
    assert "CUDA out of memory" in failure["evidence"]
    do = advice(job["verdict"], job["state"], reader.status)
    reader.concludes(
        f"It failed at step 12: {failure['evidence']}. The advice is to {failure['action']}: the same start would fail "
        f"again. Next: {do}."
    )


def test_finished(reader: Reader, head: Pod, dashboard: RayDashboard) -> None:
    dashboard.add_job("my-training-attempt-1", "SUCCEEDED", "step 40/40 loss=0.1\n")
    reader.is_asked("Is my-training on the cluster done?")
    [job] = reader.types("check", HEAD, "my-training-attempt-1", "--json")["jobs"]
    assert (job["verdict"], job["state"], job["step"]) == ("ok", "finished", 40)
    do = advice(job["verdict"], job["state"], reader.status)
    reader.concludes(f"It is finished, at step 40 of 40. Next: {do}.")
    assert do == "nothing"


def test_unreachable(reader: Reader, surroundings: Surroundings, sshd: SshServer) -> None:
    reader.shown[sshd.address] = "ssh://me@gpu1"
    sshd.stop()
    reader.is_asked("gpu1 looks dead to me. Restart my training elsewhere?")
    said = reader.types("check", sshd.address, "--json")
    assert reader.status == 3 and said["kind"] == "TargetUnreachable" and said["hint"]
    do = advice("unknown", "unknown", reader.status)
    reader.concludes(f"Not known: the host did not answer, which says nothing of the training. No restart. Next: {do}.")
    assert "check again" in do


def test_nccl_on_tcp(reader: Reader, kube: KubernetesApi, surroundings: Surroundings, head: Pod) -> None:
    worker = surroundings.folder / "worker"
    kube.add_pod("training-worker-def456", root=worker, env={**head.env, "RAY_TMPDIR": str(worker)})
    for root in (head.root, worker):
        put(root / "ray" / "session_latest" / "logs" / "worker-1.out", SOCKETS)
    reader.is_asked("All ranks run, but each step takes five times as long as last week. We pay for EFA: is it used?")
    said = reader.types("health", HEAD, "--only", "efa", "--pods", "training-worker-def456", "--json")
    assert (reader.status, said["efa_active"], said["transport"]) == (1, False, "socket")
    assert {node["pod"]: node["transport"] for node in said["per_node"]} == {
        HEAD: "socket",
        "training-worker-def456": "socket",
    }
    reader.concludes(f"NCCL talks over TCP on {len(said['per_node'])} of 2 pods, not over EFA: {said['details']}")


def test_corrupt_newest_checkpoint(reader: Reader, surroundings: Surroundings, head: Pod) -> None:
    folder, weights = head.root / "checkpoints", demo_training.new_weights()
    for step in (100, 200, 300):
        whole = demo_training.encode_checkpoint(weights, step)
        put(folder / f"step_{step}" / "model.safetensors", whole[:400] if step == 300 else whole)
        os.utime(folder / f"step_{step}" / "model.safetensors", (time.time() - 3600,) * 2)
    reader.is_asked("The pod ran out of disk while it saved. From where can my training resume?")
    said = reader.types("checkpoints", HEAD, str(folder), "--json")
    newest, latest = said["checkpoints"][-1], said["checkpoint"]
    assert (newest["step"], newest["complete"], latest["step"]) == (300, False, 200)
    assert "truncated" in newest["problem"]
    reader.concludes(f"From {latest['path']}. Step {newest['step']} cannot be used: {newest['problem']}.")
