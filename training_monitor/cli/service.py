"""`launch`, `queue` and `worker`: trainings on rented machines."""

from __future__ import annotations

import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from training_monitor.cli.commands import BAD, OK, UNKNOWN
from training_monitor.cli.market import print_table, refuse
from training_monitor.cli.notifying import open_heartbeat
from training_monitor.cli.output import hint, interrupted_status, print_json, say
from training_monitor.cli.service_display import ServiceDisplay
from training_monitor.cli.service_request import need_tools, submit_request
from training_monitor.errors import InvalidTransition, NoOffers, SettingsError
from training_monitor.policy.cost import spent_by
from training_monitor.probes.settings_file import load_service_config
from training_monitor.renting import JobState, QueuedJob
from training_monitor.supervise.worker import run_worker
from training_monitor.units import format_duration, plural
from training_monitor.vast.queue import TrainingQueue
from training_monitor.watching import UploadReport

if TYPE_CHECKING:
    from training_monitor.notify.outbox import Outbox

_UNFINISHED = [state for state in JobState if not state.is_terminal]


@contextmanager
def told(args: Namespace) -> Iterator[Outbox | None]:
    """Who tells people, where --notify asks for that."""
    if args.notify is None:
        yield None
        return
    from training_monitor.cli.notifying import open_outbox

    with open_outbox(args.notify) as outbox:
        yield outbox


# ---------------------------------------------------------------- launch


def launch(args: Namespace) -> int:
    """Queue a training for a rented machine; with --watch do it here."""
    config = load_service_config()
    if args.watch:
        need_tools()
    elif args.heartbeat is not None:
        raise SettingsError("--heartbeat", None, "--watch with it, or a worker, which is what is watched")
    try:
        job = submit_request(args)
    except NoOffers as error:
        return refuse(error, args, BAD)
    if job.state.is_terminal:
        return _show_end(job, args)
    if not args.watch:
        if args.json:
            print_json(_as_json(job))
        else:
            say(f"{job.id} {job.state.value.lower()}")
            hint(f"`training-monitor worker` works through the queue; `training-monitor queue {job.id}` shows it")
        return OK
    display = ServiceDisplay(as_json=args.json, job_id=job.id)
    if not args.json:
        hint(f"{job.id}: Ctrl-C leaves it as it is; the same command with --id {job.id} goes on")
        if job.worker and (job.lease_until or 0.0) > time.time():
            hint(f"{job.worker} has it now: it is watched here only if that one leaves it")
    try:
        with told(args) as outbox, open_heartbeat(args.heartbeat) as heartbeat, display:
            run_worker(
                job.id,
                sweep=False,
                config=config,
                outbox=outbox,
                heartbeat=heartbeat,
                on_event=display.event,
                on_line=display.line,
            )
    except KeyboardInterrupt as interrupt:
        job = TrainingQueue().get(job.id)
        if args.json:
            print_json({"kind": "interrupted", **_as_json(job)})
        _say_left(job)
        return interrupted_status(interrupt)
    return _show_end(TrainingQueue().get(job.id), args)


def _show_end(job: QueuedJob, args: Namespace) -> int:
    """How a job ended; or that it did not, where another worker has it."""
    if args.json:
        print_json({**({"kind": "result"} if args.watch else {}), **_as_json(job)})
    else:
        _print_job(job)
    if not job.state.is_terminal:
        hint(f"it goes on elsewhere: training-monitor queue {job.id}")
        return UNKNOWN
    return OK if job.state is JobState.COMPLETED else BAD


def _say_left(job: QueuedJob) -> None:
    """What an interrupted launch leaves behind."""
    machine = job.work.instance_id
    costs = f"; instance {machine} goes on costing money" if machine is not None else ""
    if machine is None and job.state is JobState.RENTING and job.work.asked_at is not None:
        costs = "; a machine was asked for, and may be there and cost money"
    hint(f"\n{job.id} is {job.state.value.lower()}{costs}. Go on with it, or end it:")
    hint(f"  training-monitor worker --until-empty\n  training-monitor queue {job.id} --cancel")


# ---------------------------------------------------------------- queue


