"""The supervisor is killed with SIGKILL at random moments and started again: same run, same count, never two jobs."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import training_monitor
from training_monitor import JobStatus
from training_monitor.core import Store
from training_monitor.jobs import look_at_job

PACKAGE = Path(training_monitor.__file__).parent
TRAINING = PACKAGE / "cli" / "demo_training.py"
KILLS = 4


class Census(threading.Thread):
    """Counts the training processes of one output folder, every 50 ms."""

    def __init__(self, output: Path) -> None:
        super().__init__(daemon=True)
        self._output, self._stop_it, self.most, self.looks = str(output), threading.Event(), 0, 0

    def run(self) -> None:
        while not self._stop_it.wait(0.05):
            self.most, self.looks = max(self.most, len(training_pids(self._output))), self.looks + 1

    def end(self) -> None:
        self._stop_it.set()
        self.join()


def training_pids(output: str) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                words = Path(f"/proc/{entry}/cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if str(TRAINING) in words[1:2] and output in words:
                found.append(int(entry))
    return found


def supervise(tmp_path: Path, output: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(TRAINING), "--output", str(output), "--step-seconds", "0.05", "--steps", "160"]
    command += ["--save-every", "20", "--crash-at", "50", "--hang-at", "110"]
    options = [
        "--checkpoint-dir",
        str(output),
        "--name",
        "killed",
        "--resume-argument=--resume",
        "--retry-delay",
        "0.4",
    ]
    options += ["--interval", "0.3", "--stall-after", "1.5", "--max-retries", "5", "--json"]
    environ = {
        **os.environ,
        "PYTHONPATH": str(PACKAGE.parent),
        "TRAINING_MONITOR_STATE_DIR": str(tmp_path / "state"),
        "TRAINING_MONITOR_JOBS_DIR": str(tmp_path / "jobs"),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "training_monitor", "run", *options, "--", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ,
        cwd=tmp_path,
    )


def test_random_kills_leave_one_job_and_the_same_count(tmp_path: Path) -> None:
    output, chance = tmp_path / "checkpoints", random.Random(20)
    output.mkdir()
    census = Census(output)
    census.start()
    killed = 0
    try:
        while killed < KILLS:
            supervisor = supervise(tmp_path, output)
            if not killed and supervisor.stdout:
                supervisor.stdout.readline()  # it has started the job: a slow machine may kill all before that
            try:
                supervisor.wait(chance.uniform(0.1, 1.1))
            except subprocess.TimeoutExpired:
                supervisor.send_signal(signal.SIGKILL)
                killed += 1
            supervisor.communicate()
            assert supervisor.returncode == -signal.SIGKILL, "it ended before it was killed for the last time"
        said, complained = supervise(tmp_path, output).communicate(timeout=90)
    finally:
        census.end()
        for pid in training_pids(str(output)):
            os.kill(pid, signal.SIGKILL)
    events = [json.loads(line) for line in said.splitlines()]
    result = events[-1]
    assert result["success"], (events, complained)
    assert events[0]["kind"] == "resumed"
    assert result["total_retries"] == 2, result
    assert [attempt["status"] for attempt in result["attempts"]] == ["FAILED", "STALLED", "SUCCEEDED"]
    assert result["final_step"] == 160
    assert census.most == 1 and census.looks > 50
    assert training_pids(str(output)) == []


def test_a_second_supervisor_of_the_same_job_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    output = tmp_path / "checkpoints"
    output.mkdir()
    census = Census(output)
    census.start()
    first = supervise(tmp_path, output)
    try:
        assert first.stdout
        first.stdout.readline()  # it has started the job
        second = supervise(tmp_path, output)
        said, complained = second.communicate(timeout=30)
        assert second.returncode == 1
        assert json.loads(said)["kind"] == "AlreadySupervised"
        assert f"process {first.pid}" in complained.decode()
        assert census.most == 1  # it crashes and is started again: there may be none just now
    finally:
        census.end()
        first.kill()
        first.communicate()
        for pid in training_pids(str(output)):
            os.kill(pid, signal.SIGKILL)


def test_ctrl_c_leaves_the_job_running_and_says_how_to_go_on(tmp_path: Path) -> None:
    output = tmp_path / "checkpoints"
    output.mkdir()
    first = supervise(tmp_path, output)
    try:
        assert first.stdout
        first.stdout.readline()
        time.sleep(0.3)
        first.send_signal(signal.SIGINT)
        _, complained = first.communicate(timeout=20)
        assert first.returncode == -signal.SIGINT
        assert "keeps running" in complained.decode() and "training_monitor run" in complained.decode()
        assert len(training_pids(str(output))) == 1
        assert "Traceback" not in complained.decode()
    finally:
        first.kill()
        for pid in training_pids(str(output)):
            os.kill(pid, signal.SIGKILL)


def test_the_exit_of_a_process_job_is_noticed_at_once_although_looks_are_rare(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TRAINING_MONITOR_JOBS_DIR", str(tmp_path / "jobs"))
    ended: list[float] = []

    def note(event: training_monitor.Event) -> None:
        if event.kind == "finished":
            ended.append(time.time())

    command = f"sleep 1.5; date +%s.%N >{tmp_path}/ended"
    report = training_monitor.auto_restart(
        "local",
        "short",
        str(tmp_path / "none"),
        job_config={"command": command},
        check_interval=30,
        on_event=note,
        store=Store(str(tmp_path / "state")),
    )
    assert report["success"] and look_at_job("local", report["job_id"]).status is JobStatus.SUCCEEDED
    assert ended[0] - float((tmp_path / "ended").read_text()) < 1.0
