"""The examples for Hugging Face's and Lightning's trainers, with the real libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.integration.commands import run_command
from tests.requirements import require_package

ROOT = Path(__file__).parents[2]
EXAMPLES = {"hugging_face_trainer": ("transformers", "hugging-face"), "lightning_fit": ("lightning", "lightning")}


def train(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run one example after the other, in a process that imports torch once."""
    for package in ("torch", *(package for package, _ in EXAMPLES.values())):
        require_package(package)
    paths = [str(ROOT / "examples" / f"{example}.py") for example in EXAMPLES]
    code = f"import runpy, sys; sys.argv = [''];\nfor path in {paths}: runpy.run_path(path, run_name='__main__')"
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=300)


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    """What `top` says of each run, by its name."""
    found = json.loads(run_command("top", str(folder / "progress"), "--once", "--json").stdout)
    return {each["run"]["name"]: each for each in found["runs"]}


def test_real_trainers_tell_their_progress_to_the_end(tmp_path: Path) -> None:
    done = train(tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = rows(tmp_path)
    assert seen.keys() == {name for _, name in EXAMPLES.values()}
    for each in seen.values():
        run = each["run"]
        assert (each["state"], run["step"], run["epoch"], run["total_epochs"]) == ("finished", 40, 5, 5)
        assert run["total_validation_batches"] > 0 and run["metrics"]["loss"] > 0
        assert {"eval_loss", "validation_loss"} & set(run["metrics"])
    for ending in ("*.ckpt", "*.safetensors"):
        assert list((tmp_path / "checkpoints").rglob(ending)), ending
