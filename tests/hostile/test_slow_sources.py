"""A data source that does not respond: Ray, the GPU driver and a dead mount hang, and the others still respond."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.tries import tried
from tests.integration.conftest import Place, wait_until
from training_monitor.jobs.jobs import look_at_job
from training_monitor.jobs.process_jobs import start_process_job

ROOT = Path(__file__).parents[2]
HANGING = "#!/bin/sh\nexec sleep 984\n"
# Ray's list alone may take 20 s: nobody here waits for it. The rest is for a machine with much else to do.
SECONDS = 19.0
CASES: tuple[tuple[tuple[str, ...], int, str], ...] = (
    (("status", "local", "process:a"), 0, "RUNNING"),
    (("status", "local", "process:b"), 0, "it is process:b-attempt-1"),
    (("check", "local", "process:a", "--field", "step"), 0, r"^\d+$"),
    (("check", "local", "b", "--field", "step"), 0, r"^\d+$"),
    (("logs", "local", "process:a"), 0, "step"),
    (("logs", "local", "process:b"), 0, "step"),
    (("check", "local", "process:a"), 0, "step"),
    (("check", "local", "b"), 0, "step"),
    (("wait", "local", "process:a", "--for", "step=2", "--interval", "1"), 0, "reached"),
    (("wait", "local", "b", "--for", "step=2", "--interval", "1"), 0, "reached"),
    (("watch", "local", "process:a", "--once"), 0, "step"),
    (("fleet", "local#process:a", "--once"), 0, "a"),
    (("stop", "local", "process:none"), 2, "no training"),
    (("stop", "local", "process:c", "--stop-grace", "1"), 0, "STOPPED"),
)


@pytest.fixture
def hanging(local: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """This machine, with trainings, whose other sources hang."""
    for name in ("a", "b-attempt-1", "c-attempt-2"):
        start_process_job(
            "local", ["sh", "-c", "n=0; while :; do n=$((n + 1)); echo step $n/99999; sleep 1; done"], name
        )
    for name in ("a", "b-attempt-1"):
        assert wait_until(lambda name=name: "step 2" in look_at_job("local", f"process:{name}").log_tail)  # type: ignore[misc]
    for tool in ("ray", "nvidia-smi", "df"):
        (local.surroundings.tools / tool).write_text(HANGING)
        (local.surroundings.tools / tool).chmod(0o755)
    with socket.create_server(("127.0.0.1", 0), backlog=500) as silent:
        monkeypatch.setenv("RAY_API_SERVER_ADDRESS", f"http://127.0.0.1:{silent.getsockname()[1]}")
        yield local


def test_a_source_that_hangs_takes_no_answer_from_the_others(hanging: Place) -> None:
    command = [sys.executable, "-m", "training_monitor"]
    started = list[tuple[subprocess.Popen[str], float]]()
    for words, _, _ in CASES:
        process = subprocess.Popen(
            [*command, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        started.append((process, time.monotonic()))
    wrong = list[str]()
    for (process, began), (words, status, said) in zip(started, CASES):
        tried()
        try:
            out, _ = process.communicate(timeout=max(0.1, SECONDS - (time.monotonic() - began)))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            wrong.append(f"{words} took more than {SECONDS} s")
            continue
        if process.returncode != status or not re.search(said, out, re.MULTILINE):
            wrong.append(f"{words}: exit status {process.returncode}: {out[-500:]}")
    assert not wrong, "\n".join(wrong)


def test_stop_ends_nothing_by_a_bare_name_while_ray_does_not_answer(hanging: Place) -> None:
    """Ray may have a job of that name."""
    tried()
    done = subprocess.run(
        [sys.executable, "-m", "training_monitor", "stop", "local", "b", "--stop-grace", "1"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
        check=False,
    )
    assert done.returncode == 3 and "Traceback" not in done.stderr, done
    assert look_at_job("local", "process:b-attempt-1").status == "RUNNING"
