"""`launch`, `queue`, `worker` and `sweep`: trainings on rented machines."""

from __future__ import annotations

import sys
import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from training_monitor.cli.commands import BAD, OK, UNKNOWN
from training_monitor.cli.live import LiveLine, progress_parts
from training_monitor.cli.market import print_table, refuse
from training_monitor.cli.output import complain, hint, interrupted_status, print_json, say
from training_monitor.cli.service_request import need_tools, submit_request
from training_monitor.errors import InvalidTransition, SettingsError
from training_monitor.models import Event
from training_monitor.policy.cost import spent_by
from training_monitor.policy.job_progress import job_progress
from training_monitor.policy.service_config import ServiceConfig
from training_monitor.probes.settings_file import load_service_config
from training_monitor.renting import JobState, QueuedJob
from training_monitor.supervise.sweeper import SweepReport, sweep_instances, watch_sweeps
from training_monitor.supervise.worker import run_worker
from training_monitor.units import format_duration, plural
from training_monitor.vast.instances import list_instances
from training_monitor.vast.queue import TrainingQueue
from training_monitor.watching import LogUpdate, UploadReport

if TYPE_CHECKING:
    from training_monitor.notify.outbox import Outbox

_UNFINISHED = [state for state in JobState if not state.is_terminal]
PLAIN_SECONDS = 5.0
SILENT_SECONDS = 5.0


@contextmanager
def _told(args: Namespace) -> Iterator[Outbox | None]:
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
    job = submit_request(args)
    if job.state.is_terminal:
        return _show_end(job, args)
    if not args.watch:
        if args.json:
            print_json(_as_json(job))
        else:
            say(f"{job.id} {job.state.value.lower()}")
            hint(f"`training-monitor worker` works through the queue; `training-monitor queue {job.id}` shows it")
        return OK
    display = _Display(as_json=args.json)
    if not args.json:
        hint(f"{job.id}: Ctrl-C leaves it as it is; the same command with --id {job.id} goes on")
        if job.worker and (job.lease_until or 0.0) > time.time():
            hint(f"{job.worker} has it now: it is watched here only if that one leaves it")
    try:
        with _told(args) as outbox:
            run_worker(
                job.id,
                sweep=False,
                config=config,
                outbox=outbox,
                on_event=display.event,
                on_line=display.line,
            )
    except KeyboardInterrupt as interrupt:
        display.clear()
        job = TrainingQueue().get(job.id)
        if args.json:
            print_json({"kind": "interrupted", **_as_json(job)})
        _say_left(job)
        return interrupted_status(interrupt)
    display.clear()
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


class _Display:
    """Events as lines, and the newest step as one live line."""

    def __init__(self, *, as_json: bool, name_jobs: bool = False) -> None:
        """`name_jobs`: several jobs are told of, and each line says of which."""
        self._json, self._live, self._started = as_json, LiveLine(PLAIN_SECONDS), time.monotonic()
        self._name_jobs = name_jobs
        self._lock = threading.Lock()

    def event(self, event: Event) -> None:
        with self._lock:
            if self._json:
                print_json({"kind": event.kind, "text": event.text, "job_id": event.job_id})
                return
            if self._name_jobs and event.job_id and not event.text.startswith(event.job_id):
                event = replace(event, text=f"{event.job_id}: {event.text}")
            if event.kind == "progress":
                self._draw(*([event.text] if self._name_jobs else _progress_of(event)))
            else:
                self._live.print_event(event, time.monotonic() - self._started)

    def line(self, update: LogUpdate) -> None:
        with self._lock:
            if not self._json and job_progress(update.progress).step is not None:
                self._draw(*progress_parts(update.progress, update.progress.steps_per_second))

    def _draw(self, *parts: str) -> None:
        self._live.draw("  ".join([f"{time.monotonic() - self._started:6.1f}s", *parts]))

    def clear(self) -> None:
        with self._lock:
            self._live.clear()