def queue(args: Namespace) -> int:
    """List the jobs, show one, or end one."""
    jobs = TrainingQueue()
    if args.cancel and not args.job:
        raise SettingsError("--cancel", None, "the job that is to end")
    if args.job:
        try:
            job = jobs.cancel(args.job, args.reason) if args.cancel else jobs.get(args.job)
        except InvalidTransition as error:  # it is over: that is known
            return refuse(error, args, BAD)
        if args.json:
            print_json(_as_json(job))
            return OK
        _print_job(job)
        if args.cancel:
            hint(_who_ends(job))
        return OK
    found = jobs.list_jobs(None if args.all else _UNFINISHED)
    if args.json:
        print_json({"jobs": [_as_json(job) for job in found]})
        return OK
    if not found:
        hint("no job waits or runs" + ("" if args.all else " (--all lists those that have ended)"))
        return OK
    header = ("JOB", "STATE", "STEP", "MACHINE", "COST", "AGE", "WORKER")
    print_table(header, [_row(job) for job in found], gives_way=(6,))
    if any(_is_to_end(job) for job in found):
        hint("* to be ended by its worker; without one: training-monitor worker --until-empty")
    return OK


def _who_ends(job: QueuedJob) -> str:
    """What a person who cancelled a job is told."""
    if job.state.is_terminal:
        account = job.request.account
        return "it has no machine, and is over" + (f"; what it had reserved is back with {account}" if account else "")
    if job.worker and (job.lease_until or 0.0) > time.time():
        return f"{job.worker} has it, and ends it: it saves what there is and destroys the machine"
    return "nobody has it, and it may have a machine: training-monitor worker --until-empty ends both"


def _is_to_end(job: QueuedJob) -> bool:
    return job.to_end is not None and job.work.outcome is None and not job.state.is_terminal


def _last_step(job: QueuedJob) -> int | None:
    """The last one that is known: of the log, or of what was saved."""
    return max((each for each in (job.work.step, job.work.saved_step) if each is not None), default=None)


def _cost(job: QueuedJob) -> float:
    return job.work.spent if job.work.spent is not None else spent_by(job.work.rentals, time.time()).dollars


def _row(job: QueuedJob) -> tuple[str, ...]:
    work, last = job.work, _last_step(job)
    step = "-" if last is None else f"{last}/{work.total_steps or '?'}"
    machine = "-" if work.instance_id is None else str(work.instance_id)
    age, worker = format_duration(time.time() - job.created_at), job.worker or "-"
    if job.worker and (job.lease_until or 0.0) < time.time():
        worker = "(its worker is gone)"
    state = f"{job.state.value}{'*' if _is_to_end(job) else ''}"
    return job.id, state, step, machine, f"${_cost(job):.2f}", age, worker


def _print_job(job: QueuedJob) -> None:
    work = job.work
    say(f"{job.id}  {job.state.value}")
    if work.reason:
        say(f"  {work.reason}")
    if job.to_end and _is_to_end(job):
        say(f"  to be ended: {job.to_end[1]}")
    if (last := _last_step(job)) is not None:
        say(f"  step {last} of {work.total_steps or '?'}")
    for rental in work.rentals:
        ended = "runs" if rental.ended_at is None else f"{format_duration(rental.ended_at - rental.started_at)}"
        price = "unknown price" if rental.price_per_hour is None else f"${rental.price_per_hour:.2f}/h"
        say(f"  machine {rental.attempt}: instance {rental.instance_id}, {rental.gpu_name or '?'}, {price}, {ended}")
    for line, times in Counter(_upload_line(upload) for upload in work.uploads).items():
        say(f"  {line}{f' ({times} times)' if times > 1 else ''}")
    if work.saved_path:
        say(f"  step {work.saved_step} is in {work.saved_path}")
    for warning in work.warnings:
        say(f"  ! {warning}")
    say(f"  cost ${_cost(job):.2f}" + (f" of ${work.estimate:.2f} estimated" if work.estimate else ""))


def _upload_line(upload: UploadReport) -> str:
    became = f"{plural(len(upload.files), 'file')} verified" if upload.verified else upload.error
    return f"{upload.destination}: {became}"


def _as_json(job: QueuedJob) -> dict[str, Any]:
    return {**asdict(job), "cost": _cost(job)}


# ---------------------------------------------------------------- worker


def worker(args: Namespace) -> int:
    """Work through the queue."""
    config = load_service_config()
    need_tools()
    display = ServiceDisplay(as_json=args.json)
    if not args.json:
        hint("Ctrl-C ends the worker, not the trainings: their machines go on")
    try:
        with told(args) as outbox, open_heartbeat(args.heartbeat) as heartbeat, display:
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
        for job in TrainingQueue().list_jobs(_UNFINISHED):
            if job.work.instance_id is not None:
                _say_left(job)
        return interrupted_status(interrupt)
    failed = [job for job in done if job.state is JobState.FAILED]
    return BAD if failed else OK
