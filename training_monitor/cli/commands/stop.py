"""`stop`: stop a job and see it gone."""

from __future__ import annotations

from argparse import Namespace

from training_monitor.cli.argument_types import STOP_GRACE, CommandParser, some_name
from training_monitor.cli.command_table import Command
from training_monitor.cli.output import OK, hint, print_json, say
from training_monitor.core.errors import CommandFailed


def declare(command: CommandParser) -> None:
    command.target()
    command.value("job", "JOB", "a Ray submission id, or process:NAME", type=some_name)
    command.duration(STOP_GRACE, "between TERM and KILL (default: 10s)", default=10.0)


def run(args: Namespace) -> int:
    from training_monitor.jobs.jobs import see_job
    from training_monitor.jobs.stopping import end_job
    from training_monitor.look.meant import named_job
    from training_monitor.supervision import TrainingWatcher
    from training_monitor.targets.asking import Site

    job, status, said = named_job(args.job), "STOPPED", "is stopped"
    if job.job_id is not None:
        site = Site.of(args.target, args.namespace)
        see_job(site, job.job_id)
        status = said = end_job(site, job.job_id, grace=args.stop_grace, on_progress=hint)
    elif left := TrainingWatcher(args.target, job, namespace=args.namespace).stop_run(args.stop_grace):
        raise CommandFailed(f"{job.label}: not even SIGKILL ended {', '.join(left)}", target=args.target)
    if not print_json(args, {"job_id": job.job_id, "name": job.label, "status": status}):
        say(f"{job.label} {said}: nothing of it is left")
    return OK


COMMAND = Command(run, declare, ("my-pod my-training",))
