"""Does a job still make progress? Judged from what successive looks saw, with the watcher's own clock.

Progress is a change of the step; before the first step, growth of the log. Only time that was watched counts:
after a gap (the target could not be asked, or this machine slept) the clock starts again, so that an outage of
ours is never the job's stall. A log that grows without steps (evaluation, a long save) is given four times the
threshold; a start-up before the first step three times.
"""

from __future__ import annotations

from dataclasses import dataclass

from training_monitor.models import JobView
from training_monitor.units import format_duration

STARTUP_FACTOR = 3.0
GROWING_LOG_FACTOR = 4.0
GAP_INTERVALS = 3.0


@dataclass(frozen=True, slots=True)
class Stagnation:
    """What the looks so far amount to; times are monotonic seconds of the watcher."""

    looked_at: float
    step: int | None
    step_at: float
    log_size: int | None
    log_at: float
    looks: int = 1


def watch_progress(before: Stagnation | None, view: JobView, now: float, interval: float) -> Stagnation:
    """Add one look. `interval` is the planned time between looks."""
    step, size = view.progress.step, view.log_size
    if before is None or now - before.looked_at > GAP_INTERVALS * interval + 30.0:
        return Stagnation(now, step, now, size, now)
    stepped = step is not None and step != before.step
    grew = size != before.log_size
    return Stagnation(
        now,
        before.step if step is None else step,
        now if stepped else before.step_at,
        size,
        now if grew else before.log_at,
        before.looks + 1,
    )


def describe_stall(seen: Stagnation, view: JobView, threshold: float) -> str | None:
    """Why a running job counts as stalled; None while it does not."""
    if seen.looks < 2:
        return None
    silent = max(seen.looked_at - seen.log_at, view.log_age or 0.0)
    no_step = seen.looked_at - seen.step_at
    if seen.step is None:
        if min(silent, no_step) >= STARTUP_FACTOR * threshold:
            return f"no step yet and no output for {format_duration(silent)}"
        return None
    if no_step >= GROWING_LOG_FACTOR * threshold:
        return f"step {seen.step} for {format_duration(no_step)} although the log grows"
    if (no_step >= threshold or (view.log_age or 0.0) >= threshold) and silent >= threshold:
        return f"step {seen.step} and no output for {format_duration(silent)}"
    return None
