"""Report progress from the Hugging Face Trainer: `training-monitor top progress` shows it during the training.

    python3 examples/hugging_face_trainer.py [STEPS]

Needs torch, transformers and accelerate. The model is a straight line, so nothing is downloaded.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from transformers import Trainer, TrainingArguments

from training_monitor import HuggingFaceCallback, TrainingMonitor

POINTS = [{"x": torch.tensor([n / 64]), "labels": torch.tensor([3 * n / 64 + 1])} for n in range(64)]


class Line(torch.nn.Module):
    """y = ax + b."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x: Any, labels: Any) -> dict[str, Any]:
        guess = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(guess, labels), "logits": guess}


def main(steps: int = 40) -> None:
    monitor = TrainingMonitor("progress/hugging-face")
    arguments = TrainingArguments(
        output_dir="checkpoints/hugging-face",
        max_steps=steps,
        per_device_train_batch_size=8,
        learning_rate=0.05,
        logging_steps=5,
        save_steps=20,
        eval_strategy="steps",
        eval_steps=20,
        report_to="none",
        use_cpu=not torch.cuda.is_available(),
    )
    callbacks = [HuggingFaceCallback(monitor)]
    trainer = Trainer(Line(), arguments, train_dataset=POINTS, eval_dataset=POINTS[:16], callbacks=callbacks)
    trainer.train()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