def _progress_of(event: Event) -> list[str]:
    """As `line` shows a step, so that the live line does not change its form; else the text."""
    view = event.view
    if view is None or job_progress(view.progress).step is None:
        return [event.text]
    parts = progress_parts(view.progress, view.progress.steps_per_second)
    is_silent = view.log_age is not None and view.log_age >= SILENT_SECONDS
    return [*parts, f"silent {format_duration(view.log_age)}"] if is_silent else parts


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
    display = _Display(as_json=args.json, name_jobs=args.jobs > 1)
    if not args.json:
        hint("Ctrl-C ends the worker, not the trainings: their machines go on")
    try:
        with _told(args) as outbox:
            done = run_worker(
                jobs=args.jobs,
                until_empty=args.until_empty,
                sweep=not args.no_sweep,
                config=config,
                outbox=outbox,
                on_event=display.event,
            )
    except KeyboardInterrupt as interrupt:
        display.clear()
        for job in TrainingQueue().list_jobs(_UNFINISHED):
            if job.work.instance_id is not None:
                _say_left(job)
        return interrupted_status(interrupt)
    display.clear()
    failed = [job for job in done if job.state is JobState.FAILED]
    return BAD if failed else OK


# ---------------------------------------------------------------- sweep


def sweep(args: Namespace) -> int:
    """Find the rented instances that nobody needs; with --force destroy them."""
    config = load_service_config()
    if args.all and args.every:
        raise SettingsError("--all", "--every", "one of them: everything is destroyed once, by hand")
    if args.confirm is not None and not (args.all and args.force):
        raise SettingsError("--confirm", args.confirm, "--all and --force with it: nothing else asks")
    try:
        return _sweep(args, config)
    except KeyboardInterrupt as interrupt:
        left = "; training-monitor instances shows what is left" if args.force else ""
        hint(f"\ninterrupted{left}")
        return interrupted_status(interrupt)


def _sweep(args: Namespace, config: ServiceConfig) -> int:
    if args.all and args.force:
        _confirm_all(args)
    with _told(args) as outbox:
        if args.every:
            watch_sweeps(
                args.every,
                threading.Event(),  # nobody sets it: an interrupt ends it
                dry_run=not args.force,
                config=config,
                outbox=outbox,
                on_report=lambda report: _show_sweep(report, args),
            )
        report = sweep_instances(not args.force, all_instances=args.all, config=config, outbox=outbox)
    _show_sweep(report, args)
    if report["instances_checked"] is None:
        return UNKNOWN
    return BAD if report["errors"] or report["planned"] else OK


def _confirm_all(args: Namespace) -> None:
    """Have it typed out that everything is to go. Raises SettingsError."""
    count = len(list_instances())
    sentence = f"destroy all {plural(count, 'instance')}"
    typed = args.confirm
    if typed is None and sys.stdin.isatty():
        complain(f"this destroys every instance of the account, whoever rented it, with all that is on it: {count}")
        typed = input(f"type `{sentence}` to go on: ")
    if typed != sentence:
        raise SettingsError("--confirm", typed, f"{sentence!r}, typed out")


def _show_sweep(report: SweepReport, args: Namespace) -> None:
    if args.json:
        print_json(report)
        return
    if args.every:
        say(time.strftime("%Y-%m-%d %H:%M:%S"))
    if report["skipped"]:
        hint("another sweep is going on")
        return
    if report["instances_checked"] is not None:
        say(f"{plural(report['instances_checked'], 'instance')} checked")
    for title, rows in (("destroyed", report["terminated"]), ("would be destroyed", report["planned"])):
        for row in rows:
            say(f"  {row['instance_id']} {title}: {row['reason']}{_price(row['cost_per_hour'])}")
    for alert in report["alerts"]:
        say(f"  ! {alert['type']} {alert['instance_id'] or ''}: {alert['reason']}")
    named = {row["instance_id"] for row in (*report["terminated"], *report["planned"], *report["errors"])}
    for other in report["foreign"]:
        if other["instance_id"] in named:  # --all leaves nobody's alone
            continue
        label = f" labelled {other['label']!r}" if other["label"] else ""
        say(f"  {other['instance_id']} is not ours{label}: left alone{_price(other['cost_per_hour'])}")
    for error in report["errors"]:
        complain(f"{error['instance_id'] or 'the listing'}: {error['error']}")
    if report["planned"]:
        hint("nothing was destroyed: --force does it")


def _price(cost_per_hour: float | None) -> str:
    return ", unknown cost" if cost_per_hour is None else f", ${cost_per_hour:.3f} per hour"
