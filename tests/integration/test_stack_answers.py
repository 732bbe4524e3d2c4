"""Stuck training scripts, as real processes of any rank, tell their stacks to whoever asks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import wait_until
from tests.integration.scripts import Process, Script
from training_monitor.look.evidence import pids_of
from training_monitor.runs.stack_answers import folder_of
from training_monitor.targets.procfs import identify
from training_monitor.why.stacks import MOST_BYTES, stacks_question

FOLDER = Path(folder_of(os.geteuid()))
RANKS = ("0", "3")

STUCK = {
    "a lock": "threading.Lock(); lock.acquire(); lock.acquire()",
    "a pipe": "os.pipe(); os.read(lock[0], 1)",
    "a socket": "socket.socketpair(); lock[0].recv(1)",
    "a sleep": "None; time.sleep(3600)",
    "a thread": "threading.Thread(target=time.sleep, args=(3600,), daemon=True); lock.start(); lock.join()",
}
SCRIPT = """
import socket

def load_batch():
    BODY  # stuck

class Trainer:
    def step(self):
        load_batch()  # calls

for step in range(3):
    monitor.start_batch()
print("stuck", flush=True)
Trainer().step()
"""
TRAIN = SCRIPT.replace("BODY", "lock = {what}")
BUSY = SCRIPT.replace("BODY", "number = 0\n    while True: number += 1")


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


def stuck(process: Process) -> Process:
    """A process that printed that it is stuck, and answers."""
    assert process.stdout and process.stdout.readline() == "stuck\n"
    assert wait_until(lambda: is_there(process.pid)), "it does not answer"
    return process


def is_there(pid: int) -> bool:
    return (FOLDER / f"{pid}.{identify(pid).start_ticks}.here").exists()


def ask(pid: int, nonce: str = "0123456789abcdef") -> dict[str, Any]:
    (FOLDER / f"{pid}.ask.{nonce}").mkdir()
    answer = FOLDER / f"{pid}.said.{nonce}"
    assert wait_until(answer.exists), "it did not answer"
    document: dict[str, Any] = json.loads(answer.read_text())
    return document


def main_frames(document: dict[str, Any]) -> list[list[Any]]:
    (main,) = (each for each in document["threads"] if each["is_main"])
    frames: list[list[Any]] = main["frames"]
    return frames


def line_of(script: Script, mark: str) -> int:
    lines = (script.folder / "train.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))


def left(pid: int) -> list[str]:
    return sorted(name for name in os.listdir(FOLDER) if name.startswith(f"{pid}."))


# ---------------------------------------------------------------- stuck in every way


@pytest.mark.parametrize(
    ("what", "rank"), [*((what, RANKS[at % 2]) for at, what in enumerate(STUCK)), *(("a loop", rank) for rank in RANKS)]
)
def test_a_stuck_rank_tells_where_it_is(script: Script, what: str, rank: str) -> None:
    body = TRAIN.format(what=STUCK[what]) if what in STUCK else BUSY
    with script.start(body, RANK=rank, WORLD_SIZE="4") as process:
        document = ask(stuck(process).pid)
        assert rank != "0" or wait_until(script.file.exists)
        process.kill()
    own = [frame for frame in main_frames(document) if frame[1].endswith("train.py")]
    path = own[0][1]
    assert own[0] == ["load_batch", path, line_of(script, "stuck")]
    assert own[1][0].endswith("step") and own[1][2] == line_of(script, "calls")
    assert own[2][0] == "<module>" and len(own) == 3
    assert document["pid"] == process.pid
    assert document["variables"]["RANK"] == rank and document["variables"]["WORLD_SIZE"] == "4"
    assert document["batches"] == 3
    assert script.file.exists() is (rank == "0")


def test_a_gpu_that_hangs_hinders_no_answer(script: Script) -> None:
    body = """
        class Tensor:
            device = "cuda:0"
            def item(self):
                print("stuck", flush=True)
                time.sleep(3600)
        def synchronize():
            time.sleep(3600)
        monitor.start_batch()
        monitor.update_metrics(loss=Tensor())
        synchronize()
    """
    with script.start(body) as process:
        document = ask(stuck(process).pid)
        process.kill()
    assert main_frames(document)[0][0] == "synchronize"
    assert any(frame[0].endswith("item") for each in document["threads"] for frame in each["frames"])


# ---------------------------------------------------------------- ends


@pytest.mark.parametrize(
    ("end", "code", "rank"), [("pass", 0, "0"), ("sys.exit(3)", 3, "3"), ("1 / 0", 1, "0"), ("1 / 0", 1, "3")]
)
def test_nothing_is_left_by_a_script_that_ends(script: Script, end: str, code: int, rank: str) -> None:
    body = f"""
