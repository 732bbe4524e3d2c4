"""Progress display: one live line on a terminal, plain lines when piped, JSON on request.

After a long silence it says on stderr what it is waiting for: a silent command looks like a hung one.
"""

from __future__ import annotations

import os
import sys
import threading
from argparse import Namespace
from collections.abc import Callable

from training_monitor.cli.keys import event_keys
from training_monitor.cli.output import hint, paint, print_json, put, put_report, say, wrapped
from training_monitor.core.clock import SYSTEM_CLOCK, Clock
from training_monitor.core.engine import begin_thread
from training_monitor.core.models import Event, JobStatus, JobView, Progress
from training_monitor.core.reports import RestartReport
from training_monitor.core.shown import shown, shown_lines
from training_monitor.core.units import format_duration, format_pace, plural
from training_monitor.logs.job_progress import format_position, format_standing, job_progress

_COLOURS = {
    "detected": "red",
    "ignored": "red",
    "refused": "yellow",
    "unreachable": "yellow",
    "waiting": "dim",
    "started": "green",
    "adopted": "green",
    "resumed": "blue",
    "moved": "yellow",
    "stopping": "yellow",
    "finished": "bold",
    "reached": "green",
    "removed": "dim",
}
_PLAIN_SECONDS = 30.0
_SILENT_SECONDS = 5.0
_BAR_WIDTH = 16
_BESIDE = 21  # cells of the time and the kind before the text of an event
_REDRAW = "\r\x1b[K"  # return to the first column and clear the line
SAID_EVERY = 30.0  # seconds of silence


class LiveLine:
    """A line that is redrawn on a terminal, elsewhere a plain line from time to time; it begins with the time."""

    def __init__(self, plain_seconds: float, clock: Clock = SYSTEM_CLOCK) -> None:
        """Without a terminal, print at most one line per `plain_seconds`."""
        self._terminal, self._plain_seconds, self._clock = sys.stdout.isatty(), plain_seconds, clock
        self._started, self._printed_at = clock.monotonic(), float("-inf")

    def _elapsed(self, seconds: float | None = None) -> str:
        return f"{self._clock.monotonic() - self._started if seconds is None else seconds:6.1f}s"

    def draw(self, *parts: str, is_news: bool = False) -> None:
        """Show the parts; elsewhere than on a terminal, only news is shown before it is time for a line."""
        line = "  ".join((self._elapsed(), *parts))
        if self._terminal:
            from training_monitor.ui.kit.text import begin

            width = os.get_terminal_size(sys.stdout.fileno()).columns or 80
            put(_REDRAW + begin(shown(line), width - 1))
        elif is_news or self._clock.monotonic() - self._printed_at >= self._plain_seconds:
            self._printed_at = self._clock.monotonic()
            put(f"{shown(line)}\n")

    def clear(self) -> None:
        if self._terminal:
            put(_REDRAW)

    def print_event(self, event: Event, elapsed: float | None = None) -> None:
        """Print the event's time, kind and text in place of the live line; `elapsed` seconds, or those until now."""
        kind = paint(f"{event.kind:<11}", _COLOURS.get(event.kind), sys.stdout)
        line = f"{self._elapsed(elapsed)}  {kind} {wrapped(shown_lines(event.text), _BESIDE)}\n"
        put(_REDRAW + line if self._terminal else line)


class LiveDisplay:
    """Shows the events of `auto_restart`."""

    def __init__(self, args: Namespace, *, heading: str | None = None) -> None:
        """Print `heading` before the first event."""
        self._args, self._heading = args, heading
        self._live = LiveLine(_PLAIN_SECONDS)
        self._counted = ""  # the job whose step was shown

    def show(self, event: Event) -> None:
        if self._heading and not self._args.json:
            hint(self._heading)
        self._heading = None
        if self._args.json:
            print_json(self._args, event_keys(event))
        elif event.kind == "progress" and event.view:
            from training_monitor.jobs.attempts import attempt_number

            number = attempt_number(event.view.job_id) or event.attempt
            is_first = event.view.job_id != self._counted and job_progress(event.view.progress).step is not None
            self._counted = event.view.job_id if is_first else self._counted
            self._live.draw(f"attempt {number}", *view_parts(event.view), is_news=is_first)
        else:
            self._live.print_event(event)

    def clear(self) -> None:
        self._live.clear()


def view_parts(view: JobView) -> list[str]:
    """Return the parts of its progress, and how long the log of a running job has been silent.

    Of a job that has not started, return what it waits for.
    """
    if view.status is JobStatus.PENDING:
        return [format_standing(view.status, view.progress, view.message)]
    is_silent = not view.status.is_terminal and view.log_age is not None and view.log_age >= _SILENT_SECONDS
    return [*progress_parts(view.progress), *([f"silent {format_duration(view.log_age)}"] if is_silent else [])]


