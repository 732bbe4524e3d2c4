"""Trainings of the real frameworks: their metrics are what a person would plot, and a resumed one counts on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import run_command
from tests.requirements import require_installed

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


# Ten batches an epoch, two epochs; the first process dies after batch 7, of which it has a checkpoint.
RESUMED_TRAINER = """
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
RESUMED_FIT = """
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


# Each script in a process of its own, one after the other, forked from one that has imported what takes long.
FORK = """
import json, os, sys
for name in json.loads(sys.argv[1]):
    __import__(name)
for number, (script, *words) in enumerate(json.loads(sys.argv[2])):
    if not (pid := os.fork()):
        os.dup2(os.open(f"err{number}", os.O_WRONLY | os.O_CREAT), 2)
        sys.argv[1:] = words
        break
    with open(f"code{number}", "w") as code:
        code.write(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
else:
    sys.exit()
exec(script)
"""


def train(folder: Path, imports: Sequence[str], *scripts: Sequence[str]) -> list[tuple[int, str]]:
    """Run scripts with their arguments; the exit status of each, and what it said on stderr."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder), "CUDA_VISIBLE_DEVICES": ""}
    argv = [sys.executable, "-c", FORK, json.dumps(imports), json.dumps(scripts)]
    subprocess.run(argv, cwd=folder, env=environ, timeout=300, check=True)
    return [(int((folder / f"code{at}").read_text()), (folder / f"err{at}").read_text()) for at in range(len(scripts))]


def document_of(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "run.json").read_text())
    assert document["status"] == "FINISHED"
    return document


def test_a_tensor_is_its_value_at_the_call_and_its_graph_is_not_held(tmp_path: Path) -> None:
    require_installed("torch")
    [(code, err)] = train(tmp_path, ["torch"], [TORCH])
    assert code == 0, err
    metrics = document_of(tmp_path)["metrics"]
    assert "cannot be converted" in metrics.pop("many")
    assert metrics == {"total": 3.0, "batch": 7, "val_loss": 1000.0, "half": 0.5}


@pytest.mark.parametrize(
    ("imports", "script", "more"),
    [
        (["transformers", "transformers.trainer"], RESUMED_TRAINER, []),
        (["lightning", "torch._dynamo"], RESUMED_FIT, [[LIGHTNING]]),
    ],
    ids=["transformers", "lightning"],
)
def test_a_training_counts_on_within_an_epoch_and_its_loss_is_that_of_the_batch(
    tmp_path: Path, imports: list[str], script: str, more: list[list[str]]
) -> None:
    require_installed("torch", imports[0])
    (died, said), *ended = train(tmp_path, imports, [script, "first"], [script, "second"], *more)
    assert died == 1 and "the power is gone" in said and not any(code for code, _ in ended), (said, ended)
    [row] = json.loads(run_command("top", str(tmp_path / "progress"), "--once", "--json").stdout)["runs"]
    run = row["run"]
    assert (run["status"], run["step"], run["epoch"], run["attempt"]) == ("FINISHED", 20, 2, 2)
    assert [(each["status"], each["step"]) for each in run["earlier"]] == [("FAILED", 7)]
    steps = run["history"]["loss"]["steps"]
    assert steps[0] <= 7 and steps[-1] == 20 and steps == sorted(set(steps))
    if more:  # of batches whose gradients are accumulated, lightning divides the loss
        document = document_of(tmp_path)
        assert document["metrics"]["loss"] == 2.0 and set(document["history"]["loss"]["values"]) == {2.0}
