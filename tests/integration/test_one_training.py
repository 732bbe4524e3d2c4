"""Which processes are one training: ranks of two jobs with one script, ranks in pods of their own, workers of Ray."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.integration.conftest import Surroundings, free_port, kill_sessions, wait_until
from tests.integration.roll_call_training import OURS
from tests.loopback.kubernetes import KubernetesApi, Pod
from tests.requirements import require
from training_monitor.look.check import check_training
from training_monitor.why.explain import explain_training
from training_monitor.why.report import ExplanationReport

# A rank: what it does at the end is its last argument; beside it is a file that says that it is there.
TRAIN = """
import os
import socket
import sys
import time


def load_batch():
    os.read(os.pipe()[0], 1)


def meet():
    one, other = socket.socketpair()
    one.recv(1)


def import_libraries():
    time.sleep(3600)


print("step 7/1000 loss 0.5", flush=True)
open(sys.argv[2], "w").close()
globals()[sys.argv[1]]()
"""
# Stands for torchrun: it starts a rank for each of its arguments, and waits for them.
TORCHRUN = """
import os
import subprocess
import sys

port, script, *ranks = sys.argv[1:]
count = str(len(ranks))
both = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
started = [
    subprocess.Popen(
        [sys.executable, script, does, f"{port}-{number}"],
        env={**os.environ, **both, "RANK": str(number), "LOCAL_RANK": str(number)},
    )
    for number, does in enumerate(ranks)
]
for each in started:
    each.wait()
"""
# Starts two of them, which then have a training as their parent.
SWEEP = """
import subprocess
import sys

started = [subprocess.Popen([sys.executable, "torchrun", *each.split(",")]) for each in sys.argv[1:]]
for each in started:
    each.wait()
"""
# Starts the same rank twice.
TWICE = """
import os
import subprocess
import sys

for name in "ab":
    subprocess.Popen([sys.executable, "train.py", "meet", name], env={**os.environ, "RANK": "0", "WORLD_SIZE": "2"})
os.wait()
"""
# The main loop of a worker of Ray, and the method of an actor in it.
WORKER = """
import os
import runpy
import sys
import time


def main_loop():
    if len(sys.argv) < 3:
        open(sys.argv[1], "w").close()
        time.sleep(3600)
    runpy.run_path("train.py")


