"""The running display of a supervised job: one live line on a terminal, plain lines when piped, JSON when asked."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import asdict, replace

from training_monitor.cli.output import hint, paint, print_json, printable, put, say
from training_monitor.models import Event, JobView, Progress
from training_monitor.policy.job_progress import format_position, job_progress
from training_monitor.reports import RestartReport
from training_monitor.units import format_duration, plural

_COLOURS = {
    "detected": "red",
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
_BAR_WIDTH = 16
_REDRAW = "\r\x1b[K"  # to the first column, and the line emptied


class LiveLine:
    """One line of a terminal that is drawn over and over; elsewhere a line now and then."""

    def __init__(self, plain_seconds: float) -> None:
        """`plain_seconds` are at least between two lines where stdout is no terminal."""
        self._terminal, self._plain_seconds = sys.stdout.isatty(), plain_seconds
        self._printed_at = float("-inf")

    def draw(self, line: str) -> None:
        if self._terminal:
            width = os.get_terminal_size(sys.stdout.fileno()).columns or 80
            put(f"{_REDRAW}{printable(line)[: width - 1]}")
        elif time.monotonic() - self._printed_at >= self._plain_seconds:
            self._printed_at = time.monotonic()
            put(f"{printable(line)}\n")

    def clear(self) -> None:
        if self._terminal:
            put(_REDRAW)

    def print_event(self, event: Event, elapsed: float) -> None:
        """One line with the event's kind and text, in place of the live line."""
        kind = paint(f"{event.kind:<11}", _COLOURS.get(event.kind), sys.stdout)
        line = f"{elapsed:6.1f}s  {kind} {printable(event.text)}\n"
        put(_REDRAW + line if self._terminal else line)


class LiveDisplay:
    """Shows the events of `auto_restart`."""

    def __init__(self, *, as_json: bool, heading: str | None = None) -> None:
        """`heading` goes before the first event."""
        self._json, self._heading = as_json, heading
        self._started = time.monotonic()
        self._live = LiveLine(_PLAIN_SECONDS)
        self._since: tuple[str, float, int] | None = None

    def show(self, event: Event) -> None:
        if self._heading and not self._json:
            hint(self._heading)
        self._heading = None
        if self._json:
            view = asdict(event.view.progress) if event.view else None
            print_json(
                {
                    "kind": event.kind,
                    "text": event.text,
                    "job_id": event.job_id,
                    "attempt": event.attempt,
                    "progress": view,
                    "checkpoint": event.checkpoint,
                    "outcome": event.outcome,
                }
            )
        elif event.kind == "progress" and event.view:
            elapsed = time.monotonic() - self._started
            self._live.draw(format_progress(event.view, event.attempt, elapsed, self._speed(event.view)))
        else:
            self._live.print_event(event, time.monotonic() - self._started)

    def _speed(self, view: JobView) -> float | None:
        """Steps per second: what the log says, else what was seen of this job so far."""
        step, now = job_progress(view.progress).step, time.monotonic()
        if view.progress.steps_per_second or step is None:
            return view.progress.steps_per_second
        if self._since is None or self._since[0] != view.job_id or step < self._since[2]:
            self._since = (view.job_id, now, step)
        return (step - self._since[2]) / (now - self._since[1]) if step > self._since[2] else None

    def clear(self) -> None:
        self._live.clear()


def format_progress(view: JobView, attempt: int, elapsed: float, speed: float | None) -> str:
    """One line: bar, step, loss, speed, ETA; '?' is what the log does not say."""
    parts = [f"{elapsed:6.1f}s  attempt {attempt}", *progress_parts(view.progress, speed)]
    if not view.status.is_terminal and view.log_age is not None and view.log_age >= 5:
        parts.append(f"silent {format_duration(view.log_age)}")
    return "  ".join(parts)


def progress_parts(progress: Progress, speed: float | None, *, stalled: bool = False) -> list[str]:
    """Bar, step, loss, speed in steps per second, ETA, as far as they are known; what stalls has no ETA."""
    job, parts = job_progress(replace(progress, steps_per_second=speed)), []
    if job.fraction is not None:
        filled = round(job.fraction * _BAR_WIDTH)
        parts.append(f"[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] {job.fraction:4.0%}")
    parts.append(format_position(job))
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4g}")
    if speed:
        parts.append(f"{speed:.3g} steps/s")
    return parts if job.eta_seconds is None or stalled else [*parts, f"ETA {format_duration(job.eta_seconds)}"]


def print_summary(report: RestartReport, logs_call: str) -> None:
    """What a supervised run came to, and of a failed one what was said last; `logs_call` shows more."""
    verdict = paint("finished", "green", sys.stdout) if report["success"] else paint("NOT finished", "red", sys.stdout)
    put(f"\nTraining {verdict}: {printable(report['reason'])}\n")
    for attempt in report["attempts"]:
        parts = [f"from {attempt['checkpoint']}" if attempt["checkpoint"] else "from the start"]
        parts.append("no step seen" if attempt["final_step"] is None else f"reached step {attempt['final_step']}")
        parts += [f"{plural(attempt['steps_lost'], 'step')} lost"] if attempt["steps_lost"] else []
        say(f"  attempt {attempt['number']}: {attempt['status']}, {', '.join(parts)}")
        if attempt["reason"]:
            say(f"    {attempt['reason']}")
        for refused in attempt["refused_checkpoints"]:
            say(f"    refused {refused}")
    lost = "an unknown number of steps" if report["steps_lost"] is None else plural(report["steps_lost"], "step")
    goodput = "?" if report["goodput"] is None else f"{report['goodput']:.0%}"
    say(
        f"  {plural(len(report['attempts']), 'attempt')}, {plural(report['total_retries'], 'restart')}, "
        f"{lost} lost, goodput {goodput}, {format_duration(report['duration'])}"
    )
    if report["job_id"] and not report["success"]:
        say(f"  its log: {logs_call}")
