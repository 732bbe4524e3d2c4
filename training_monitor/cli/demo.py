"""`demo`: a real training process that crashes, leaves a damaged checkpoint and hangs, supervised to its end."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from argparse import Namespace

from training_monitor.cli.live import LiveDisplay
from training_monitor.cli.output import hint, say
from training_monitor.cli.supervising import INTERRUPTED, show_result
from training_monitor.errors import TrainingMonitorError
from training_monitor.models import Event
from training_monitor.probes.jobs import stop_job
from training_monitor.store import Store
from training_monitor.supervise.restart import auto_restart

JOB_NAME = "demo"


def demo(args: Namespace) -> int:
    """Everything happens in a folder of its own, which is removed when the demo ends well."""
    with tempfile.TemporaryDirectory(prefix="training-monitor-demo-") as folder:
        return _run(folder, args)


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
    os.environ["TRAINING_MONITOR_JOBS_DIR"] = os.path.join(folder, "jobs")
    if not args.json:
        say(
            "A real training process, 200 steps, a checkpoint every 20. It will crash once, leaving a damaged\n"
            "checkpoint, and hang once. auto_restart supervises it on target 'local':\n"
            f"  {shlex.join(command)}\n"
        )
    display = LiveDisplay(as_json=args.json)
    events: list[Event] = []

    def show(event: Event) -> None:
        events.append(event)
        display.show(event)

    try:
        report = auto_restart(
            "local",
            JOB_NAME,
            output,
            5,
            0.5,
            2.5,
            0.4,
            config,
            on_event=show,
            store=Store(os.path.join(folder, "state")),
        )
    except KeyboardInterrupt:
        display.clear()
        _end(next((event.job_id for event in reversed(events) if event.job_id), None))
        hint("\nthe demo was interrupted, and its training process ended")
        return INTERRUPTED
    display.clear()
    return show_result(report, as_json=args.json)


def _end(job_id: str | None) -> None:
    if job_id:
        try:
            stop_job("local", job_id, grace=1.0)
        except TrainingMonitorError as error:
            hint(str(error))