main_loop()
"""

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(surroundings: Surroundings) -> Iterator[Start]:
    """Start Python with these words and variables in a session of its own; py-spy is on PATH."""
    (surroundings.tools / "py-spy").symlink_to(require("py-spy"))
    ray = surroundings.folder / "site-packages/ray/_private"
    ray.mkdir(parents=True)
    (ray / "worker.py").write_text(WORKER)
    texts = {"train.py": TRAIN, "main.py": TRAIN, "torchrun": TORCHRUN, "train_sweep.py": SWEEP, "twice.py": TWICE}
    for name, text in texts.items():
        (surroundings.folder / name).write_text(text)
    known = {name: value for name, value in os.environ.items() if name not in OURS}
    started: list[subprocess.Popen[bytes]] = []

    def run(*words: str, title: str = sys.executable, **variables: str) -> subprocess.Popen[bytes]:
        with (surroundings.folder / f"{len(started)}.log").open("wb") as log:
            process = subprocess.Popen(
                [title, *words],
                executable=sys.executable,
                cwd=surroundings.folder,
                env={**known, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        started.append(process)
        return process

    yield run
    kill_sessions(started)


def wait_for_files(folder: Path, *names: str) -> None:
    assert wait_until(lambda: all((folder / name).exists() for name in names)), list(folder.iterdir())


def ranks_of(report: ExplanationReport) -> list[tuple[int | None, int]]:
    return [(each["rank"], each["pid"]) for each in report["ranks"]]


def children_of(pid: int) -> list[int]:
    return sorted(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def explain(what: int | str | None, target: str = "local", also: Sequence[str] = ()) -> ExplanationReport:
    return explain_training(target, what, also=also, timeout=60)


@pytest.mark.parametrize("has_common_parent", [False, True])
def test_ranks_of_two_torchrun_jobs_with_one_script_are_not_mixed(
    has_common_parent: bool, start: Start, surroundings: Surroundings
) -> None:
    ports = free_port(), free_port()
    jobs = [[str(ports[0]), "train.py", "meet", "meet", "load_batch"], [str(ports[1]), "train.py", "meet", "meet"]]
    if has_common_parent:
        both = start("train_sweep.py", *map(",".join, jobs))
        wait_for_files(surroundings.folder, *(f"{port}-1" for port in ports))
        launchers = children_of(both.pid)
    else:
        launchers = [start("torchrun", *job).pid for job in jobs]
    wait_for_files(surroundings.folder, f"{ports[0]}-2", *(f"{port}-{each}" for port in ports for each in (0, 1)))
    of_first, of_second = map(children_of, launchers)
    for named in of_first[::2] if has_common_parent else launchers[:1]:
        report = explain(named)
        said = report["explanation"]
        assert ranks_of(report) == list(enumerate(of_first)), said
        assert ([each["rank"] for each in report["culprits"]], report["confidence"]) == ([2], "high"), said
        assert (report["missing_ranks"], report["unseen_ranks"]) == ([], [])
    if has_common_parent:
        report = explain(of_second[1])
        assert ranks_of(report) == list(enumerate(of_second)) and report["culprits"] == []
        report = explain(both.pid)
        assert (report["culprits"], report["confidence"]) == ([], "none")
        assert "cannot belong to one training: their rendezvous addresses differ (" in report["explanation"]


def test_ranks_with_one_number_and_no_known_place_are_no_answer(start: Start, surroundings: Surroundings) -> None:
    parent = start("twice.py")
    wait_for_files(surroundings.folder, "a", "b")
    pids = children_of(parent.pid)
    report = explain(pids[0])
    said = report["explanation"]
    assert (report["culprits"], report["confidence"], report["missing_ranks"]) == ([], "none", []), said
    assert "2 processes have rank 0" in said


@pytest.fixture
def pair(kube: KubernetesApi, surroundings: Surroundings, start: Start) -> list[Pod]:
    """Two pods of one Kubeflow job, a rank as process 1 of each; rank 1 has not come to its first call of CUDA."""
    require("unshare")
    shared = {"MASTER_ADDR": "w-0", "MASTER_PORT": "23456", "WORLD_SIZE": "2"}
    labels = {"training.kubeflow.org/job-name": "pair"}
    pods = []
    for number, does in enumerate(("meet", "import_libraries")):
        environment = {"TRAINING_MONITOR_TEST": surroundings.mark, **shared, "RANK": str(number)}
        pods.append(kube.add_pod(f"w-{number}", labels=labels, node=f"node-{number}", env=environment))
        pods[-1].start(
            [sys.executable, str(surroundings.folder / "main.py"), does, str(surroundings.folder / str(number))]
        )
    wait_for_files(surroundings.folder, "0", "1")
    return pods


def test_a_rank_in_each_pod_of_a_kubeflow_job_is_found_and_none_is_missing(pair: list[Pod]) -> None:
    found = check_training("w-1")
    assert [each["pid"] for each in found["jobs"]] == [1]
    report = explain(None, "w-1")
    said = report["explanation"]
    assert sorted((each["rank"], each["host"]) for each in report["ranks"]) == [
        (number, f"k8s://default/w-{number}") for number in range(2)
    ], said
    assert (report["missing_ranks"], report["unseen_ranks"]) == ([], []), said
    assert [each["rank"] for each in report["culprits"]] == [1] and "import_libraries" in said


def test_a_pod_whose_processes_are_not_recognized_was_not_seen(pair: list[Pod], surroundings: Surroundings) -> None:
    pair[1].stop()
    pair[1].env.pop("RANK")
    pair[1].start([sys.executable, "-c", "import time; time.sleep(3600)"])
    report = explain(None, "w-0")
    assert (report["missing_ranks"], report["unseen_ranks"], report["culprits"]) == ([], [1], []), report["explanation"]
    assert report["confidence"] == "none"


def test_a_worker_of_ray_without_a_task_is_no_rank(start: Start, surroundings: Surroundings) -> None:
    worker, job = "site-packages/ray/_private/worker.py", {"RAY_JOB_ID": "02000000"}
    start(worker, "idle", title="ray::Worker", **job)
    loading = start(worker, "load_batch", "loading", title="ray::Worker.train", **job)
    meeting = start(worker, "meet", "meeting", title="ray::Worker.train", **job)
    wait_for_files(surroundings.folder, "idle", "loading", "meeting")
    report = explain(loading.pid)
    said = report["explanation"]
    assert {pid for _, pid in ranks_of(report)} == {loading.pid, meeting.pid}, said
    assert [each["pid"] for each in report["culprits"]] == [loading.pid] and "load_batch" in said