monitor.start_batch()
from pathlib import Path
while not [*Path({str(FOLDER)!r}).glob(f"{{os.getpid()}}.*.here")]: time.sleep(0.01)
print("stuck", flush=True)
{end}
"""
    with script.start(body, RANK=rank) as process:
        assert process.stdout and process.stdout.readline() == "stuck\n"
        _, err = process.communicate(timeout=60)
    assert process.returncode == code and "training_monitor" not in err
    assert left(process.pid) == []


def test_what_a_killed_asker_left_is_removed_by_the_next(script: Script, tmp_path: Path) -> None:
    """It is killed while it reads the answer."""
    head = tmp_path / "tools" / "head"
    head.parent.mkdir()
    real = shutil.which("head")
    head.write_text(f'#!/bin/sh\ncase $2 in {MOST_BYTES}) kill -9 0 ;; *) exec {real} "$@" ;; esac\n')
    head.chmod(0o755)
    environ = {**os.environ, "PATH": f"{head.parent}{os.pathsep}{os.environ['PATH']}"}
    with script.start(TRAIN.format(what=STUCK["a lock"]), RANK="3") as process:
        asked = stacks_question(pids_of(stuck(process).pid), 30.0)
        asking = ["sh", "-c", asked.script]
        assert subprocess.run(asking, env=environ, start_new_session=True, timeout=60).returncode == -signal.SIGKILL
        assert any(".look." in name for name in left(process.pid))
        process.kill()
    with script.start(TRAIN.format(what=STUCK["a lock"]), RANK="3") as other:
        stuck(other)
        assert left(process.pid) == []
        other.kill()


# ---------------------------------------------------------------- which processes answer


@pytest.mark.parametrize("rank", RANKS)
def test_a_forked_child_does_not_answer_for_its_parent(script: Script, rank: str) -> None:
    body = """
        monitor.start_epoch(1)
        monitor.start_batch()
        child = os.fork()
        if child == 0:
            monitor.start_epoch(2)
            monitor.start_batch()
            monitor.start_monitoring()
            os.write(1, " ".join(each.name for each in threading.enumerate()).encode() + b"\\n")
            time.sleep(3600)
        os.write(1, f"child {child}\\n".encode())
        time.sleep(3600)
    """
    with script.start(body, RANK=rank) as process:
        assert process.stdout
        told = sorted(process.stdout.readline().split() for _ in range(2))
        assert told[0] == ["MainThread"]
        child = int(told[1][1])
        assert wait_until(lambda: is_there(process.pid))
        request = FOLDER / f"{child}.ask.0123456789abcdef"
        request.mkdir()
        for number in range(3):
            assert ask(process.pid, f"{number:016x}")["pid"] == process.pid
        assert left(child) == [request.name]
        request.rmdir()
        os.kill(child, signal.SIGKILL)
        process.kill()


def test_a_forked_child_that_exits_removes_nothing_of_its_parent(script: Script) -> None:
    body = """
        monitor.start_batch()
        child = os.fork()
        if child == 0:
            sys.exit()
        os.waitpid(child, 0)
        print("stuck", flush=True)
        time.sleep(3600)
    """
    with script.start(body, RANK="3") as process:
        assert ask(stuck(process).pid)["pid"] == process.pid
        process.kill()


def test_a_child_with_a_monitor_of_its_own_answers_for_itself(script: Script) -> None:
    body = """
        monitor.start_batch()
        child = os.fork()
        if child == 0:
            mine = TrainingMonitor("progress/child.json", rank=1)
            mine.start_batch()
            time.sleep(3600)
        print(child, flush=True)
        time.sleep(3600)
    """
    with script.start(body, RANK="3") as process:
        assert process.stdout
        child = int(process.stdout.readline())
        for pid in (process.pid, child):
            assert wait_until(lambda pid=pid: is_there(pid))  # type: ignore[misc]
            assert ask(pid)["pid"] == pid
        os.kill(child, signal.SIGKILL)
        process.kill()
