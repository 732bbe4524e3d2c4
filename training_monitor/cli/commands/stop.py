"""`stop`: end a training and see it gone; if asked to, also save its newest checkpoint and end the rental."""

from __future__ import annotations

import time
from argparse import Namespace
from contextlib import ExitStack
from dataclasses import asdict

from training_monitor.cli.argument_types import WHAT, CommandParser, some_name
from training_monitor.cli.command_table import Command
from training_monitor.cli.notifying import open_outbox
from training_monitor.cli.options import add_ending
from training_monitor.cli.output import BAD, OK, hint, print_json, say
from training_monitor.core.errors import CommandFailed, SettingsError
from training_monitor.core.models import Event, JobStatus
from training_monitor.core.outcomes import TerminationReport
from training_monitor.core.values import WatchedJob

_BY_HAND = "Ended by hand"


def declare(command: CommandParser) -> None:
    command.target()
    command.value("job", "JOB", WHAT, nargs="?", type=some_name)
    add_ending(command)
    command.value("--reason", "TEXT", f"reason to record in notices and the model's README (default: {_BY_HAND})")


def run(args: Namespace) -> int:
    if args.upload or args.destroy or args.destroy_without_upload or args.notify is not None:
        return _stop_and_save(args)
    if args.tag or args.reason:
        raise SettingsError("--tag, --reason", args.reason, "--upload, --destroy or --notify as well")
    return _stop(args)


def _stop(args: Namespace) -> int:
    """End a training and look again, without a record of it. Raises where it could not be asked, or is still there."""
    from training_monitor.cli.watched import find_job, with_options
    from training_monitor.core.best_effort_store import BestEffortStore
    from training_monitor.jobs.jobs import see_job
    from training_monitor.jobs.process_jobs import STOP_GRACE_SECONDS
    from training_monitor.jobs.stopping import end_job
    from training_monitor.logs.sources import CONTAINER_LOG
    from training_monitor.look.meant import named_job
    from training_monitor.supervision import TrainingWatcher
    from training_monitor.targets.asking import Site

    store = BestEffortStore()
    job = named_job(args.job) if args.job else find_job(args, None, store)
    if args.job and job.pid is not None and (found := find_job(args, args.job, store)).job_id:
        job = found  # ended by its PID alone, a job would be restarted by its supervisor
    job = with_options(job, args)
    began, grace = time.monotonic(), STOP_GRACE_SECONDS if args.stop_grace is None else args.stop_grace
    status, said, site = "STOPPED", "has ended", Site.of(args.target, args.namespace)
    if job.job_id is not None:
        is_over = see_job(site, job.job_id).status.is_terminal
        status = end_job(site, job.job_id, grace=grace, on_progress=hint)
        said = f"{'had already' if is_over else 'has'} ended ({status})"
    elif left := TrainingWatcher(args.target, job, namespace=args.namespace).stop_run(grace):
        raise CommandFailed(f"{job.label}: SIGKILL did not terminate {', '.join(left)}", target=args.target)
    report = TerminationReport(
        success=True,
        end="terminated",
        reason=_BY_HAND,
        stopped=True,
        left=(),
        checkpoints=(),
        checkpoint=None,
        uploads=(),
        destroyed=None,
        kept=None,
        duration=time.monotonic() - began,
    )
    if not _print_json(args, job, status, report):
        name = str(site.target) if job.label == CONTAINER_LOG else job.label
        say(f"{name} {said}: none of its processes is left")
        if site.target.instance_id is not None:
            hint(f"{site.target} still costs money; to destroy it, add --destroy")
    return OK


def _stop_and_save(args: Namespace) -> int:
    """Do the same in recorded steps, which continue where they were interrupted; a target is asked until it answers."""
    from training_monitor.cli.live import LiveLine
    from training_monitor.cli.watched import (
        explained,
        find_job,
        make_plan,
        make_watcher,
        print_termination,
        with_options,
    )
    from training_monitor.core.best_effort_store import BestEffortStore
    from training_monitor.jobs.kinds import PROCESS
    from training_monitor.look.meant import is_path, named_job
    from training_monitor.supervision import TrainingWatcher, terminate_training
    from training_monitor.supervision.terminate import is_terminating

    def watcher_of(job: WatchedJob) -> TrainingWatcher:
        return make_watcher(args, with_options(job, args), store)

    store, args.reason = BestEffortStore(), args.reason or _BY_HAND
    if args.job and (is_path(args.job) or args.job.startswith(PROCESS)):
        job = named_job(args.job)
    else:
        job = find_job(args, args.job, store, lambda known: is_terminating(watcher_of(known)))
    watcher = watcher_of(job)
    hint(f"ending {watcher.job.label} on {watcher.target}; if interrupted, repeat the command to continue")
    seen = None if is_terminating(watcher) else watcher.poll().status
    live = LiveLine(1.0)

    def show(event: Event) -> None:
        if args.json:
            hint(event.text)
        else:
            live.print_event(event)

    with ExitStack() as stack:
        outbox = stack.enter_context(open_outbox(args.notify, watcher.store))
        stack.enter_context(explained(watcher))
        report = terminate_training(watcher, make_plan(args), outbox=outbox, on_event=show)
    ended = seen if seen and seen.is_terminal else JobStatus.STOPPED if report.stopped else JobStatus.UNKNOWN
    if not _print_json(args, watcher.job, ended.value, report):
        print_termination(report)
    return OK if report.success else BAD


def _print_json(args: Namespace, job: WatchedJob, status: str, report: TerminationReport) -> bool:
    return print_json(args, {"job_id": job.job_id, "name": job.label, "status": status, **asdict(report)})


COMMAND = Command(run, declare, ("my-pod my-training", "vast://30007012 --upload hf:me/my-lora --destroy"))
