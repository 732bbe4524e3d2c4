"""Real processes that crash again and again: which checkpoint each attempt is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from training_monitor import auto_restart
from training_monitor.core.reports import RestartReport
from training_monitor.core.store import Store

# It makes steps from its checkpoint on, saves each tenth, and dies of another transient error each time. One that was
# made to load badly does not load.
TRAINING = r"""
import os, pathlib, pickle, sys, time
folder, given = pathlib.Path(sys.argv[1]), os.environ.get("RESUME_FROM_CHECKPOINT")
attempts = folder.parent / "attempts"
number = len(attempts.read_text().splitlines()) if attempts.exists() else 0
attempts.write_text((attempts.read_text() if number else "") + f"{given}\n")
step = 0
if given:
    data = pathlib.Path(given, "model.pt").read_bytes()
    if b"bad" in data:
        raise RuntimeError("PytorchStreamReader failed reading zip archive: invalid header or archive is corrupted")
    step = int(given.rpartition("_")[2])
crashes, most = int(sys.argv[2]), int(sys.argv[3])
for step in range(step + 1, 41):
    time.sleep(0.01)
    print(f"step {step}/40 loss 0.5", flush=True)
    if step % 10 == 0:
        saved = folder / f"step_{step}"
        saved.mkdir(exist_ok=True)
        (saved / "model.pt").write_bytes(pickle.dumps(step, protocol=4))
    if number < crashes and step % 10 == most:
        raise RuntimeError(f"NCCL communicator was aborted by the {chr(97 + number) * 3} of it")
"""


def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crashes: int) -> tuple[RestartReport, list[str]]:
    monkeypatch.setenv("TRAINING_MONITOR_JOBS_DIR", str(tmp_path / "jobs"))
    (tmp_path / "train.py").write_text(TRAINING)
    folder = tmp_path / "checkpoints"
    folder.mkdir(exist_ok=True)
    command = f"python3 {tmp_path}/train.py {folder} {crashes} 5"
    waits: dict[str, Any] = {"retry_delay": 0.0, "check_interval": 0.1}
    config = {"command": command}
    report = auto_restart("local", "run", str(folder), job_config=config, store=Store(str(tmp_path / "state")), **waits)
    return report, [each.rpartition("/")[2] for each in (tmp_path / "attempts").read_text().splitlines()]


def test_transient_crashes_never_go_back_behind_the_newest_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = tmp_path / "checkpoints" / "step_10"
    good.mkdir(parents=True)
    (good / "model.pt").write_bytes(b"\x80\x04K\n.")
    report, given = train(tmp_path, monkeypatch, 5)
    assert report["success"] and report["total_retries"] == 5, report["reason"]
    assert given == ["step_10"] * 6


def test_a_checkpoint_that_fails_to_load_twice_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step, data in ((10, b"\x80\x04K\n."), (20, b"\x80\x04bad.")):
        (tmp_path / "checkpoints" / f"step_{step}").mkdir(parents=True)
        (tmp_path / "checkpoints" / f"step_{step}" / "model.pt").write_bytes(data)
    report, given = train(tmp_path, monkeypatch, 0)
    assert report["success"], report["reason"]
    assert given == ["step_20", "step_20", "step_10"]
