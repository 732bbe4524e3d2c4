"""The queue with real processes: no job twice, a killed worker's job goes on with another, the file stays whole."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import training_monitor
from training_monitor.core.errors import LeaseLost
from training_monitor.core.store import Store
from training_monitor.rent.credits import Credits
from training_monitor.rent.queue import TrainingQueue, load_owner
from training_monitor.vast.training_request import JobState, TrainingRequest

REQUEST = TrainingRequest("cat", command="python train.py")
WORKERS, JOBS, KILLS = 8, 40, 12

START = """
import sys, time
from dataclasses import replace
from training_monitor.vast.training_request import JobState, JobWork
from training_monitor.core.store import Store
from training_monitor.rent.queue import TrainingQueue, load_owner
store, me = Store(sys.argv[1]), sys.argv[2]
queue = TrainingQueue(store)
print("ready", flush=True)
sys.stdin.readline()
"""
CLAIM_ALL = """
while job := queue.claim(me, 600.0):
    print(job.id, flush=True)
    queue.save(replace(job, state=JobState.CHARGING), me)
"""
CLAIM_AND_HANG = """
job = queue.claim(me, 0.5)
print(job.id, flush=True)
time.sleep(600)
"""
SAVE_FOR_EVER = """
job = queue.claim(me, 600.0, "one")
for number in range(10**9):
    work = JobWork(step=number, total_steps=number, warnings=("x" * 20000, str(number)))
    job = queue.save(replace(job, work=work), me, progressed=True)
    print(number, flush=True)
"""
CANCEL_ALL = """
for number in reversed(range(40)):
    ended = queue.cancel(f"job-{number}", "enough").state is JobState.CANCELLED
    print(f"job-{number}" if ended else "-", flush=True)
"""
NAME_OWNER = """
print(load_owner(store, {"USER": me}), flush=True)
"""


@contextmanager
def process(folder: Path, worker: str, script: str) -> Iterator[subprocess.Popen[str]]:
    environ = {**os.environ, "PYTHONPATH": str(Path(training_monitor.__file__).parents[1])}
    argv = [sys.executable, "-c", START + script, str(folder), worker]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def read_line(child: subprocess.Popen[str]) -> str:
    assert child.stdout
    return child.stdout.readline().strip()


def begin(*children: subprocess.Popen[str]) -> None:
    """Let them go once all are ready, so that they meet."""
    assert [read_line(child) for child in children] == ["ready"] * len(children)
    for child in children:
        assert child.stdin
        child.stdin.write("go\n")
        child.stdin.flush()


def run_together(folder: Path, script: str) -> list[list[str]]:
    """Let many workers do the same at once. Returns the lines that each of them printed."""
    with ExitStack() as stack:
        children = [stack.enter_context(process(folder, f"worker-{number}", script)) for number in range(WORKERS)]
        begin(*children)
        outputs = [child.communicate(timeout=120)[0].split() for child in children]
        assert [child.returncode for child in children] == [0] * WORKERS
    return outputs


def test_workers_that_claim_at_once_never_get_the_same_job(tmp_path: Path) -> None:
    queue = TrainingQueue(Store(str(tmp_path)))
    wanted = {queue.submit(REQUEST).id for _ in range(JOBS)}
    outputs = run_together(tmp_path, CLAIM_ALL)
    times = Counter(job_id for lines in outputs for job_id in lines)
    assert set(times) == wanted and set(times.values()) == {1}
    holders = {job_id: f"worker-{number}" for number, lines in enumerate(outputs) for job_id in lines}
    jobs = queue.list_jobs()
    assert {job.id: job.worker for job in jobs} == holders
    assert {job.state for job in jobs} == {JobState.CHARGING}


def test_a_job_is_either_claimed_or_cancelled_at_once_whoever_comes_first(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    queue, ledger = TrainingQueue(store), Credits(store)
    ledger.deposit("anna", 1000.0, "card")
    for number in range(JOBS):
        queue.submit(TrainingRequest("cat", command="true", account="anna"), f"job-{number}")
        ledger.reserve("anna", f"job-{number}", 5.0)
    with process(tmp_path, "worker", CLAIM_ALL) as worker, process(tmp_path, "person", CANCEL_ALL) as person:
        begin(worker, person)
        cancelled = set(person.communicate(timeout=120)[0].split()) - {"-"}
        claimed = set(worker.communicate(timeout=120)[0].split())
    jobs = queue.list_jobs()
    assert not cancelled & claimed
    assert cancelled | claimed == {job.id for job in jobs}
    assert {job.id for job in jobs if job.state is JobState.CANCELLED} == cancelled
    assert {job.id for job in jobs if job.state is not JobState.CANCELLED and job.to_end} == claimed
    assert ledger.balance("anna") == 1000.0 - 5.0 * len(claimed)


def test_processes_that_ask_for_the_owner_at_once_get_the_same(tmp_path: Path) -> None:
    owners = {line for lines in run_together(tmp_path, NAME_OWNER) for line in lines}
    assert owners == {load_owner(Store(str(tmp_path)), {})}


def test_a_killed_workers_job_is_taken_over_and_its_late_save_refused(tmp_path: Path) -> None:
    queue = TrainingQueue(Store(str(tmp_path)))
    queue.submit(REQUEST, "one")
    with process(tmp_path, "dead", CLAIM_AND_HANG) as child:
        begin(child)
        assert read_line(child) == "one"
        held = queue.get("one")
        assert held.worker == "dead"
        child.send_signal(signal.SIGKILL)
        child.wait()
    deadline = time.monotonic() + 60
    while (taken := queue.claim("next", 600.0)) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert taken is not None and (taken.id, taken.worker) == ("one", "next")
    assert held.lease_until is not None and time.time() >= held.lease_until
    with pytest.raises(LeaseLost, match="now belongs to next"):
        queue.save(replace(held, state=JobState.CHARGING), "dead")
    with pytest.raises(LeaseLost):
        queue.renew("one", "dead", 600.0)
    assert queue.get("one") == taken
    assert queue.save(replace(taken, state=JobState.CHARGING), "next").state is JobState.CHARGING


def test_a_worker_killed_while_writing_leaves_a_whole_file(tmp_path: Path) -> None:
    queue, chance = TrainingQueue(Store(str(tmp_path))), random.Random(7)
    queue.submit(REQUEST, "one")
    for _ in range(KILLS):
        with process(tmp_path, "writer", SAVE_FOR_EVER) as child:
            begin(child)
            assert read_line(child) == "0"
            time.sleep(chance.uniform(0.0, 0.1))
            child.send_signal(signal.SIGKILL)
            assert child.stdout
            told = child.stdout.read().split()
        job = TrainingQueue(Store(str(tmp_path))).get("one")
        assert job.work.step is not None and job.work.step == job.work.total_steps
        assert job.work.warnings == ("x" * 20000, str(job.work.step))
        assert job.work.step >= max((int(line) for line in told[:-1]), default=0)  # what was told is on disk
        assert (job.state, job.worker, job.request) == (JobState.QUEUED, "writer", REQUEST)
        queue.release("one", "writer")
    with Store(str(tmp_path)).transaction() as execute:
        assert execute("PRAGMA integrity_check") == [("ok",)]
