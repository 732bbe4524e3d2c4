"""The training that `watch` and `stop` are about: how it is found, ended and saved, and what came of that."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from training_monitor.cli.notifying import typed_or_variable
from training_monitor.cli.output import hint, interrupted_status, say
from training_monitor.core.errors import (
    CommandTimedOut,
    IncompleteAnswer,
    InstanceNotFound,
    SettingsError,
    TargetUnreachable,
)
from training_monitor.core.outcomes import TerminationPlan, TerminationReport
from training_monitor.core.settings_file import load_table
from training_monitor.core.store import Store
from training_monitor.core.units import format_duration, plural
from training_monitor.core.values import CheckpointListing, WatchedJob
from training_monitor.jobs.process_jobs import owner_question
from training_monitor.look.meant import find_one_at, is_pid, reach
from training_monitor.supervision import TrainingWatcher
from training_monitor.supervision.terminate import is_terminating
from training_monitor.targets.asking import Site
from training_monitor.targets.target import parse_target
from training_monitor.verdict.limits import read_monitoring, read_watch_config

_CONFIGURED = (
    "grace_period", "stall_after", "stop_grace", "soft_limit", "hard_limit", "cost_per_hour", "budget",
    "outage_after", "terminate_busy", "terminate_on_eta",
)  # fmt: skip


def find_job(
    args: Namespace, what: str | None, store: Store, may_go_on: Callable[[WatchedJob], bool] = lambda job: False
) -> WatchedJob:
    """Return the job of the one training that WHAT means, and note the address of its target. Raises like `find_one`.

    If the target cannot be asked, it is the one that these words meant before, if `may_go_on` of it is true.
    """
    key = f"found on {parse_target(args.target, namespace=args.namespace)}: {what or ''}"
    try:
        site = reach(Site.of(args.target, args.namespace))
        found = find_one_at(site, what)
        job, name = found.job, found.name
        if job.pid is not None and is_pid(what or ""):
            [owner] = site.ask(owner_question(job.pid))
            job, name = (WatchedJob(owner.value), owner.value) if owner.value else (job, name)
    except (TargetUnreachable, CommandTimedOut, IncompleteAnswer, InstanceNotFound) as error:
        known = store.load_run(key, WatchedJob)
        if known is None or not may_go_on(known):
            raise
        hint(f"{error.what}: continuing with {known.label}, which was found there earlier")
        return known
    if not args.json and (found.command or found.named is None):  # a PID alone may be that of no process
        hint(f"training: {name}{f': {found.command}' if found.command else ''}")
    store.save_run(key, job, finished=False)
    args.target = str(site)
    return job


def with_options(job: WatchedJob, args: Namespace) -> WatchedJob:
    """Return a job with what the command line tells of it."""
    given = {name: getattr(args, name) for name in ("pid_file", "output_dir", "name")}
    return replace(job, **{name: value for name, value in given.items() if value is not None})


def make_watcher(args: Namespace, job: WatchedJob, store: Store) -> TrainingWatcher:
    """Return the watcher of a job; the command line goes before the settings file's `jobs.LABEL` and `monitoring`.

    Raises:
        SettingsError: naming the file and the key, also for errors in the settings of other jobs.
    """
    given = {key: getattr(args, key, None) for key in _CONFIGURED} | {"poll_interval": getattr(args, "interval", None)}
    if getattr(args, "no_stall_detection", False):
        given["stall_detection"] = False
    config = read_watch_config(load_table("monitoring", partial(read_monitoring, label=job.label)), given)
    return TrainingWatcher(args.target, job, config, args.namespace, store=store)


def make_plan(args: Namespace) -> TerminationPlan:
    if (args.destroy or args.destroy_without_upload) and parse_target(args.target).instance_id is None:
        raise SettingsError("--destroy", args.target, "a rented instance, vast://ID")
    given = {name: getattr(args, name) for name in ("reason", "roll_call_timeout") if hasattr(args, name)}
    return TerminationPlan(
        upload_to=tuple(typed_or_variable("--upload", each) for each in args.upload),
        tags=tuple(args.tag),
        destroy=args.destroy,
        destroy_without_upload=args.destroy_without_upload,
        **given,
    )


@contextmanager
def explained(watcher: TrainingWatcher) -> Iterator[None]:
    """Explain how to resume a termination that is interrupted."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if not is_terminating(watcher):
            raise
        hint("\ninterrupted while the training was being stopped: repeat the command to continue")
        raise SystemExit(interrupted_status(interrupt)) from None


def print_termination(report: TerminationReport) -> None:
    stopped = {
        True: "none of its processes is left",
        False: f"SIGKILL did not terminate {', '.join(report.left)}",
        None: "not known",
    }
    say(f"  processes: {stopped[report.stopped]}")
    newest, found = report.checkpoint, CheckpointListing(report.checkpoints, report.unlisted_checkpoints)
    if newest:
        say(f"  {plural(found.count, 'checkpoint')}, newest complete: step {newest.step}, {newest.path}")
    else:
        say(f"  {found.why_none_is_complete}")
    for upload in report.uploads:
        said = f"{plural(len(upload.files), 'file')} verified" if upload.verified else f"NOT uploaded: {upload.error}"
        say(f"  {upload.destination}: {said}")
    if report.gone:
        say(f"  instance {'destroyed' if report.destroyed else 'gone'}")
    elif report.kept is not None:
        say(f"  instance KEPT, it still costs money: {report.kept}")
    for error in report.errors:
        say(f"  {error}")
    say(f"  took {format_duration(report.duration)}")
