"""Train a LoRA on a rented machine from Python: queue the job, run it, and print the result.

HF_TOKEN=... python3 examples/rent_and_train.py IMAGES NAME TRIGGER [hf:OWNER/NAME]
"""

from __future__ import annotations

import sys

from training_monitor import Event
from training_monitor.rent import TrainingQueue, TrainingRequest, TrainingSpec, run_worker, submit_training


def show(event: Event) -> None:
    if event.kind != "progress":
        print(f"{event.kind}: {event.text}", flush=True)


def main(arguments: list[str]) -> int:
    if len(arguments) not in (3, 4) or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 1
    images, name, trigger, *upload_to = arguments
    spec, token = TrainingSpec(name, trigger), {"HF_TOKEN": "env:HF_TOKEN"}  # read when needed, never stored
    request = TrainingRequest(name, images, spec, env=token, upload_to=tuple(upload_to), budget=5.0)
    job = submit_training(request)
    run_worker(job.id, on_event=show)
    done = TrainingQueue().get(job.id)
    print(f"{done.state}: {done.work.reason}; the model is at {done.work.model_url}; cost: ${done.work.spent:.2f}")
    return 0 if done.state == "COMPLETED" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
