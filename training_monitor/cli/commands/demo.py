"""`demo`: watch a real training process crash, hang and recover (about half a minute, needs nothing)."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from argparse import Namespace
from contextlib import suppress

from training_monitor.cli.command_table import Command
from training_monitor.cli.output import hint, interrupted_status, say


def run(args: Namespace) -> int:
    """Run the demo in a temporary folder; folder and training are removed however it ends."""
    import tempfile

    from training_monitor.core.interrupts import cleaned_up

    with tempfile.TemporaryDirectory(prefix="training-monitor-demo-", ignore_cleanup_errors=True) as folder:
        os.environ["TRAINING_MONITOR_JOBS_DIR"] = os.path.join(folder, "jobs")
        with cleaned_up(lambda: _end_demo(folder)):
            try:
                return _run_demo(folder, args)
            except KeyboardInterrupt as interrupt:
                hint("\nthe demo was interrupted; its training process was ended and its folder removed")
                return interrupted_status(interrupt)


def _run_demo(folder: str, args: Namespace) -> int:
    from training_monitor.cli import demo_training
    from training_monitor.cli.live import LiveDisplay
    from training_monitor.cli.supervising import show_result
    from training_monitor.core.store import Store
    from training_monitor.supervision.restart import auto_restart

    output, script = os.path.join(folder, "checkpoints"), demo_training.__file__
    command = [sys.executable, script, "--output", output, "--end-with", str(os.getpid())]
    config: dict[str, object] = {
        "command": command,
        "resume_argument": "--resume",
        "working_dir": folder,
        "env": {"TRAINING_MONITOR_JOBS_DIR": os.path.join(folder, "jobs")},
    }
    if not args.json:
        say(
            "A real training process, 200 steps, a checkpoint every 20. It will crash once,\n"
            "leaving a damaged checkpoint, and hang once. auto_restart supervises it here,\n"
            "in a temporary folder that is removed when the demo ends:\n"
            f"  {shlex.join(command)}\n"
        )
    display = LiveDisplay(args)
    store = Store(os.path.join(folder, "state"))
    try:
        report = auto_restart("local", "demo", output, 5, 0.5, 2.5, 0.4, config, on_event=display.show, store=store)
    finally:
        display.clear()
    return show_result(report, args)


def _end_demo(folder: str) -> None:
    """Kill what runs of the demo, and remove its folder: each attempt has a session and a group of its own."""
    import shutil

    from training_monitor.targets.procfs import identify

    jobs = os.path.join(folder, "jobs")
    for name in os.listdir(jobs) if os.path.isdir(jobs) else ():
        with suppress(OSError, ValueError):
            with open(os.path.join(jobs, name, "pid"), encoding="ascii") as file:
                pid, start_ticks, _ = file.read().split()
            if identify(int(pid)).start_ticks == int(start_ticks):
                os.killpg(int(pid), signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


COMMAND = Command(run, None, ("",))
