"""`launch`, `queue` and `worker`: trainings on rented machines, and the display of their jobs."""

from __future__ import annotations

import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from training_monitor.cli.live import LiveLine, Waiting, progress_parts
from training_monitor.cli.notifying import open_heartbeat
from training_monitor.cli.output import BAD, OK, UNKNOWN, hint, interrupted_status, print_json, print_table, refuse, say
from training_monitor.cli.service_request import need_tools, submit_request
from training_monitor.core.errors import InvalidTransition, NoOffers, SettingsError, TrainingMonitorError
from training_monitor.core.models import Event
from training_monitor.core.units import format_duration, plural
from training_monitor.core.values import LogUpdate, UploadReport
from training_monitor.logs.job_progress import job_progress
from training_monitor.service.queue import TrainingQueue, load_service_config
from training_monitor.service.worker import run_worker
from training_monitor.vast.cost import spent_by
from training_monitor.vast.training_request import JobState, QueuedJob

if TYPE_CHECKING:
    from training_monitor.notify.outbox import Outbox

PLAIN_SECONDS = 5.0
SILENT_SECONDS = 5.0
_UNFINISHED = [state for state in JobState if not state.is_terminal]


class ServiceDisplay:
    """Shows events as lines and the newest step as a live line; reports the state of a silent job on stderr.

    A context manager: while it lasts, a thread checks for silent jobs.
    """

    def __init__(self, *, as_json: bool, job_id: str | None = None) -> None:
        """Show only `job_id`; without it, each line names its job."""
        self._json, self._job_id = as_json, job_id
        self._live, self._started = LiveLine(PLAIN_SECONDS), time.monotonic()
        self._lock = threading.Lock()
        self._waiting = Waiting(self._aside)

    def __enter__(self) -> ServiceDisplay:  # noqa: PYI034 (Self is not in Python 3.10)
        self._waiting.__enter__()
        if self._job_id:
            self._heard_of(self._job_id)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._waiting.__exit__(kind, error, traceback)
        with self._lock:
            self._live.clear()

    def event(self, event: Event) -> None:
        """Show an event."""
        if event.job_id:
            self._heard_of(self._job_id or event.job_id)
        with self._lock:
            if self._json:
                said = {"kind": event.kind, "text": event.text, "job_id": event.job_id, "outcome": event.outcome}
                print_json(said)
                return
            if event.job_id is None:  # an event of the worker itself
                self._live.clear()
                hint(event.text)
                return
            if self._job_id is None and event.job_id:
                event = replace(event, text=f"{event.job_id}: {event.text}")
            if event.kind == "progress":
                self._draw(*([event.text] if self._job_id is None else _progress_of(event)))
            else:
                self._live.print_event(event, time.monotonic() - self._started)

    def line(self, update: LogUpdate) -> None:
        """Show the step in a line of the job's log."""
        if self._job_id:
            self._heard_of(self._job_id)
        with self._lock:
            if not self._json and job_progress(update.progress).step is not None:
                self._draw(*progress_parts(update.progress, update.progress.steps_per_second))

    def _draw(self, *parts: str) -> None:
        self._live.draw("  ".join([f"{time.monotonic() - self._started:6.1f}s", *parts]))

    def _aside(self, text: str) -> None:
        with self._lock:
            self._live.clear()
            hint(text)

    def _heard_of(self, job_id: str) -> None:
        self._waiting.on(job_id, lambda: _where_it_stands(job_id))


def _where_it_stands(job_id: str) -> str | None:
    """Return the state of a job, and its worker; None once it is over."""
    try:
        job = TrainingQueue().get(job_id)
    except TrainingMonitorError as error:
        return f"the state of {job_id} is unknown ({error.what})"
    if job.state.is_terminal:
        return None
    is_held = job.worker and (job.lease_until or 0.0) > time.time()
    return f"{job_id} is {job.state.value.lower()}, {f'held by {job.worker}' if is_held else 'held by no worker'}"


def _progress_of(event: Event) -> list[str]:
    """Format the progress like `line` does, so that the live line keeps its form; else the event's text."""
    view = event.view
    if view is None or job_progress(view.progress).step is None:
        return [event.text]
    parts = progress_parts(view.progress, view.progress.steps_per_second)
    is_silent = view.log_age is not None and view.log_age >= SILENT_SECONDS
    return [*parts, f"silent {format_duration(view.log_age)}"] if is_silent else parts


@contextmanager
def told(args: Namespace) -> Iterator[Outbox | None]:
    """Open the outbox if --notify was given."""
    if args.notify is None:
        yield None
        return
    from training_monitor.cli.notifying import open_outbox

    with open_outbox(args.notify) as outbox:
        yield outbox


# ---------------------------------------------------------------- launch


def launch(args: Namespace) -> int:
    """Queue a training for a rented machine; with --watch, also run it here."""
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
    """Print how a job ended, or that another worker still has it."""
    if args.json:
        print_json({**({"kind": "result"} if args.watch else {}), **_as_json(job)})
    else:
        _print_job(job)
    if not job.state.is_terminal:
        hint(f"it goes on elsewhere: training-monitor queue {job.id}")
        return UNKNOWN
    return OK if job.state is JobState.COMPLETED else BAD


def _say_left(job: QueuedJob) -> None:
    """Print what an interrupted launch leaves behind."""
    machine = job.work.instance_id
    costs = f"; instance {machine} goes on costing money" if machine is not None else ""
    if machine is None and job.state is JobState.RENTING and job.work.asked_at is not None:
        costs = "; a machine was asked for, and may be there and cost money"
    hint(f"\n{job.id} is {job.state.value.lower()}{costs}. Go on with it, or end it:")
    hint(f"  training-monitor worker --until-empty\n  training-monitor queue {job.id} --cancel")


# ---------------------------------------------------------------- queue


def queue(args: Namespace) -> int:
    """List the jobs, show one, or cancel one."""
    jobs = TrainingQueue()
    if args.cancel and not args.job:
        raise SettingsError("--cancel", None, "the job that is to end")
    if args.job:
        try:
            job = jobs.cancel(args.job, args.reason) if args.cancel else jobs.get(args.job)
        except InvalidTransition as error:  # it is over
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
    """Format what happens to a job that was just cancelled."""
    if job.state.is_terminal:
        account = job.request.account
        return "it has no machine, and is over" + (f"; what it had reserved is back with {account}" if account else "")
    if job.worker and (job.lease_until or 0.0) > time.time():
        return f"{job.worker} has it, and ends it: it saves what there is and destroys the machine"
    return "nobody has it, and it may have a machine: training-monitor worker --until-empty ends both"


def _is_to_end(job: QueuedJob) -> bool:
    return job.to_end is not None and job.work.outcome is None and not job.state.is_terminal


def _last_step(job: QueuedJob) -> int | None:
    """Return the last known step, of the log or of the saved checkpoint."""
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
    """Run the jobs of the queue."""
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
