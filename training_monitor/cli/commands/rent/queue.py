"""`rent queue`: the trainings on rented machines; show or cancel one."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import TYPE_CHECKING

from training_monitor.cli.argument_types import CommandParser
from training_monitor.cli.command_table import Command
from training_monitor.cli.output import BAD, OK, UNKNOWN, complain, hint, print_json, print_table, refuse
from training_monitor.core.errors import InvalidTransition, SettingsError, TrainingMonitorError
from training_monitor.core.units import format_duration

if TYPE_CHECKING:
    from training_monitor.rent import QueuedJob


def declare(command: CommandParser) -> None:
    command.value("job", "JOB", "ID of a job to show or cancel (default: list all)", nargs="?")
    command.flag("--cancel", "end JOB: save its newest checkpoint and destroy its machine")
    command.value(
        "--reason", "TEXT", "with --cancel: reason to record (default: %(default)s)", default="cancelled by hand"
    )
    command.flag("--all", "include jobs that have ended")


def run(args: Namespace) -> int:
    """List the jobs, show one, or cancel one."""
    from training_monitor.cli.rented_jobs import UNFINISHED, is_to_end, job_keys, limit_of, print_job
    from training_monitor.rent import TrainingQueue

    jobs = TrainingQueue()
    if args.cancel and not args.job:
        raise SettingsError("--cancel", None, "the ID of the job to cancel")
    if args.job:
        try:
            job = jobs.cancel(args.job, args.reason) if args.cancel else jobs.get(args.job)
        except InvalidTransition as error:  # it is over
            return refuse(error, args, BAD)
        if print_json(args, {"jobs": [job_keys(job)]}):
            return OK
        print_job(job)
        if args.cancel:
            hint(_who_ends(job))
        return OK
    damaged = dict[str, TrainingMonitorError]()
    found = jobs.list_jobs(None if args.all else UNFINISHED, on_damaged=damaged.__setitem__)
    for problem in damaged.values():
        complain(str(problem))
    status = UNKNOWN if damaged else OK
    unread = [{"job_id": job_id, "error": problem.what} for job_id, problem in damaged.items()]
    if print_json(args, {"jobs": [job_keys(job) for job in found], "damaged": unread}):
        return status
    if not found:
        hint("no job is waiting or running" + ("" if args.all else " (--all also lists ended jobs)"))
        return status
    header = ("JOB", "STATE", "STEP", "MACHINE", "COST", "AGE", "WORKER")
    print_table(header, [_row(job) for job in found], gives_way=(6,))
    for job in found:
        if limit := limit_of(job):
            hint(f"! {job.id}: {limit.reason}")
    if any(is_to_end(job) for job in found):
        hint("* its worker will end it; if it has no worker, run training-monitor rent sweep --force")
    return status


def _who_ends(job: QueuedJob) -> str:
    """Format what happens to a job that was just cancelled."""
    from training_monitor.cli.rented_jobs import holder_of

    if job.state.is_terminal:
        account = job.request.account
        return "the job has ended and has no machine" + (
            f"; its reservation was returned to {account}" if account else ""
        )
    if holder := holder_of(job):
        return f"worker {holder} holds the job and will end it: it saves the checkpoint and destroys the machine"
    return "no worker holds the job, but it may have a machine: run training-monitor rent sweep --force to end both"


def _row(job: QueuedJob) -> tuple[str, ...]:
    from training_monitor.cli.rented_jobs import holder_of, is_to_end
    from training_monitor.vast.cost import cost_of

    work = job.work
    step = "-" if work.last_step is None else f"{work.last_step}/{work.total_steps or '?'}"
    machine = "-" if work.instance_id is None else str(work.instance_id)
    age = format_duration(time.time() - job.created_at)
    worker = holder_of(job) or ("(its worker has ended)" if job.worker else "-")
    state = f"{job.state.value}{'*' if is_to_end(job) else ''}"
    return job.id, state, step, machine, f"${cost_of(work, time.time()):.2f}", age, worker


COMMAND = Command(run, declare, ("", "my-lora-123456 --cancel"))