def progress_parts(progress: Progress, *, stalled: bool = False) -> list[str]:
    """Return bar, step, loss, speed in steps per second, and ETA, as far as known; a stalled training has no ETA."""
    job, parts = job_progress(progress), []
    if job.fraction is not None:
        filled = round(job.fraction * _BAR_WIDTH)
        parts.append(f"[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] {job.fraction:4.0%}")
    parts.append(format_position(job))
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4g}")
    if progress.steps_per_second:
        parts.append(format_pace(1.0 / progress.steps_per_second))
    return parts if job.eta_seconds is None or stalled else [*parts, f"ETA {format_duration(job.eta_seconds)}"]


def print_summary(report: RestartReport, logs_call: str) -> None:
    """Print the result of a supervised training; for a failed one, `logs_call` shows its log."""
    from training_monitor.jobs.attempts import attempt_number

    verdict = paint("finished", "green", sys.stdout) if report["success"] else paint("NOT finished", "red", sys.stdout)
    put(f"\nTraining {verdict}: {shown_lines(report['reason'])}\n")
    for attempt in report["attempts"]:
        begun = "from an unknown step" if attempt["start_step"] is None else "from the start"
        parts = [f"from {attempt['checkpoint']}" if attempt["checkpoint"] else begun]
        parts.append("no step seen" if attempt["final_step"] is None else f"reached step {attempt['final_step']}")
        parts += [f"{plural(attempt['steps_lost'], 'step')} lost"] if attempt["steps_lost"] else []
        label = f"  attempt {attempt_number(attempt['job_id'] or '') or attempt['number']}: "
        put(f"{label}{wrapped(shown_lines(', '.join([attempt['status'], *parts])), len(label))}\n")
        for text in (attempt["resume_problem"], attempt["reason"], attempt["explanation"]):
            if text:
                put_report(f"    {text}")
        if attempt["roll_call"]:
            put_report(f"    the inspection of its ranks is saved in {attempt['roll_call']}")
        for refused in attempt["refused_checkpoints"]:
            put_report(f"    refused {refused}")
    lost = "an unknown number of steps" if report["steps_lost"] is None else plural(report["steps_lost"], "step")
    goodput = "unknown (not watched for long enough)" if report["goodput"] is None else f"{report['goodput']:.0%}"
    say(
        f"  {plural(len(report['attempts']), 'attempt')}, {plural(report['total_retries'], 'restart')}, "
        f"{lost} lost, goodput {goodput}, {format_duration(report['duration'])}"
    )
    if report["job_id"] and not report["success"]:
        say(f"  its log: {logs_call}")


class Waiting:
    """Reports long waits on stderr; news about a named wait restarts its silence.

        with Waiting() as waiting:
            waiting.on("market", "asking vast.ai what is for rent")

    A thread prints a line for each silence of `every` seconds while the block lasts.
    """

    def __init__(
        self, tell: Callable[[str], None] = hint, *, every: float = SAID_EVERY, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._tell, self._every, self._clock = tell, every, clock
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._waits: dict[str, tuple[Callable[[], str | None], float, float]] = {}  # text, start, last report

    def __enter__(self) -> Waiting:  # noqa: PYI034 (Self is not in Python 3.10)
        self._thread = begin_thread(self._run, "waiting")
        return self

    def __exit__(self, *raised: object) -> None:
        self._closing.set()
        if self._thread:
            self._thread.join()

    def on(self, name: str, what: str | Callable[[], str | None]) -> None:
        """Start or restart a wait; a callable is called for the text when it is due, and None ends the wait."""
        now = self._clock.monotonic()
        with self._lock:
            self._waits[name] = (what if callable(what) else lambda: what, now, now)

    def end(self, name: str) -> None:
        """End a wait."""
        with self._lock:
            self._waits.pop(name, None)

    def look(self) -> None:
        """Report each silence that is long enough."""
        now = self._clock.monotonic()
        with self._lock:
            due = {name: wait for name, wait in self._waits.items() if now - wait[2] >= self._every}
        for name, (what, since, told) in due.items():
            text = what()
            with self._lock:
                if self._waits.get(name) != (what, since, told):
                    continue  # there was news meanwhile
                if text is None:
                    del self._waits[name]
                    continue
                self._waits[name] = (what, since, now)
            self._tell(f"{text}: no update for {format_duration(now - since)}")

    def _run(self) -> None:
        while not self._clock.wait(self._closing, 1.0):
            self.look()
