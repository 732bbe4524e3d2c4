"""Report progress from the Lightning Trainer: `training-monitor top progress` shows it during the training.

    python3 examples/lightning_fit.py [EPOCHS]

Needs torch and lightning. The model is a straight line, so nothing is downloaded.
"""

from __future__ import annotations

import sys
from typing import Any

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from training_monitor import LightningCallback, TrainingMonitor

X = torch.arange(64).reshape(64, 1) / 64
POINTS = TensorDataset(X, 3 * X + 1)


class Line(lightning.LightningModule):
    """y = ax + b."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def _loss(self, batch: Any) -> Any:
        x, y = batch
        return torch.nn.functional.mse_loss(self.layer(x), y)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self._loss(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("validation_loss", self._loss(batch))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main(epochs: int = 5) -> None:
    monitor = TrainingMonitor("progress/lightning")
    trainer = lightning.Trainer(
        max_epochs=epochs,
        default_root_dir="checkpoints/lightning",
        callbacks=[LightningCallback(monitor)],
        logger=False,
        enable_progress_bar=False,
        log_every_n_steps=1,
    )
    trainer.fit(Line(), DataLoader(POINTS, batch_size=8), DataLoader(POINTS, batch_size=16))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
