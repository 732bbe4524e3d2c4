"""How trainings on rented machines are shown, by `rent launch`, `rent queue` and `rent worker`."""

from __future__ import annotations

import os
import shutil
import threading
import time
from argparse import Namespace
from collections import Counter
from dataclasses import replace
from typing import Any

from training_monitor.cli.keys import event_keys
from training_monitor.cli.live import LiveLine, Waiting, progress_parts, view_parts
from training_monitor.cli.output import hint, print_json, say
from training_monitor.core.errors import AccessDenied, CommandError, SettingsError, ToolNotFound, TrainingMonitorError
from training_monitor.core.fields import keys_of
from training_monitor.core.masking import MASK
from training_monitor.core.models import Event
from training_monitor.core.outcomes import UploadReport
from training_monitor.core.settings import VAST_KEY_PATH, vast_key_path
from training_monitor.core.units import format_duration, plural
from training_monitor.core.values import LogUpdate
from training_monitor.logs.job_progress import job_progress
from training_monitor.rent import JobState, QueuedJob, TrainingQueue
from training_monitor.targets.kinds.vast import find_vast_key
from training_monitor.vast import account_balance
from training_monitor.vast.cost import Limit, cost_of, reached_limit

_TOOLS = {"vastai": "pip install vastai", "ssh": "install the OpenSSH client"}
PLAIN_SECONDS = 5.0
UNFINISHED = [state for state in JobState if not state.is_terminal]


class ServiceDisplay:
    """Shows events as lines and the newest step as a live line; reports the state of a silent job on stderr.

    A context manager: while it lasts, a thread checks for silent jobs.
    """

    def __init__(self, args: Namespace, *, job_id: str | None = None) -> None:
        """Show only `job_id`; without it, each line names its job."""
        self._args, self._job_id = args, job_id
        self._live = LiveLine(PLAIN_SECONDS)
        self._lock = threading.Lock()
        self._waiting = Waiting(self._aside)

    def __enter__(self) -> ServiceDisplay:  # noqa: PYI034 (Self is not in Python 3.10)
        self._waiting.__enter__()
        if self._job_id:
            self._heard_of(self._job_id)
        return self

    def __exit__(self, *raised: object) -> None:
        self._waiting.__exit__()
        with self._lock:
            self._live.clear()

    def event(self, event: Event) -> None:
        """Show an event."""
        if event.job_id:
            self._heard_of(self._job_id or event.job_id)
        with self._lock:
            if print_json(self._args, event_keys(event)):
                return
            if event.job_id is None:  # an event of the worker itself
                self._live.clear()
                hint(event.text)
                return
            if self._job_id is None and event.job_id:
                event = replace(event, text=f"{event.job_id}: {event.text}")
            if event.kind == "progress":
                self._live.draw(*([event.text] if self._job_id is None else _progress_of(event)))
            else:
                self._live.print_event(event)

    def line(self, update: LogUpdate) -> None:
        """Show the step in a line of the job's log."""
        if self._job_id:
            self._heard_of(self._job_id)
        with self._lock:
            if not self._args.json and job_progress(update.progress).step is not None:
                self._live.draw(*progress_parts(update.progress))

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
    return f"{job_id} is {job.state.value.lower()}, held by {holder_of(job) or 'no worker'}"


def holder_of(job: QueuedJob) -> str | None:
    """Return the worker that has the job now."""
    return job.worker if (job.lease_until or 0.0) > time.time() else None


def _progress_of(event: Event) -> list[str]:
    """Format the progress like `line` does, so that the live line keeps its form; else the event's text."""
    view = event.view
    if view is None or job_progress(view.progress).step is None:
        return [event.text]
    return view_parts(view)


def say_left(job: QueuedJob) -> None:
    """Print what an interrupted launch leaves behind."""
    machine = job.work.instance_id
    costs = f"; instance {machine} still costs money" if machine is not None else ""
    if machine is None and job.state is JobState.RENTING and job.work.asked_at is not None:
        costs = "; a machine was requested, so it may exist and cost money"
    hint(f"\n{job.id} is {job.state.value.lower()}{costs}. Resume it, or end it:")
    hint(f"  training-monitor rent worker --until-empty\n  training-monitor rent queue {job.id} --cancel")


def need_tools() -> None:
    """Raise ToolNotFound, AccessDenied or SettingsError if a machine could not be rented or reached from here."""
    for tool, remedy in _TOOLS.items():
        if shutil.which(tool) is None:
            raise ToolNotFound(f"{tool} is not installed on this machine", hint=remedy)
    key = find_vast_key()
    if key is None:
        hint("no ssh key was found here, but rented machines need one (training-monitor rent keys --setup creates one)")
    elif not os.path.isfile(key):
        raise SettingsError(VAST_KEY_PATH, key, "a private ssh key (training-monitor rent keys --setup creates one)")
    elif key != vast_key_path():
        hint(f"rented machines get the key {key} (training-monitor rent keys --setup creates a separate key for them)")
    try:
        account_balance()
    except AccessDenied:
        raise
    except CommandError:
        return  # unknown; the job asks again


def is_to_end(job: QueuedJob) -> bool:
    return job.to_end is not None and job.work.outcome is None and not job.state.is_terminal


def limit_of(job: QueuedJob) -> Limit | None:
    """Return the limit that an unfinished job has reached, or will reach."""
    is_over = job.state.is_terminal or job.work.outcome is not None
    return None if is_over else reached_limit(job, time.time())


def print_job(job: QueuedJob) -> None:
    work = job.work
    say(f"{job.id}  {job.state.value}")
    if work.reason:
        say(f"  {work.reason}")
    if job.to_end and is_to_end(job):
        say(f"  a stop was requested: {job.to_end[1]}")
    if work.last_step is not None:
        say(f"  step {work.last_step} of {work.total_steps or '?'}")
    for rental in work.rentals:
        ended = "runs" if rental.ended_at is None else f"{format_duration(rental.ended_at - rental.started_at)}"
        price = "unknown price" if rental.newest_price is None else f"${rental.newest_price:.2f}/h"
        say(f"  machine {rental.attempt}: instance {rental.instance_id}, {rental.gpu_name or '?'}, {price}, {ended}")
    for line, times in Counter(_upload_line(upload) for upload in work.uploads).items():
        say(f"  {line}{f' ({times} times)' if times > 1 else ''}")
    if work.saved_path:
        say(f"  step {work.saved_step} is saved in {work.saved_path}")
    limit = limit_of(job)
    for warning in (*work.warnings, *([limit.reason] if limit else [])):
        say(f"  ! {warning}")
    say(f"  cost ${cost_of(work, time.time()):.2f}" + (f" of ${work.estimate:.2f} estimated" if work.estimate else ""))


def _upload_line(upload: UploadReport) -> str:
    became = f"{plural(len(upload.files), 'file')} verified" if upload.verified else upload.error
    return f"{upload.destination}: {became}"


def job_keys(job: QueuedJob) -> dict[str, Any]:
    """Return a job with its cost; of its variables only the names are shown, and which variable has the value."""
    shown = keys_of(job, id="job_id")
    shown["request"]["env"] = {
        name: value if value.startswith("env:") else MASK for name, value in job.request.env.items()
    }
    return {**shown, "total_cost": cost_of(job.work, time.time()), "limit": limit_of(job)}
