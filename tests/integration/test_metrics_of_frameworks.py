"""Metrics that come from the real frameworks are what a person would plot, and hold nothing of the training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.requirements import require_package

ROOT = Path(__file__).parents[2]
TORCH = """
import sys, time, weakref
import torch
from training_monitor import TrainingMonitor

class Noted(torch.autograd.Function):  # its saved tensors live as long as the graph
    @staticmethod
    def forward(ctx, tensor):
        ctx.save_for_backward(tensor)
        return tensor.sum()

    @staticmethod
    def backward(ctx, grad):
        return grad

with TrainingMonitor("run.json", interval=0.02) as monitor:
    total = torch.zeros(())
    big = torch.ones(1000, requires_grad=True) * 1
    kept = weakref.ref(big)
    loss = Noted.apply(big)
    total += 3
    monitor.update_metrics({"total": total, "batch": torch.tensor([7])}, val_loss=loss, half=torch.tensor(0.5).half())
    total.zero_()
    del big, loss
    assert kept() is None, "the graph is held"
    monitor.update_metrics(many=torch.ones(3))
"""
LIGHTNING = """
import lightning, torch
from training_monitor import LightningCallback, TrainingMonitor

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, number):
        return self.layer(batch).mean() * 0 + 2.0

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

trainer = lightning.Trainer(
    max_epochs=1, accumulate_grad_batches=4, accelerator="cpu", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, callbacks=[LightningCallback(TrainingMonitor("run.json"))],
)
trainer.fit(Module(), torch.utils.data.DataLoader(torch.ones(8, 1)))
"""


def trained(folder: Path, script: str) -> dict[str, Any]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environ, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    document: dict[str, Any] = json.loads((folder / "run.json").read_text())
    assert document["status"] == "FINISHED"
    return document


def test_a_tensor_is_its_value_at_the_call_and_its_graph_is_not_held(tmp_path: Path) -> None:
    require_package("torch")
    metrics = trained(tmp_path, TORCH)["metrics"]
    assert "cannot be converted" in metrics.pop("many")
    assert metrics == {"total": 3.0, "batch": 7, "val_loss": 1000.0, "half": 0.5}


def test_the_loss_of_lightning_is_that_of_the_batch(tmp_path: Path) -> None:
    require_package("torch")
    require_package("lightning")
    document = trained(tmp_path, LIGHTNING)
    assert document["metrics"]["loss"] == 2.0 and set(document["history"]["loss"]["values"]) == {2.0}
