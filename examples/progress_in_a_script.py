"""Report progress from a training script. Watch it, and edit its learning rate, in `training-monitor top progress`.

python3 examples/progress_in_a_script.py [EPOCHS] [SECONDS_PER_BATCH]
"""

from __future__ import annotations

import random
import sys
import time

from training_monitor import TrainingMonitor

BATCHES, VALIDATION_BATCHES = 100, 10


def main(epochs: int = 3, seconds: float = 0.05) -> None:
    settings = {"learning_rate": 0.1, "batch_size": 32}
    monitor = TrainingMonitor("progress/example", tee_outputs=True)
    monitor.track_variables(settings)
    monitor.set_dataset_sizes(BATCHES * 32, VALIDATION_BATCHES * 32)
    loss = 4.0
    with monitor:
        for epoch in range(1, epochs + 1):
            monitor.start_epoch(epoch, total_batches=BATCHES, total_epochs=epochs)
            for _ in range(BATCHES):
                monitor.start_batch()  # from here on, `settings` contains an edited learning rate
                loss -= settings["learning_rate"] * (loss - 1.0) * random.random() * 0.1
                time.sleep(seconds)
                monitor.update_metrics(loss=loss, learning_rate=settings["learning_rate"])
            monitor.start_validation(VALIDATION_BATCHES)
            for _ in range(VALIDATION_BATCHES):
                monitor.start_batch()
                time.sleep(seconds / 2)
            monitor.end_validation()
            monitor.update_metrics(validation_loss=loss + 0.1)
            monitor.end_epoch()
            print(f"epoch {epoch}: loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    main(*(kind(word) for kind, word in zip((int, float), sys.argv[1:])))
