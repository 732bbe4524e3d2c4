"""`logs`: print the last lines of a job's log."""

from __future__ import annotations

from argparse import Namespace

from training_monitor.cli.argument_types import WHAT, CommandParser, count, some_name
from training_monitor.cli.command_table import Command
from training_monitor.cli.output import OK, hint, print_json, say
from training_monitor.core.errors import TrainingMonitorError
from training_monitor.core.models import JobView
from training_monitor.core.units import format_bytes

_UNSEEN = "its output cannot be read: it is not in a file, or only its user may see in which one"
_MISSING = "its log does not exist: it may not have been created yet, or be on another machine"
_TO_FILE = "run this as its user, or write the output to a file: COMMAND >train.log 2>&1"


def declare(command: CommandParser) -> None:
    command.target(is_optional=True)
    command.value("job", "JOB", WHAT, nargs="?", type=some_name)
    command.value("--tail", "LINES", "number of lines (default: %(default)s)", type=count, default=100)


def run(args: Namespace) -> int:
    from training_monitor.jobs.process_jobs import LOG_BYTES

    view = _look(args)
    lines = view.log_tail.splitlines(keepends=True)
    text = "".join(lines[-args.tail :] if args.tail > 0 else [])
    if len(lines) <= args.tail and len(view.log_tail.encode()) >= LOG_BYTES:
        hint(f"the log has older lines: only its last {format_bytes(LOG_BYTES)} were read")
    if args.json:
        print_json(args, {"job_id": args.job or view.job_id, "text": text})
    elif text:
        say(text.removesuffix("\n"))
    else:
        hint("the log is empty")
    return OK


def _look(args: Namespace) -> JobView:
    """Look once at a job, or at a log or process as if it were one. Raises also when its log could not be read."""
    from training_monitor.jobs.jobs import look_with_log
    from training_monitor.look.meant import find_one_at, named_job, reach
    from training_monitor.supervision import JobMonitor
    from training_monitor.targets.asking import Site

    site, job = Site.of(args.target, args.namespace), named_job(args.job) if args.job else None
    if job and job.job_id is not None:
        return look_with_log(site.resolve(), job.job_id)
    if job is None:
        site = reach(site)
        job = find_one_at(site).job
    monitor = JobMonitor(site.target, job)
    monitor.update()
    assert monitor.view
    if monitor.view.pod and not monitor.view.log_known:
        raise TrainingMonitorError(f"no log: {monitor.view.message}", hint=monitor.view.advice)
    if monitor.observations[-1].unseen_output:
        raise TrainingMonitorError(f"{job.label}: {_UNSEEN}", hint=_TO_FILE)
    if not monitor.view.log_known:
        raise TrainingMonitorError(f"{site.target.called}: {_MISSING}")
    return monitor.view


COMMAND = Command(run, declare, ("my-pod my-training --tail 20",))
