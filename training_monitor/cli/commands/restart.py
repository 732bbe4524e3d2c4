"""`restart`: supervise a job of Ray or of a scheduler, and restart it from its checkpoints."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.command_table import Command
from training_monitor.cli.options import add_supervision
from training_monitor.core.errors import SettingsError
from training_monitor.targets.target import parse_target


def declare(command: CommandParser) -> None:
    command.target()
    named = "name of the training; its jobs are NAME or NAME-attempt-N (default: the scheduler's job ID or name)"
    command.value("job_name", "NAME", named, nargs="?")
    command.value("--job", "JOB", "use the existing job with this submission ID as the first attempt")
    command.value(
        "--entrypoint", "COMMAND", "command that starts the training (default: that of the latest Ray job of this name)"
    )
    again = "requeue the same job: it keeps its ID, but a checkpoint cannot be passed to it"
    command.flag("--requeue", f"{again} (default: submit its script as a new job)")
    add_supervision(command)


def run(args: Namespace) -> int:
    """Supervise a job of Ray or of a scheduler: adopt it if it runs, else restart it from its newest checkpoint."""
    from training_monitor.cli.supervising import let_read, named_folder, supervise

    target = parse_target(args.target, namespace=args.namespace)
    if not args.job_name and not target.scheduled:
        raise SettingsError("NAME", None, "the name of a training")
    config: dict[str, Any] = {"entrypoint": args.entrypoint} if args.entrypoint else {}
    if args.resume_argument and (config or target.scheduled):
        config["resume_argument"] = args.resume_argument
    if args.requeue:
        config["requeue"] = True
    named = named_folder(args.entrypoint) if args.entrypoint and not args.checkpoint_dir else None
    let_read(args, named)
    return supervise(args, args.job_name or target.name, args.checkpoint_dir or named, config or None)


COMMAND = Command(run, declare, ("my-head-pod my-training --checkpoint-dir /checkpoints/my-training",))
