"""What the screen of `watch` shows, as values, and the numbers that follow from them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from training_monitor.core.models import Event, Gpu, Progress
from training_monitor.core.units import format_duration, known_number
from training_monitor.core.values import TrainingStatus, Verdict
from training_monitor.logs.job_progress import JobProgress, job_progress
from training_monitor.ui.kit.text import NOT_KNOWN
from training_monitor.ui.kit.view import View


class ProcessFacts(NamedTuple):
    """What is known of the processes of a training; None means unknown.

    `cpu_cores` are used between the last two looks, or during the first one. `since` is when it began, in epoch
    seconds. `blocked` of its `processes` wait for a disk.
    """

    pid: int | None = None
    cpu_cores: float | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    blocked: int | None = None
    since: float | None = None
    command: str | None = None


class WatchSnapshot(NamedTuple):
    """All that is shown of a watched training; None means unknown, times are epoch seconds of this machine.

    Attributes:
        now: the time of the snapshot.
        training, target: their names.
        folder: where its checkpoints go.
        status: the last look that was answered.
        progress, progress_at: the newest, perhaps of a line that came after that look, and when it came; with the
            speed that was measured where the log tells none. `step_at` is when such a line last had another step.
        gpus, gpu_error: those that it uses, or why they are unknown.
        losses: of its steps, oldest first.
        missing_log: the log that is not there yet.
        lines, partial: the last lines of its log, and the unfinished one; `first_line` is the number of the first.
        events: with their times, oldest first.
        next_look_at: when the next look is due; None before the first one and during a termination.
        failing_since: when the first look failed of those that fail now.
        ends_at: when it will be ended for its stall. phase: of the termination under way.
        error, stale_since: why the last look failed, and when the last one was answered.
    """

    now: float
    training: str
    target: str
    folder: str | None = None
    status: TrainingStatus | None = None
    progress: Progress = Progress()
    progress_at: float | None = None
    step_at: float | None = None
    gpus: tuple[Gpu, ...] = ()
    gpu_error: str | None = None
    process: ProcessFacts = ProcessFacts()
    losses: tuple[float, ...] = ()
    missing_log: str | None = None
    lines: tuple[str, ...] = ()
    partial: str = ""
    first_line: int = 1
    events: tuple[tuple[float, Event], ...] = ()
    next_look_at: float | None = None
    failing_since: float | None = None
    ends_at: float | None = None
    phase: str | None = None
    error: str | None = None
    stale_since: float | None = None

    @property
    def verdict(self) -> Verdict | None:
        return self.status.verdict if self.status else None

    @property
    def log(self) -> tuple[str, ...]:
        """All lines of the log, with the unfinished one."""
        return (*self.lines, self.partial) if self.partial.strip() else self.lines


@dataclass(frozen=True, slots=True)
class WatchView(View):
    """The view of a watched training; `screen` can also be log or events.

    `log_top` is the number of the first line on the page of the log; None: it follows the end. `top` is that of the one
    that was drawn.
    """

    log_top: int | None = None


def silence(snapshot: WatchSnapshot) -> float | None:
    """Return the seconds without a step: by the last verdict, or since a line of the log that came after it.

    It does not grow while the target gives no answer: whether steps are made then is unknown.
    """
    status, verdict = snapshot.status, snapshot.verdict
    if status is None or verdict is None:
        return None
    now = snapshot.now if snapshot.failing_since is None else status.timestamp
    judged, step_at = known_number(verdict.seconds_without_step), known_number(snapshot.step_at)
    known = [] if judged is None else [judged + max(0.0, now - status.timestamp)]
    known += [] if step_at is None else [max(0.0, now - step_at)]
    return min(known, default=None)


def position(snapshot: WatchSnapshot) -> JobProgress:
    """Return the position of the training; a stalled one has no ETA."""
    job = job_progress(snapshot.progress)
    is_stalled = snapshot.verdict is not None and snapshot.verdict.state == "stalled"
    return replace(job, eta_seconds=None) if is_stalled else job


def since_look(snapshot: WatchSnapshot, age: float | None) -> float | None:
    """Return an age that the last look reported, as it is now."""
    known, status = known_number(age), snapshot.status
    return None if known is None or status is None else known + max(0.0, snapshot.now - status.timestamp)


def format_seconds(seconds: float | None) -> str:
    """Format a duration in whole seconds, one below zero as zero; `-` if unknown."""
    known = known_number(seconds)
    return NOT_KNOWN if known is None else format_duration(max(0, round(known)))
