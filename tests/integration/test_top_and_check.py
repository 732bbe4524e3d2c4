"""`top` and `check` about the same training: by its progress file, and by its process and log."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Surroundings, kill
from tests.integration.test_cli import cli
from tests.integration.test_one_answer import remember
from training_monitor.runs.collector import RunCollector
from training_monitor.runs.local_runs import open_runs
from training_monitor.targets.procfs import identify


@dataclass
class Both:
    """A training that writes a log and, beside it, a progress file."""

    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> Path:
        return self.folder / "train.log"

    def write(self, text: str, age: float, **document: Any) -> None:
        """Write what the training has written by now: the log `age` seconds ago, the progress file a second ago."""
        now, step = time.time(), document.pop("step", 40)
        self.log.write_text(text)
        os.utime(self.log, (now - age, now - age))
        me = identify(self.process.pid) if self.process.poll() is None else self.was
        self.was = me
        state = {"phase": "training", "epoch": 1, "total_epochs": 1, "step": step, "total_steps": 200}
        state |= {"batch": step, "total_batches": 200, "step_at": now - age if step else None}
        names = {"pid": me.pid, "start_ticks": me.start_ticks, "hostname": me.hostname, "boot_id": me.boot_id}
        run = {"format": 1, "status": "RUNNING", "start_time": now - age - 60, "updated_at": now - 1, **document}
        run |= {"metadata": {**names, "pid_namespace": me.pid_namespace}, "state": state}
        (self.folder / "progress").mkdir(exist_ok=True)
        (self.folder / "progress" / "run.json").write_text(json.dumps(run))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()

    def top(self) -> dict[str, Any]:
        [run] = json.loads(cli("top", str(self.folder / "progress"), "--json").stdout)["runs"]
        assert isinstance(run, dict)
        return run

    def check(self) -> dict[str, Any]:
        [job] = json.loads(cli("check", "local", str(self.log), "--json").stdout)["jobs"]
        assert isinstance(job, dict)
        return job

    def states(self) -> tuple[str, str]:
        return self.top()["state"], self.check()["state"]


@pytest.fixture
def training(surroundings: Surroundings) -> Iterator[Both]:
    folder = surroundings.folder / "training"
    folder.mkdir()
    with (folder / "train.log").open("wb") as out:
        argv = [sys.executable, "-c", "import time\ntime.sleep(600)"]
        process = subprocess.Popen(argv, stdout=out, stderr=out, cwd=folder)
    time.sleep(0.1)  # until it has become Python
    both = Both(folder, process)
    yield both
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGCONT)
    kill(process.pid)
    process.wait()


def steps(last: int = 40) -> str:
    return "".join(f"step {step}/200 loss 0.5\n" for step in range(last - 30, last + 1))


LIVES: dict[str, tuple[str, float, dict[str, Any], str]] = {
    "trains": (steps(), 5, {}, "running"),
    "stalls": (steps(), 1500, {}, "stalled"),
    "has lost its loss": (steps() + "step 41/200 loss nan\n", 5, {"step": 41, "metrics": {"loss": "nan"}}, "running"),
    "ends": (steps(200), 60, {"step": 200}, "running"),
    "is over and stays": (steps(200), 4000, {"step": 200}, "running"),
    "starts": ("loading\n", 5, {"step": None}, "starting"),
}


@pytest.mark.parametrize(("text", "age", "document", "state"), LIVES.values(), ids=LIVES)
def test_both_name_the_same_state_of_a_training_that_is_there(
    training: Both, text: str, age: float, document: dict[str, Any], state: str
) -> None:
    training.write(text, age, **document)
    by_top, by_check = training.top(), training.check()
    assert (by_top["state"], by_check["state"]) == (state, state), (by_top["reason"], by_check["reason"])
    # Only a log shows by its age that something is done before the first step.
    assert state == "starting" or by_top["verdict"] == by_check["verdict"], (by_top["reason"], by_check["reason"])


def test_a_stopped_process_is_suspended_on_both_which_say_how_it_goes_on(training: Both) -> None:
    training.write(steps(), 1500)
    training.process.send_signal(signal.SIGSTOP)
    assert training.states() == ("suspended", "suspended")
    for seen in (training.top(), training.check()):
        assert f"kill -CONT {training.process.pid}" in seen["reason"]


def test_the_reason_of_a_run_elsewhere_is_that_of_its_verdict_on_both(training: Both) -> None:
    training.write(steps(), 1500)
    path = training.folder / "progress" / "run.json"
    away = json.loads(path.read_text())
    away["metadata"]["hostname"] = "gpu-9"
    path.write_text(json.dumps(away))
    by_top = training.top()
    assert (by_top["status"], *training.states()) == ("RUNNING", "stalled", "stalled")
    assert by_top["reason"].startswith("no step for 25m") and "it runs on gpu-9" in by_top["reason"]
    assert training.check()["reason"].startswith("no step for 25m")


def test_a_training_that_was_killed_has_failed_on_both(training: Both) -> None:
    training.write(steps(), 60)
    assert training.states() == ("running", "running")
    training.end()
    training.write(steps(), 300)
    assert training.states() == ("failed", "failed") and training.top()["status"] == "KILLED"


def test_a_run_that_is_gone_after_its_last_step_is_finished_on_both(training: Both) -> None:
    training.write(steps(200), 300, step=200)
    training.end()
    training.write(steps(200), 300, step=200)
    assert training.states() == ("finished", "finished") and training.top()["status"] == "FINISHED"


def test_a_run_ends_before_its_process_does(training: Both) -> None:
    """A notebook's kernel outlives its runs; `check` judges the process."""
    training.write(steps(200) + "Training completed\n", 60, step=200, status="FINISHED")
    assert training.states() == ("finished", "running")


def test_neither_estimates_the_end_of_a_training_whose_state_is_unknown(training: Both) -> None:
    estimates = {"run": {"rate": 4.0, "elapsed": 10.0, "remaining": 40.0, "total": 50.0}}
    training.write(steps(), 5, estimates=estimates)
    assert training.top()["eta_seconds"] == 40.0
    training.write(steps(), 1500, estimates=estimates)
    assert (training.top()["eta_seconds"], training.check()["eta_seconds"]) == (None, None)


def test_a_loss_of_an_earlier_process_counts_on_neither(training: Both) -> None:
    """It was nan before the restart, and the new process has made no step yet."""
    remember(training.log, [(60.0, 40, {"loss": math.nan, "process": "7 7 earlier"})])
    training.write("loading\n", 5, step=None)
    collector = RunCollector(open_runs(str(training.folder / "progress")), where="progress")
    path = training.folder / "progress" / "run.json"
    now, before = path.read_text(), json.loads(path.read_text())
    before["metadata"] |= {"pid": os.getpid(), "start_ticks": identify().start_ticks}
    before["metrics"] = {"loss": "nan"}
    path.write_text(json.dumps(before))
    assert "the loss is nan" in collector.look_once().rows[0].verdict.reason
    path.write_text(now)
    [row] = collector.look_once().rows
    assert row.verdict.state == training.check()["state"] == "starting"
    assert "nan" not in row.verdict.reason + training.check()["reason"]
