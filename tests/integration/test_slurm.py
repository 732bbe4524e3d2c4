"""Jobs of a real Slurm: what each state is to `check`, `why`, `wait`, `logs` and the other commands.

Its nodes are programs of this machine. The jobs of all cases run side by side; those that must wait for Slurm (a time
limit, a node that does not answer) come last.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import run_command
from tests.integration.conftest import SshServer, Surroundings, wait_until
from tests.loopback.slurm import Slurm, running_slurm
from tests.requirements import require
from training_monitor.core.read_fence import READ_UNDER
from training_monitor.targets.kinds.slurm import STEPS

TRAIN = """
import os, sys, threading, time
rank, last, then = int(os.environ.get("SLURM_PROCID", 0)), int(sys.argv[1]), sys.argv[2]
for step in range(1, last + 1):
    if rank == 0:
        print(f"step {step}/10000 loss: {5 / step:.4f}", flush=True)
    time.sleep(0.2)
if then == "crash":
    raise RuntimeError("CUDA error: an illegal memory access was encountered")
if then == "lock" and rank == 3:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
if then in ("lock", "hang"):
    time.sleep(1000)
"""
FOUR = ("--nodes=2", "--ntasks=4", "--ntasks-per-node=2")
HOSTILE = "x'; touch evil; $(touch evil) UserId=root(0) JobState=FAILED"
CASES: dict[str, tuple[int, str, tuple[str, ...]]] = {
    "works": (4000, "end", ("--nodes=2", "--ntasks=2", f"--job-name={HOSTILE}")),
    "hangs": (5, "hang", ()),
    "crashed": (5, "crash", ()),
    "finished": (5, "end", ()),
    "cancelled": (4000, "end", ()),
    "suspended": (4000, "end", ()),
    "requeued": (4000, "end", ("--open-mode=append",)),
    "waits": (4000, "end", ("--begin=now+1hour",)),
    "lock": (5, "lock", FOUR),
    "array": (4000, "end", ("--array=0-2",)),
    "named": (4000, "end", ("--job-name=llama-7b",)),
    "too long": (4000, "end", ("--time=1",)),
    "lost": (4000, "end", ("--partition=dies", "--no-requeue")),
}


@dataclass
class World:
    """A cluster, and the number of the job of each case."""

    slurm: Slurm
    jobs: dict[str, str]

    def log(self, case: str) -> Path:
        return self.slurm.folder / f"out-{self.jobs[case]}.log"

    def is_at(self, case: str, step: int) -> bool:
        log = self.log(case)
        return wait_until(lambda: log.exists() and f"step {step}/" in log.read_text())

    def state(self, case: str) -> str:
        return self.slurm.state(self.jobs[case])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    require("slurmctld")
    with running_slurm(tmp_path_factory.mktemp("slurm"), {"p": ["n1", "n2"], "dies": ["n3"]}) as slurm:
        program = slurm.folder / "train.py"
        program.write_text(TRAIN)
        jobs = dict[str, str]()
        for case, (steps, then, options) in CASES.items():
            command = f"srun --mpi=none {sys.executable} -u {program} {steps} {then}"
            jobs[case] = slurm.submit(command, *options)
        world = World(slurm, jobs)
        assert world.is_at("too long", 1)
        slurm.ask("scontrol", "update", f"JobId={jobs['too long']}", "EndTime=now+2")
        yield world


@pytest.fixture
def world(cluster: World, surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> World:
    for name, value in cluster.slurm.environment.items():
        monkeypatch.setenv(name, value)
    return cluster


def report_of(*words: str) -> dict[str, Any]:
    done = run_command(*words, "--json")
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert isinstance(report, dict)
    return report


def check(target: str, *words: str) -> dict[str, Any]:
    [found] = report_of("check", f"slurm://{target}", *words)["jobs"]
    assert isinstance(found, dict)
    return found


# ---------------------------------------------------------------- jobs that run


def test_a_job_that_works_is_running_whatever_its_name(world: World) -> None:
    assert world.is_at("works", 5)
    job = world.jobs["works"]
    found = check(job)
    assert (found["state"], found["verdict"], found["total_steps"]) == ("running", "ok", 10000)
    assert found["step"] >= 5 and found["log"] == str(world.log("works"))
    assert "train.py" in found["command"] and not found["command"].startswith("srun")
    assert not [*world.slurm.folder.rglob("evil")] and not Path("evil").exists()


def test_a_job_is_found_by_its_name_and_from_a_login_node(world: World, sshd: SshServer) -> None:
    sshd.set_environment(world.slurm.environment)
    assert world.is_at("named", 3)
    assert check("llama-7b")["step"] >= 3
    assert check(f"{sshd.address.removeprefix('ssh://')}/{world.jobs['named']}")["state"] == "running"


def test_a_hang_is_stalled(world: World) -> None:
    assert world.is_at("hangs", 5)
    target = world.jobs["hangs"]
    assert wait_until(lambda: check(target, "--stall-after", "2")["state"] == "stalled", 30)


def test_why_names_the_rank_in_a_lock_and_its_node(world: World) -> None:
    assert world.is_at("lock", 5)
    target = f"slurm://{world.jobs['lock']}"

    def explain() -> Any:
        return report_of("why", target)

    assert wait_until(lambda: [each["rank"] for each in explain()["culprits"]] == [3], 120)
    report = explain()
    assert [(rank["rank"], rank["node"]) for rank in report["ranks"]] == [(0, "n1"), (1, "n1"), (2, "n2"), (3, "n2")]
    assert "node n2" in report["explanation"]


def test_each_task_of_an_array_is_a_training_and_a_member(world: World) -> None:
    array = world.jobs["array"]
    names = {f"{array}_{task}" for task in range(3)}
    assert wait_until(lambda: all((world.slurm.folder / f"out-{name}.log").exists() for name in names))
    assert check(f"{array}_1")["target"] == f"slurm://{array}_1"
    assert "one task of the array" in run_command("check", f"slurm://{array}").stderr
    # one job step runs on a node at a time: on a busy machine ten jobs take longer than the usual limit
    listed = {job["name"] for job in report_of("check", "slurm://", "--timeout", "60")["jobs"]}
    assert names <= listed
    assert world.jobs["works"] in listed and world.jobs["waits"] in listed and world.jobs["crashed"] not in listed
    members = run_command("metrics", "slurm://", "--once").stdout
    assert all(f'member="slurm://{name}"' in members for name in names)


def test_logs_and_watch_and_health_ask_the_job(world: World) -> None:
    assert world.is_at("works", 5)
    target = f"slurm://{world.jobs['works']}"
    assert "step 5/10000" in run_command("logs", target, "--tail", "1000").stdout
    assert "running" in run_command("watch", target, "--once").stdout.lower()
    report = report_of("health", target)
    assert report["pods"] == [] and report["gpu"]["per_node"][0]["pod"] == target


def test_a_language_model_may_read_what_the_own_job_prints(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(READ_UNDER, "[]")
    assert world.is_at("works", 5)
    assert check(world.jobs["works"])["step"] >= 5


def test_without_steps_a_job_is_judged_by_its_log(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STEPS, "no")
    assert world.is_at("works", 5)
    found = check(world.jobs["works"])
    assert (found["state"], found["pid"]) == ("running", None) and f"unset {STEPS}" in found["remedies"]


# ---------------------------------------------------------------- jobs that wait, or were suspended or stopped


def test_a_job_that_waits_says_why_and_until_when(world: World) -> None:
    found = check(world.jobs["waits"])
    assert found["state"] == "starting" and "BeginTime" in found["reason"], found["reason"]
    assert "expected to start" in found["reason"]


def test_a_suspended_job_is_suspended_and_not_stalled(world: World) -> None:
    job = world.jobs["suspended"]
    assert world.is_at("suspended", 3)
    world.slurm.ask("scontrol", "suspend", job)
    found = check(job, "--stall-after", "1")
    assert (found["state"], found["remedies"]) == ("suspended", [f"scontrol resume {job}"])
    world.slurm.ask("scontrol", "resume", job)
    assert wait_until(lambda: check(job)["state"] == "running", 30)


def test_a_held_job_waits_for_its_release(world: World) -> None:
    job = world.slurm.submit("sleep 1000", "--hold")
    found = check(job)
    assert (found["state"], found["remedies"]) == ("starting", [f"scontrol release {job}"])
    assert found["reason"].startswith("it is held") and "JobHeldUser" in found["reason"], found["reason"]
    world.slurm.ask("scancel", job)


def test_wait_follows_a_job_from_its_start_over_a_requeue(world: World) -> None:
    slurm = world.slurm
    program = f"srun --mpi=none {sys.executable} -u {slurm.folder}/train.py 10 hang"
    job = world.jobs["held"] = slurm.submit(program, "--hold")

    def run_twice() -> None:
        for words in (("release", job), ("requeue", job), ("update", f"JobId={job}", "StartTime=now")):
            time.sleep(1)
            slurm.ask("scontrol", *words)
            assert words[0] == "requeue" or world.is_at("held", 3)

    beside = threading.Thread(target=run_twice)
    beside.start()
    done = run_command("wait", f"slurm://{job}", "--for", "stalled", "--interval", "1", "--stall-after", "4", "--json")
    beside.join()
    assert json.loads(done.stdout)["verdict"] == "failed" and slurm.state(job) == "RUNNING", done.stdout


def test_a_requeued_job_waits_and_is_no_failure(world: World) -> None:
    job = world.jobs["requeued"]
    assert world.is_at("requeued", 3)
    assert check(job)["state"] == "running"
    world.slurm.ask("scontrol", "requeue", job)
    assert wait_until(lambda: world.state("requeued") == "PENDING")
    found = check(job)
    assert found["state"] == "starting" and found["failure"] is None, found


def test_what_a_person_cancels_is_stopped(world: World) -> None:
    assert world.is_at("cancelled", 3)
    world.slurm.ask("scancel", world.jobs["cancelled"])
    assert wait_until(lambda: world.state("cancelled") == "CANCELLED")
    assert check(world.jobs["cancelled"])["state"] == "stopped"


# ---------------------------------------------------------------- jobs that have ended


@pytest.mark.parametrize(
    ("case", "state", "verdict", "said"),
    [("crashed", "failed", "failed", "illegal memory access"), ("finished", "finished", "ok", "step 5 of 10000")],
)
def test_a_job_that_has_ended_is_judged_by_its_log(
    world: World, case: str, state: str, verdict: str, said: str
) -> None:
    assert wait_until(lambda: world.state(case) in ("FAILED", "COMPLETED"))
    found = check(world.jobs[case])
    assert found["state"] == state and said in found["reason"], found["reason"]
    done = run_command("wait", f"slurm://{world.jobs[case]}", "--interval", "1", "--timeout", "30")
    assert done.returncode == (verdict == "failed"), done.stdout + done.stderr
    assert (report_of("health", f"slurm://{world.jobs[case]}")["verdict"] == "failed") == (verdict == "failed")


def test_a_job_that_is_not_there_is_said_so(world: World) -> None:
    done = run_command("check", "slurm://99999")
    assert done.returncode == 2 and "squeue --me" in done.stderr, done.stderr


def test_a_controller_that_does_not_answer_is_an_outage(world: World) -> None:
    assert world.is_at("works", 3)
    target = f"slurm://{world.jobs['works']}"
    world.slurm.kill("slurmctld")
    try:
        for words in (("check", target), ("check", "slurm://"), ("why", target)):
            done = run_command(*words)
            assert done.returncode == 3 and "Slurm does not respond" in done.stderr, done.stdout + done.stderr
        report = report_of("fleet", "slurm://", target, "--once")
        assert (report["verdict"], report["members"][0]["verdict"]) == ("unknown", "unknown")
        assert "Slurm does not respond" in report["error"]
    finally:
        world.slurm.start_controller()
    assert wait_until(lambda: run_command("check", target).returncode == 0)


def test_a_time_limit_is_named(world: World) -> None:
    assert wait_until(lambda: world.state("too long") == "TIMEOUT", 90)
    found = check(world.jobs["too long"])
    assert (found["state"], found["failure"]["category"]) == ("failed", "time_limit"), found


def test_a_node_that_dies_is_named_and_was_unknown_before(world: World) -> None:
    assert world.is_at("lost", 3)
    world.slurm.kill_node("n3")
    before = check(world.jobs["lost"])
    assert before["state"] != "failed" or world.state("lost") == "NODE_FAIL", before
    assert wait_until(lambda: world.state("lost") == "NODE_FAIL", 90)
    found = check(world.jobs["lost"])
    assert (found["state"], found["failure"]["category"]) == ("failed", "node_lost"), found
