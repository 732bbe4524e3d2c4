"""What `launch --watch` and `worker` show of the jobs they work on."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import TracebackType

from training_monitor.cli.live import LiveLine, progress_parts
from training_monitor.cli.output import hint, print_json
from training_monitor.cli.waiting import Waiting
from training_monitor.errors import TrainingMonitorError
from training_monitor.models import Event
from training_monitor.policy.job_progress import job_progress
from training_monitor.units import format_duration
from training_monitor.vast.queue import TrainingQueue
from training_monitor.watching import LogUpdate

PLAIN_SECONDS = 5.0
SILENT_SECONDS = 5.0


class ServiceDisplay:
    """Events as lines, and the newest step as one live line; on stderr where a job stands that tells nothing.

    A context manager: while it lasts, a thread looks for jobs of which nothing is heard.
    """

    def __init__(self, *, as_json: bool, job_id: str | None = None) -> None:
        """`job_id`: only this one is told of; else each line says of which."""
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
        """Show what happened."""
        if event.job_id:
            self._heard_of(self._job_id or event.job_id)
        with self._lock:
            if self._json:
                said = {"kind": event.kind, "text": event.text, "job_id": event.job_id, "outcome": event.outcome}
                print_json(said)
                return
            if event.job_id is None:  # it is about the worker itself
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
        """Show the step that a line of the job's log tells."""
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
    """The state of a job, and who has it; None once it is over."""
    try:
        job = TrainingQueue().get(job_id)
    except TrainingMonitorError as error:
        return f"{job_id} is not known to stand anywhere ({error.what})"
    if job.state.is_terminal:
        return None
    is_held = job.worker and (job.lease_until or 0.0) > time.time()
    return f"{job_id} is {job.state.value.lower()}, {f'held by {job.worker}' if is_held else 'held by no worker'}"


def _progress_of(event: Event) -> list[str]:
    """As `line` shows a step, so that the live line does not change its form; else the text."""
    view = event.view
    if view is None or job_progress(view.progress).step is None:
        return [event.text]
    parts = progress_parts(view.progress, view.progress.steps_per_second)
    is_silent = view.log_age is not None and view.log_age >= SILENT_SECONDS
    return [*parts, f"silent {format_duration(view.log_age)}"] if is_silent else parts
