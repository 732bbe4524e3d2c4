"""The examples for Hugging Face's and Lightning's trainers, with the real libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import run_command
from tests.requirements import require_package

ROOT = Path(__file__).parents[2]
EXAMPLES = {"hugging_face_trainer": ("transformers", "hugging-face"), "lightning_fit": ("lightning", "lightning")}


def train(folder: Path, example: str) -> subprocess.CompletedProcess[str]:
    require_package("torch")
    require_package(EXAMPLES[example][0])
    command = [sys.executable, str(ROOT / "examples" / f"{example}.py")]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=300)


def row(folder: Path, example: str) -> dict[str, Any]:
    """What `top` says of the run."""
    found = json.loads(run_command("top", str(folder / "progress"), "--once", "--json").stdout)
    [only] = found["runs"]
    assert only["run"]["name"] == EXAMPLES[example][1]
    return dict(only)


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_real_trainer_tells_its_progress_to_the_end(tmp_path: Path, example: str) -> None:
    done = train(tmp_path, example)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = row(tmp_path, example)
    run = seen["run"]
    assert (seen["state"], run["step"], run["epoch"], run["total_epochs"]) == ("finished", 40, 5, 5)
    assert run["total_validation_batches"] > 0 and run["metrics"]["loss"] > 0
    assert {"eval_loss", "validation_loss"} & set(run["metrics"])
    assert list((tmp_path / "checkpoints").rglob("*.ckpt" if example == "lightning_fit" else "*.safetensors"))
