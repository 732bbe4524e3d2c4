"""Does a job still make progress? Judged from what successive looks saw, with the watcher's own clock.

Progress is a change of the step; before the first step, growth of the log. The first look takes the age of the log as
the target tells it; from then on only time that was watched counts: after a gap (the target could not be asked, or this
machine slept) it goes on where it stood, so that an outage of ours is never the job's stall. A log that grows without
steps (evaluation, a long save) is given four times the threshold, a start-up before the first step three. Before it
acts, the supervisor looks for a complete checkpoint that was just written, which is progress whatever the log says, and
at the GPUs: while they work, at more than idle power, silence is given four times the threshold as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from training_monitor.models import JobView, Progress
from training_monitor.policy.gpu_load import gpu_mode
from training_monitor.reports import GpuReport
from training_monitor.units import format_duration

STARTUP_FACTOR = 3.0
GROWING_LOG_FACTOR = 4.0
BUSY_FACTOR = 4.0
GAP_INTERVALS = 3.0


Position = int | tuple[float | None, int | None]


@dataclass(frozen=True, slots=True)
class Stagnation:
    """What the looks so far amount to; times are monotonic seconds of the watcher.

    `position` is the step, or (epoch, step in the epoch) of a log that counts per epoch; None before the first.
    """

    looked_at: float
    position: Position | None
    step_at: float
    log_mark: int
    log_at: float
    looks: int = 1


def watch_progress(before: Stagnation | None, view: JobView, now: float, interval: float) -> Stagnation:
    """Add one look. `interval` is the planned time between looks."""
    position = position_of(view.progress)
    mark = view.log_size if view.log_size is not None else hash(view.log_tail)
    if before is None:
        last = now - (view.log_age or 0.0)
        return Stagnation(now, position, last, mark, last)
    if not view.log_known:
        return Stagnation(now, position, now, mark, now)
    moved = position is not None and position != before.position
    elapsed = now - before.looked_at
    unwatched = elapsed if elapsed > GAP_INTERVALS * interval + 30.0 else 0.0
    return Stagnation(
        now,
        before.position if position is None else position,
        now if moved else before.step_at + unwatched,
        mark,
        now if mark != before.log_mark else before.log_at + unwatched,
        before.looks + 1,
    )


def position_of(progress: Progress) -> Position | None:
    if progress.step is not None:
        return progress.step
    if progress.epoch is None and progress.epoch_step is None:
        return None
    return (progress.epoch, progress.epoch_step)


def silence_limit(position: Position | None, threshold: float) -> float:
    """Seconds without output after which a job counts as stalled: more before its first step."""
    return threshold if position is not None else STARTUP_FACTOR * threshold


def describe_stall(seen: Stagnation, threshold: float) -> str | None:
    """Why a running job counts as stalled; None while it does not."""
    if seen.looks < 2:
        return None
    silent, no_step = seen.looked_at - seen.log_at, seen.looked_at - seen.step_at
    if min(silent, no_step) >= silence_limit(seen.position, threshold):
        return f"{_where(seen.position)} and no output for {format_duration(silent)}"
    if seen.position is not None and no_step >= GROWING_LOG_FACTOR * threshold:
        return f"{_where(seen.position)} for {format_duration(no_step)} although the log grows"
    return None


def gpus_work(report: GpuReport) -> bool:
    """Whether a GPU computes; one at full utilization and idle power waits in a collective. False when not known."""
    readings = zip(report["gpu_utilizations"], report["power_draw"], report["power_limit"])
    for used, draw, limit in readings:
        if gpu_mode(used, draw / limit if draw and limit else None) == "busy":
            return True
    return False


def _where(position: Position | None) -> str:
    if position is None:
        return "no step yet"
    if isinstance(position, int):
        return f"step {position}"
    epoch, step = position
    return f"step {step}" if epoch is None else f"the same step of epoch {epoch:g}"
