"""`health`: one report and verdict on GPUs, network, checkpoints, Ray, pods, disks."""

from __future__ import annotations

from argparse import Namespace

from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.command_table import Command
from training_monitor.cli.output import EXITS, print_json, say
from training_monitor.core.errors import TrainingMonitorError


def declare(command: CommandParser) -> None:
    command.target()
    command.value("--checkpoint-dir", "DIR", "a folder on the head (default: found, if it can be)")
    command.value("--pods", "POD", "all pods of the job", nargs="+")
    command.value("--job", "JOB", "also report on this job")


def run(args: Namespace) -> int:
    from training_monitor.health import format_training_health
    from training_monitor.observe.health_report import get_training_health

    folder = args.checkpoint_dir or _found_folder(args)
    report = get_training_health(args.target, folder, args.pods or None, args.namespace, job_id=args.job)
    if not print_json(args, report):
        say(format_training_health(report))
    return EXITS[report["verdict"]]


def _found_folder(args: Namespace) -> str | None:
    """Return the checkpoint folder of the training there, if it can be found."""
    from training_monitor.observe.meant import find_one

    try:
        return find_one(args.target, args.job, args.namespace).job.output_dir
    except TrainingMonitorError:
        return None


COMMAND = Command(run, declare, ("my-head-pod --pods my-head-pod my-worker-pod",))
