"""`demo`: supervise a real training process that crashes, leaves a damaged checkpoint and hangs."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from argparse import Namespace

from training_monitor.cli.live import LiveDisplay
from training_monitor.cli.output import hint, interrupted_status, say
from training_monitor.cli.supervising import show_result
from training_monitor.core.store import Store
from training_monitor.jobs.jobs import find_jobs_named
from training_monitor.jobs.stopping import stop_job
from training_monitor.restart.restart import auto_restart
from training_monitor.targets.asking import Site

JOB_NAME = "demo"


def demo(args: Namespace) -> int:
    """Run the demo in a temporary folder; folder and training are removed however it ends."""
    with tempfile.TemporaryDirectory(prefix="training-monitor-demo-", ignore_cleanup_errors=True) as folder:
        os.environ["TRAINING_MONITOR_JOBS_DIR"] = os.path.join(folder, "jobs")
        try:
            return _run(folder, args)
        except KeyboardInterrupt as interrupt:
            hint("\nthe demo was interrupted; its training process is ended, its folder removed")
            return interrupted_status(interrupt)
        finally:
            _end_training()


def _run(folder: str, args: Namespace) -> int:
    output = os.path.join(folder, "checkpoints")
    script = os.path.join(os.path.dirname(__file__), "demo_training.py")
    command = [sys.executable, script, "--output", output]
    config: dict[str, object] = {
        "command": command,
        "resume_argument": "--resume",
        "working_dir": folder,
        "env": {"TRAINING_MONITOR_JOBS_DIR": os.path.join(folder, "jobs")},
    }
    if not args.json:
        say(
            "A real training process, 200 steps, a checkpoint every 20. It will crash once,\n"
            "leaving a damaged checkpoint, and hang once. auto_restart supervises it here:\n"
            f"  {shlex.join(command)}\n"
        )
    display = LiveDisplay(as_json=args.json)
    store = Store(os.path.join(folder, "state"))
    try:
        report = auto_restart("local", JOB_NAME, output, 5, 0.5, 2.5, 0.4, config, on_event=display.show, store=store)
    finally:
        display.clear()
    return show_result(report, args)


def _end_training() -> None:
    for view, _ in find_jobs_named(Site.of("local"), JOB_NAME, process=True):
        if not view.status.is_terminal or view.survivors:
            stop_job("local", view.job_id, grace=1.0)
