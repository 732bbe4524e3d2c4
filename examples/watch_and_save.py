"""Follow a training that you started yourself. If it hangs, terminate it and save its outputs.

python3 examples/watch_and_save.py TARGET LOG_FILE PID_FILE OUTPUT_DIR [hf:OWNER/NAME]
"""

from __future__ import annotations

import sys

from training_monitor import TerminationPlan, TrainingWatcher, watch_training
from training_monitor.core import Store
from training_monitor.logs import LogUpdate
from training_monitor.notify import Outbox, load_notifier


def show(update: LogUpdate) -> None:
    progress = update.progress
    print(f"step {progress.step}/{progress.total_steps} loss {progress.loss}: {update.line}", flush=True)


def main(arguments: list[str]) -> int:
    if len(arguments) not in (4, 5) or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 1
    target, log_file, pid_file, output_dir, *upload_to = arguments
    store = Store()
    job = {"log_file": log_file, "pid_file": pid_file, "output_dir": output_dir}
    watcher = TrainingWatcher(target, job, {"poll_interval": 1}, store=store)
    plan = TerminationPlan(upload_to=tuple(upload_to))
    with Outbox(load_notifier(store=store), store) as outbox:
        report = watch_training(watcher, plan=plan, outbox=outbox, on_line=show)
    if report:
        print(f"{report.end}: {report.reason}")
    return 0 if report and report.end == "finished" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
