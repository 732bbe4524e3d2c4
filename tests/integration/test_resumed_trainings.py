"""Trainings of the real frameworks that go on from a checkpoint in the middle of an epoch count on from there."""

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
# Ten batches an epoch, two epochs; the first process dies after batch 7, of which it has a checkpoint.
HUGGING_FACE = """
import os, sys, torch, transformers
from training_monitor import HuggingFaceCallback, TrainingMonitor

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x, labels=None):
        loss = self.layer(x).square().mean()
        return {"loss": loss}

class Die(transformers.TrainerCallback):
    def on_save(self, args, state, control, **others):
        if sys.argv[1] == "first":
            raise RuntimeError("the power is gone")

trainer = transformers.Trainer(
    Model(),
    transformers.TrainingArguments(
        "checkpoints", num_train_epochs=2, per_device_train_batch_size=1, save_steps=7, logging_steps=1, report_to=[],
        use_cpu=True, disable_tqdm=True, save_only_model=False,
    ),
    train_dataset=[{"x": torch.ones(1), "labels": torch.ones(1)} for _ in range(10)],
    callbacks=[HuggingFaceCallback(TrainingMonitor("progress/run", interval=0.02)), Die()],
)
trainer.train(resume_from_checkpoint=sys.argv[1] != "first")
"""
LIGHTNING = """
import sys, lightning, torch
from training_monitor import LightningCallback, TrainingMonitor

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, number):
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

class Die(lightning.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, number):
        if sys.argv[1] == "first" and trainer.global_step == 7:
            trainer.save_checkpoint("seven.ckpt")
            raise RuntimeError("the power is gone")

trainer = lightning.Trainer(
    max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    callbacks=[LightningCallback(TrainingMonitor("progress/run", interval=0.02)), Die()],
)
loader = torch.utils.data.DataLoader(torch.ones(10, 1))
trainer.fit(Module(), loader, ckpt_path=None if sys.argv[1] == "first" else "seven.ckpt")
"""


def train(folder: Path, script: str, which: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, "-c", script, which], cwd=folder, env=environ, capture_output=True, text=True, timeout=300
    )


def run_of(folder: Path) -> dict[str, Any]:
    [row] = json.loads(run_command("top", str(folder / "progress"), "--once", "--json").stdout)["runs"]
    return dict(row["run"])


@pytest.mark.parametrize(("package", "script"), [("transformers", HUGGING_FACE), ("lightning", LIGHTNING)])
def test_a_training_that_goes_on_within_an_epoch_counts_on(tmp_path: Path, package: str, script: str) -> None:
    require_package("torch")
    require_package(package)
    died = train(tmp_path, script, "first")
    assert "the power is gone" in died.stderr, died.stderr[-3000:]
    run = run_of(tmp_path)
    assert (run["status"], run["step"], run["attempt"]) == ("FAILED", 7, 1)
    done = train(tmp_path, script, "second")
    assert done.returncode == 0, done.stderr[-3000:]
    run = run_of(tmp_path)
    assert (run["status"], run["step"], run["epoch"], run["attempt"]) == ("FINISHED", 20, 2, 2)
    assert [(each["status"], each["step"]) for each in run["earlier"]] == [("FAILED", 7)]
    steps = run["history"]["loss"]["steps"]
    assert steps[0] <= 7 and steps[-1] == 20 and steps == sorted(set(steps))
