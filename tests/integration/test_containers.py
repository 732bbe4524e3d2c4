"""Containers of a real Podman: trainings that work, crash, hang and finish, here and behind ssh.

The commands of Docker are the same; what it prints differently is in tests/unit/targets/test_container.py, recorded.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import run_command
from tests.integration.conftest import SshServer, Surroundings, wait_until
from tests.requirements import require

IMAGE = f"training-monitor-{uuid.uuid4().hex[:8]}"
MOUNTED = ("/usr", "/lib", "/lib64", sys.base_prefix)
TRAIN = """
import sys, time
last, then = int(sys.argv[1]), sys.argv[2]
for step in range(1, last + 1):
    print(f"step {step}/1000 loss: {5 / step:.4f}", flush=True)
    print(f"warning {step}", file=sys.stderr, flush=True)
    time.sleep(0.1)
if then == "hang":
    time.sleep(1000)
if then == "crash":
    raise RuntimeError("CUDA error: an illegal memory access was encountered")
"""
Start = Callable[..., str]


def podman(*words: str) -> str:
    return subprocess.run(["podman", *words], check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image of a shell and no more, made without a registry: the machine's own Python is mounted into it."""
    require("podman")
    folder = tmp_path_factory.mktemp("image")
    (folder / "bin").mkdir()
    shutil.copy(require("busybox"), folder / "bin" / "busybox")
    for name in subprocess.run(["busybox", "--list"], check=True, capture_output=True, text=True).stdout.split():
        if name != "busybox":
            (folder / "bin" / name).symlink_to("busybox")
    for name in ("proc", "dev", "tmp", "root", "work"):
        (folder / name).mkdir()
    with tarfile.open(folder.with_suffix(".tar"), "w") as archive:
        archive.add(folder, ".")
    podman("import", str(folder.with_suffix(".tar")), IMAGE)
    yield IMAGE
    podman("rmi", "--force", IMAGE)


@pytest.fixture
def start(image: str, surroundings: Surroundings, tmp_path: Path) -> Iterator[Start]:
    """Start a container and return its name; all end with the test."""
    (tmp_path / "train.py").write_text(TRAIN)
    mounts = [word for each in dict.fromkeys(MOUNTED) if os.path.exists(each) for word in ("-v", f"{each}:{each}:ro")]
    started: list[str] = []

    def begin(*words: object, name: str = "") -> str:
        name = name or f"train-{uuid.uuid4().hex[:8]}"
        limits = ["--network", "none", "--runtime", "runc", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=900:900"]
        podman("run", "-d", "--name", name, *limits, *mounts, "-v", f"{tmp_path}:/work:ro", image, *map(str, words))
        started.append(name)
        return name

    yield begin
    for name in started:
        podman("rm", "--force", "--time", "0", "--ignore", name)


def train(start: Start, steps: int, then: str = "end", name: str = "") -> str:
    return start(os.path.realpath(sys.executable), "/work/train.py", steps, then, name=name)


def check(*words: str, status: int | None = None) -> dict[str, Any]:
    done = run_command("check", *words, "--json")
    assert status is None or done.returncode == status, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert isinstance(report, dict)
    return report


def test_a_training_that_works_is_running_here_and_behind_ssh(start: Start, sshd: SshServer) -> None:
    name, crashed, other = train(start, 900), train(start, 2, "crash"), start("sleep", 900)
    assert wait_until(lambda: "step 5/" in podman("logs", name))
    [job] = check(f"podman://{name}", status=0)["jobs"]
    assert (job["state"], job["pid"], job["log"], job["target"]) == ("running", 1, "container:", f"podman://{name}")
    assert job["step"] >= 5 and job["total_steps"] == 1000
    target = f"podman://{sshd.address.removeprefix('ssh://')}/{name}"
    [job] = check(target, status=0)["jobs"]
    assert (job["state"], job["target"]) == ("running", target)
    pid, number = podman("inspect", "--format", "{{.State.Pid}} {{.Id}}", name).split()
    [job] = check("local", pid)["jobs"]  # the machine names the container of a process
    assert job["remedies"][-1].endswith(f"podman://{number[:12]}")
    assert check(f"podman://{number[:12]}")["jobs"][0]["pid"] == 1
    podman("wait", crashed)
    names = {job["name"] for job in check("podman://")["jobs"]}  # others may run on this machine
    assert name in names and crashed not in names and other not in names
    done = run_command("why", "podman://")
    assert done.returncode == 2 and "expected one of these running containers" in done.stderr and name in done.stderr


def test_both_outputs_are_shown_in_the_order_in_which_they_were_printed(start: Start) -> None:
    name = train(start, 3, "hang")
    assert wait_until(lambda: run_command("logs", f"podman://{name}").stdout.count("\n") == 6)
    lines = run_command("logs", f"podman://{name}").stdout.splitlines()
    assert lines[1::2] == ["warning 1", "warning 2", "warning 3"] and lines[0].startswith("step 1/1000")


@pytest.mark.parametrize(
    ("then", "verdict", "said"), [("crash", "failed", "illegal memory access"), ("end", "ok", "5 of 1000")]
)
def test_one_that_has_ended_is_judged_by_its_output_and_its_exit_code(
    start: Start, then: str, verdict: str, said: str
) -> None:
    name = train(start, 5, then)
    assert podman("wait", name).strip() == str(int(then == "crash"))
    report = check(f"podman://{name}")
    assert report["verdict"] == verdict and said in report["reason"], report["reason"]


def test_wait_ends_with_the_container(start: Start) -> None:
    done = run_command("wait", f"podman://{train(start, 30, 'crash')}", "--interval", "1", "--timeout", "60")
    assert done.returncode == 1 and "illegal memory access" in done.stdout, done.stdout + done.stderr


def test_a_hang_is_seen_and_explained(start: Start) -> None:
    name = train(start, 5, "hang")
    assert wait_until(lambda: "step 5/" in podman("logs", name))
    assert wait_until(lambda: check(f"podman://{name}", "--stall-after", "2")["jobs"][0]["state"] == "stalled", 30)
    done = run_command("why", f"podman://{name}", "--json")
    [rank] = json.loads(done.stdout)["ranks"]
    assert (rank["pid"], rank["host"]) == (1, f"podman://{name}")


def test_a_new_container_of_a_name_does_not_continue_the_former_one(start: Start) -> None:
    name = train(start, 3, "crash")
    podman("wait", name)
    assert check(f"podman://{name}")["verdict"] == "failed"
    podman("rm", name)
    train(start, 900, name=name)
    assert wait_until(lambda: "step 9/" in podman("logs", name))
    report = check(f"podman://{name}", status=0)
    assert "s/step" not in report["reason"], report["reason"]  # as if the steps between both had taken that long


def test_what_is_not_there_says_where_to_look(start: Start) -> None:
    done = run_command("check", "podman://nobody")
    assert done.returncode == 3 and "podman ps -a" in done.stderr, done.stderr
