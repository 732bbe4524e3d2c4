"""A script with a TrainingMonitor as the README shows it, its output in a pipe: the first command reads its file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import run_command
from tests.integration.conftest import Surroundings, kill, wait_until

SCRIPT = """
import sys, time
from training_monitor import TrainingMonitor

with TrainingMonitor("progress/llama", tee_outputs=True) as monitor:
    for epoch in range(1, 6):
        monitor.start_epoch(epoch, total_batches=200, total_epochs=5)
        for batch in range(200):
            monitor.start_batch()
            monitor.update_metrics(loss=2.5)
            time.sleep(0.05)
            if batch == 60 and "fails" in sys.argv:
                raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
"""


@pytest.fixture
def training(surroundings: Surroundings) -> Iterator[subprocess.Popen[bytes]]:
    (surroundings.folder / "train.py").write_text(SCRIPT)
    process = start(surroundings.folder)
    yield process
    kill(process.pid)
    process.wait()


def start(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "train.py", *words], stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, cwd=folder
    )
    wait_until(lambda: "step" in progress_of(folder).get("state", {}) and progress_of(folder)["state"]["step"], 20)
    return process


def progress_of(folder: Path) -> dict[str, Any]:
    path = folder / "progress" / "llama" / "progress.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    assert isinstance(found, dict)
    return found


def check(*words: str) -> dict[str, Any]:
    [job] = json.loads(run_command("check", "local", *words, "--json").stdout)["jobs"]
    assert isinstance(job, dict)
    return job


def test_check_top_status_and_wait_tell_of_the_same_step(
    training: subprocess.Popen[bytes], surroundings: Surroundings
) -> None:
    before = progress_of(surroundings.folder)["state"]["step"]
    job = check(str(training.pid))
    assert (job["state"], job["verdict"], job["total_steps"], job["loss"]) == ("running", "ok", 1000, 2.5)
    assert before <= job["step"] <= progress_of(surroundings.folder)["state"]["step"] + 60
    [row] = json.loads(run_command("top", str(surroundings.folder / "progress"), "--once", "--json").stdout)["runs"]
    assert (row["state"], row["loss"]) == (job["state"], job["loss"])
    [status] = json.loads(run_command("status", "local", str(training.pid), "--json").stdout)["jobs"]
    assert (status["state"], status["loss"]) == (job["state"], job["loss"])
    waited = run_command("wait", "local", str(training.pid), "--for", f"step={job['step'] + 10}", "--timeout", "30")
    assert waited.returncode == 0, waited.stdout + waited.stderr


def test_the_error_of_a_script_that_failed_is_why(surroundings: Surroundings) -> None:
    (surroundings.folder / "train.py").write_text(SCRIPT)
    process = start(surroundings.folder, "fails")
    job = check(str(process.pid))
    process.communicate()
    ended = check(job["log"] if job["log"].startswith("progress:") else f"progress:{job['log']}")
    assert (ended["state"], ended["failure"]["category"]) == ("failed", "cuda_oom"), ended


def test_a_record_that_cannot_be_kept_open_ends_no_training(surroundings: Surroundings) -> None:
    (surroundings.folder / "train.py").write_text(SCRIPT.replace("range(1, 6)", "range(1, 2)").replace("200", "5"))
    ulimit = ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh", sys.executable, "train.py"]
    done = subprocess.run(ulimit, cwd=surroundings.folder, capture_output=True, timeout=60, env=dict(os.environ))
    assert done.returncode == 0 and progress_of(surroundings.folder)["status"] == "FINISHED", done.stderr
