"""`step`: the current step of a job."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from training_monitor.cli.keys import progress_keys
from training_monitor.cli.output import OK, UNKNOWN, hint, print_json, say
from training_monitor.logs.job_progress import job_progress

if TYPE_CHECKING:
    pass

from training_monitor.cli.argument_types import CommandParser, some_name
from training_monitor.cli.command_table import Command
from training_monitor.cli.commands.logs import look


def declare(command: CommandParser) -> None:
    command.target()
    command.value("job", "JOB", "a Ray submission id, or process:NAME", type=some_name)


def run(args: Namespace) -> int:
    view = look(args)
    job = job_progress(view.progress)
    if args.json:
        print_json(args, {"job_id": args.job, **progress_keys(view.progress)})
    elif job.step is None:
        hint(f"{args.job} has not printed a step yet")
    else:
        say(str(job.step))
    return UNKNOWN if job.step is None else OK


COMMAND = Command(run, declare, ("my-pod my-training",))
