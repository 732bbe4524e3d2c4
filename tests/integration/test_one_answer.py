"""Is it stuck? The answers that were wrong once, by real processes, logs and commands of the command line.

What happened before a test is put into the store, as an earlier command would have left it there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import run_command as cli
from tests.integration.conftest import Place, Surroundings, kill, wait_until
from tests.loopback.ray_dashboard import RayDashboard
from training_monitor import check_training, get_training_health, start_process_job
from training_monitor.core.models import JobStatus
from training_monitor.core.store import Store
from training_monitor.core.values import Observation, WatchedJob
from training_monitor.look.kept_looks import Looks, look_key
from training_monitor.targets.target import parse_target

MINUTE = 60.0
ROW = "{index}, GPU-{index}, NVIDIA H100 80GB HBM3, {percent}, 40, 60000, 81559, {watts}, 700.00, 60, Disabled"
LOST = "Unable to determine the device handle for GPU0000:07:00.0: GPU is lost.  Reboot the system to recover this GPU"
BUSY = {"gpu_utilization": 97.0, "gpu_power_fraction": 0.8}
IDLE = {"gpu_utilization": 0.0, "gpu_power_fraction": 0.1}
SPINNING = {"gpu_utilization": 97.0, "gpu_power_fraction": 0.13}

# What a training does beside its log: nothing, compute, or write.
DOES = {
    "sleeps": "while True: time.sleep(1)",
    "computes": "while time.time() < begun + 60: pass",
    "writes": "out = open('checkpoint.new', 'wb')\nwhile time.time() < begun + 60: out.write(bytes(200_000)); out.flush(); time.sleep(0.05)",  # noqa: E501
    "ends": "pass",
}


@dataclass
class Machine:
    """This machine with trainings on it, and with the GPUs that a test says."""

    surroundings: Surroundings
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def give_gpus(self, *readings: tuple[int, int], lost: bool = False) -> None:
        """Readings are (per cent, watts)."""
        rows = [ROW.format(index=n, percent=used, watts=watts) for n, (used, watts) in enumerate(readings)]
        text = "\n".join([*rows, LOST] if lost else rows)
        tool = self.surroundings.tools / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\ncase $1 in --query-gpu*) cat <<END\n{text}\nEND\n;; esac\n")
        tool.chmod(0o755)

    def train(self, text: str, does: str = "sleeps", age: float = 0.0, name: str = "run") -> Path:
        """Start a training whose output is in a file, which says `text` and was written to so long ago."""
        log = self.surroundings.folder / name / "train.log"
        log.parent.mkdir()
        (log.parent / "train.py").write_text(f"import time\nbegun = time.time()\n{DOES[does]}\n")
        with log.open("wb") as out:
            process = subprocess.Popen([sys.executable, "train.py"], stdout=out, stderr=out, cwd=log.parent)
        self.processes.append(process)
        if does == "ends":
            process.wait(30)
        log.write_text(text)
        os.utime(log, (time.time() - age, time.time() - age))
        return log


@pytest.fixture
def machine(local: Place, surroundings: Surroundings) -> Iterator[Machine]:
    here = Machine(surroundings)
    yield here
    for process in here.processes:
        kill(process.pid)
        process.wait()


def remember(
    what: str | Path, looks: Sequence[tuple[float, int | None, dict[str, Any]]], target: str = "local"
) -> None:
    """Looks that were made before: (so many seconds ago, step, what else was seen)."""
    job = WatchedJob(log_file=str(what)) if "/" in str(what) else WatchedJob(job_id=str(what))
    kept, now = Looks(Store(), look_key(parse_target(target), job, None)), time.time()
    for ago, step, seen in looks:
        kept.add(Observation(now - ago, step, **{"total_steps": 10_000, "is_running": True, **seen}))


def trained(minutes: int, until: float, step: int, **seen: Any) -> list[tuple[float, int | None, dict[str, Any]]]:
    """A look each minute at a training that makes a step a second, and stands at `step` so many seconds ago."""
    return [(until + 60.0 * ago, step - 60 * ago, {**BUSY, **seen}) for ago in range(minutes, -1, -1)]


def stood(
    seconds: float, step: int, every: float = 60.0, **seen: Any
) -> list[tuple[float, int | None, dict[str, Any]]]:
    """A look each minute since then at one that stands."""
    count = int(seconds / every)
    return [(seconds - every * number, step, seen) for number in range(1, count)]


def steps_to(last: int, total: int = 10_000) -> str:
    return "".join(f"step {step}/{total} loss 0.5\n" for step in range(last - 30, last + 1))


def run(*argv: str) -> tuple[int, dict[str, Any]]:
    """The exit code of a command, and the JSON it prints."""
    done = cli(*argv, "--json")
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


def everywhere(log: Path) -> dict[str, tuple[str, int]]:
    """(The state, the exit code) of each command about a log."""
    codes, found = {}, {}
    for name, argv in {
        "check": ["check", "local", str(log)],
        "watch": ["watch", "local", "--log", str(log), "--once"],
    }.items():
        codes[name], found[name] = run(*argv)
    codes["fleet"], found["fleet"] = run("fleet", f"local#{log}", "--once", "--no-history")
    return {
        "check": (found["check"]["jobs"][0]["state"], codes["check"]),
        "watch": (found["watch"]["state"], codes["watch"]),
        "fleet": (found["fleet"]["members"][0]["state"], codes["fleet"]),
    }


def check(what: str | Path, target: str = "local") -> dict[str, Any]:
    [job] = check_training(target, str(what))["jobs"]
    return dict(job)


# ---------------------------------------------------------------- pauses and hangs


def test_an_evaluation_of_eight_silent_minutes_is_no_stall_anywhere(machine: Machine) -> None:
    """Row 1."""
    machine.give_gpus((0, 70))
    log = machine.train(steps_to(5000), "computes", age=470)
    remember(log, trained(30, 470, 5000, cpu_cores=8.0) + stood(470, 5000, **IDLE, cpu_cores=1.0))
    assert set(everywhere(log).values()) == {("running", 0)}


def test_gpus_that_spin_for_55_minutes_are_a_stall_despite_gaps(machine: Machine) -> None:
    """Row 2: `watch --once` every minute, also with a gap of 5 minutes."""
    machine.give_gpus((97, 91), (97, 91))
    log = machine.train(steps_to(2000), age=3300)
    looks = stood(3300, 2000, **SPINNING)
    remember(log, trained(20, 3300, 2000) + [each for each in looks if not 1200 < each[0] < 1500])
    found = everywhere(log)
    assert set(found.values()) == {("stalled", 1)}, found
    job = check(log)
    assert job["seconds_without_step"] >= 3290 and "collective" in job["reason"]


def test_a_fleet_tells_a_process_that_hangs_by_its_first_look(machine: Machine) -> None:
    """Row 4: its log is 11 minutes old."""
    machine.give_gpus((0, 70))
    log = machine.train(steps_to(300, 900_000), age=660)
    code, found = run("fleet", f"local#{log}", "--once", "--no-history")
    [row] = found["members"]
    assert (code, row["state"], row["verdict"]) == (1, "stalled", "failed"), row
    assert set(everywhere(log).values()) == {("stalled", 1)}


@pytest.mark.parametrize("does", ["writes", "computes"])
def test_a_first_silent_save_is_no_stall_while_processes_work(machine: Machine, does: str) -> None:
    """Row 10."""
    machine.give_gpus((0, 70))
    log = machine.train(steps_to(2000), does, age=300)
    work = {"write_rate": 4e7} if does == "writes" else {"cpu_cores": 1.0}
    remember(log, trained(20, 300, 2000, cpu_cores=8.0) + stood(300, 2000, **IDLE, **work))
    assert check(log)["state"] == "running"


def test_the_same_pause_is_a_stall_where_its_processes_do_nothing(machine: Machine) -> None:
    """Row 10, the other side."""
    machine.give_gpus((0, 70))
    log = machine.train(steps_to(2000), "sleeps", age=300)
    remember(log, trained(20, 300, 2000, cpu_cores=8.0) + stood(300, 2000, **IDLE, cpu_cores=0.0, write_rate=0.0))
    assert check(log)["state"] == "stalled"


# ---------------------------------------------------------------- Ray


@pytest.fixture
def ray(local: Place) -> Iterator[RayDashboard]:
    """This machine, whose Ray is known by REST alone."""
    with RayDashboard() as dashboard:
        local.set_environment({"RAY_API_SERVER_ADDRESS": dashboard.address, "RAY_TMPDIR": str(local.folder)})
        yield dashboard


STEPS = "".join(f"step {step}/200 loss 0.5\n" for step in range(1, 41))
RAY_JOBS = {
    "by REST alone": ("RUNNING", STEPS, 3, "unknown", "step 40 of 200"),
    "failed": ("FAILED", f"{STEPS}RuntimeError: CUDA error: an illegal memory access\n", 1, "failed", "CUDA error"),
    "waits": ("PENDING", "", 3, "starting", "waiting to start"),
    "succeeded": ("SUCCEEDED", STEPS, 0, "finished", "finished"),
    "stopped": ("STOPPED", STEPS, 0, "stopped", "stopped"),
    "of a status nobody has heard of": ("HIBERNATING", STEPS, 3, "unknown", ""),
}


def test_a_ray_job_is_answered_with_the_reason(ray: RayDashboard, subtests: pytest.Subtests) -> None:
    """Row 3, and row 16 by its last line."""
    for number, (kind, (status, log, code, state, told)) in enumerate(RAY_JOBS.items()):
        with subtests.test(kind):
            ray.add_job(f"train-{number}", status, log)
            exit_status, found = run("check", "local", f"train-{number}")
            job = found["jobs"][0]
            assert (exit_status, job["state"]) == (code, state), job
            assert told in job["reason"] and job["reason"]


def test_a_ray_job_that_only_prints_heartbeats_is_a_stall(ray: RayDashboard) -> None:
    """Row 3: nothing but lines that are no steps for 50 minutes."""
    ray.add_job("train", "RUNNING", STEPS + "heartbeat: worker alive\n" * 40)
    seen: dict[str, Any] = {"status": JobStatus.RUNNING, "total_steps": 200}
    past = [(3000.0 + 60 * ago, 40 - ago, seen) for ago in range(20, -1, -1)]
    past += [(3000.0 - 60 * each, 40, {**seen, "log_size": 1000 + 30 * each}) for each in range(1, 50)]
    remember("train", past)
    code, found = run("check", "local", "train")
    [job] = found["jobs"]
    assert (code, job["state"]) == (1, "stalled"), found
    assert "no step for" in found["reason"] and "limit" in found["reason"]


def test_a_healthy_ray_job_that_was_seen_before_is_healthy(ray: RayDashboard) -> None:
    """Row 3."""
    ray.add_job("train", "RUNNING", STEPS)
    seen: dict[str, Any] = {"status": JobStatus.RUNNING, "total_steps": 200}
    remember("train", [(60.0 * ago, 40 - 2 * ago, seen) for ago in range(15, 0, -1)])
    assert run("check", "local", "train")[0] == 0 and check("train")["state"] == "running"


# ---------------------------------------------------------------- progress


def epochs(total: int, steps: int, until: tuple[int, int], *, resets: bool) -> str:
    """`Epoch e/n | Step i/m` for all epochs up to a place; the counter begins anew with each of them, or does not."""
    lines = []
    for epoch in range(1, until[0] + 1):
        for step in range(1, (until[1] if epoch == until[0] else steps) + 1):
            shown = step if resets else step + (epoch - 1) * steps
            of = steps if resets else steps * total
            lines.append(f"Epoch {epoch}/{total} | Step {shown}/{of} | loss 0.5\n")
    return "".join(lines)


@pytest.mark.parametrize(
    ("text", "step", "total", "progress"),
    [
        (epochs(3, 327, (2, 325), resets=False).replace("/981 ", "/982 "), 652, 982, 0.664),
        (epochs(3, 1000, (2, 500), resets=True), 1500, 3000, 0.5),
    ],
    ids=["steps counted over all epochs", "steps counted in each epoch"],
)
def test_the_progress_is_that_of_the_job(machine: Machine, text: str, step: int, total: int, progress: float) -> None:
    """Row 6."""
    log = machine.train(text)
    job = check(log)
    assert (job["step"], job["total_steps"]) == (step, total)
    assert job["progress"] == pytest.approx(progress, abs=0.005)
    _, watched = run("watch", "local", "--log", str(log), "--once")
    assert watched["step"] == step


# ---------------------------------------------------------------- ends


def test_a_training_that_was_killed_died_at_its_last_step(machine: Machine) -> None:
    """Row 13: nobody has its log open, to which nothing was written for five minutes."""
    log = machine.train(STEPS, "ends", age=300)
    remember(log, [(420.0, 30, {"total_steps": 200, "processes": 1}), (360.0, 36, {"total_steps": 200})])
    job = check(log)
    assert (job["state"], job["verdict"]) == ("failed", "failed"), job["reason"]
    assert job["reason"].startswith("failed at step 40 of 200 without a message")


def test_a_job_that_was_killed_is_a_failure(local: Place) -> None:
    """Row 13."""
    job_id = start_process_job("local", "for i in $(seq 40); do echo step $i/200 loss=0.5; done; kill -9 $$", "run")
    assert wait_until(lambda: check(job_id)["state"] == "failed")
    assert check(job_id)["reason"] == "failed at step 40 of 200: Killed"


# ---------------------------------------------------------------- GPUs


def test_health_and_check_agree_on_a_gpu_that_spins(machine: Machine) -> None:
    """Row 14: a GPU at 92 % and 35 % power."""
    machine.give_gpus((92, 245))
    job_id = start_process_job("local", "for i in $(seq 40); do echo step $i/200 loss=0.5; done; sleep 600", "run")
    assert wait_until(lambda: check(job_id)["step"] == 40)
    seen = {"gpu_utilization": 92.0, "gpu_power_fraction": 0.35}
    past = [(1140.0 + 60 * (40 - each), each, {**BUSY, "total_steps": 200}) for each in range(20, 41)]
    past += [(1140.0 - 60 * each, 40, {**seen, "total_steps": 200}) for each in range(1, 18)]
    remember(job_id, sorted(past, key=lambda each: -each[0]))
    found = check(job_id)
    report = get_training_health("local", None, job_id=job_id)
    assert report["job"]
    assert found["state"] == report["job"]["state"] == "stalled"
    assert "idle power" in found["reason"] and any("idle power" in each for each in report["issues"])
