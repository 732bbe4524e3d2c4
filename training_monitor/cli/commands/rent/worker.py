"""`rent worker`: work through the queue: rent, train, save, destroy."""

from __future__ import annotations

from argparse import Namespace

from training_monitor.cli.argument_types import CommandParser, positive_count
from training_monitor.cli.command_table import Command
from training_monitor.cli.notifying import open_heartbeat, open_outbox
from training_monitor.cli.output import BAD, OK, complain, hint, interrupted_status


def declare(command: CommandParser) -> None:
    command.value("--jobs", "N", "maximum concurrent jobs (default: %(default)s)", type=positive_count, default=1)
    command.flag("--until-empty", "exit when the queue is empty")
    command.flag("--no-sweep", "do not destroy unneeded instances; leave that to `training-monitor rent sweep`")
    command.notify()
    command.heartbeat()


def run(args: Namespace) -> int:
    """Run the jobs of the queue."""
    from training_monitor.cli.rented_jobs import UNFINISHED, ServiceDisplay, need_tools, say_left
    from training_monitor.rent import JobState, TrainingQueue, run_worker
    from training_monitor.rent.queue import load_service_config

    config = load_service_config()
    need_tools()
    display = ServiceDisplay(args)
    if not args.json:
        hint("Ctrl-C ends the worker, not the trainings: their machines keep running")
    try:
        with open_outbox(args.notify) as outbox, open_heartbeat(args.heartbeat) as heartbeat, display:
            done = run_worker(
                jobs=args.jobs,
                until_empty=args.until_empty,
                sweep=not args.no_sweep,
                config=config,
                outbox=outbox,
                heartbeat=heartbeat,
                on_event=display.event,
            )
    except KeyboardInterrupt as interrupt:
        for job in TrainingQueue().list_jobs(UNFINISHED, on_damaged=lambda _, error: complain(str(error))):
            if job.work.instance_id is not None:
                say_left(job)
        return interrupted_status(interrupt)
    failed = [job for job in done if job.state is JobState.FAILED]
    return BAD if failed else OK


COMMAND = Command(run, declare, ("--jobs 4", "--until-empty"))
