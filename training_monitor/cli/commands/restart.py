"""`restart`: supervise a Ray job and restart it from its checkpoints."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.command_table import Command
from training_monitor.cli.options import add_supervision


def declare(command: CommandParser) -> None:
    command.target()
    command.value("job_name", "NAME", "jobs are called NAME or NAME-attempt-N")
    command.value("--job", "JOB", "start by supervising this submission id")
    command.value("--entrypoint", "COMMAND", "default: that of the latest Ray job of this name")
    add_supervision(command)


def run(args: Namespace) -> int:
    """Supervise a Ray job: adopt it if it runs, else restart it from its newest complete checkpoint."""
    from training_monitor.cli.supervising import let_read, named_folder, supervise

    config: dict[str, Any] | None = None
    if args.entrypoint:
        config = {"entrypoint": args.entrypoint}
        if args.resume_argument:
            config["resume_argument"] = args.resume_argument
    named = named_folder(args.entrypoint) if args.entrypoint and not args.checkpoint_dir else None
    let_read(args, named)
    return supervise(args, args.job_name, args.checkpoint_dir or named, config)


COMMAND = Command(run, declare, ("my-head-pod my-training --checkpoint-dir /checkpoints/my-training",))
