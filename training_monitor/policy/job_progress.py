"""Where a job stands: its step and total over all epochs, the fraction that is done, and the time that is left. Pure.

Every display, notice, forecast and judgement takes its numbers from here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from training_monitor.models import Progress

LONGEST_ETA = 10 * 365 * 86_400.0  # seconds; what is further away than that is no forecast
_MOST_STEPS = 1e15
_SAME_UNIT = 0.02  # of an epoch, by which a step may lie beside what the epochs say and still count the same steps


@dataclass(frozen=True, slots=True)
class JobProgress:
    """None is not known.

    Attributes:
        step, total_steps: of the job, over all epochs.
        epoch, total_epochs: epochs done, with the fraction of the one under way; of so many.
        fraction: of the job that is done, 0 to 1: of its steps, or else of its epochs.
        eta_seconds: until its last step.
    """

    step: int | None = None
    total_steps: int | None = None
    epoch: float | None = None
    total_epochs: int | None = None
    fraction: float | None = None
    eta_seconds: float | None = None

    @property
    def is_complete(self) -> bool:
        """Whether all that was to be done is done."""
        return self.fraction == 1.0


def job_progress(progress: Progress) -> JobProgress:
    """Where the job stands that a log shows the newest progress of."""
    done = progress.epochs_done
    if done is not None and not math.isfinite(done):
        done = None
    epochs = progress.total_epochs if progress.epochs_planned is None else progress.epochs_planned
    step = _step(progress, done)
    total = _total(progress, step, done, epochs)
    fraction = _share(step, total)
    return JobProgress(
        step=step,
        total_steps=total,
        epoch=done,
        total_epochs=epochs,
        fraction=_share(done, epochs) if fraction is None else fraction,
        eta_seconds=_eta(progress, step, total),
    )


def format_position(job: JobProgress) -> str:
    """`step 1500/3000`, `step 1500`; without a step `epoch 1.5/3`; `step ?` while nothing is known."""
    if job.step is None and job.epoch is not None:
        return f"epoch {round(job.epoch, 2):g}" + (f"/{job.total_epochs}" if job.total_epochs else "")
    return f"step {'?' if job.step is None else job.step}" + (f"/{job.total_steps}" if job.total_steps else "")


def _step(progress: Progress, done: float | None) -> int | None:
    """The step of the job; from the counter of an epoch and the epochs done where nothing else counts."""
    inside, steps = progress.epoch_step, progress.epoch_steps
    if progress.step is not None or inside is None:
        return progress.step
    if not steps:
        before = progress.steps_before if done is None or done >= 1 else 0
        return None if before is None else before + inside
    return round(done * steps) if done is not None and done * steps < _MOST_STEPS else None


def _total(progress: Progress, step: int | None, done: float | None, epochs: int | None) -> int | None:
    """The steps of the job; those of its epochs where both count the same steps."""
    if progress.total_steps is not None:
        return progress.total_steps if progress.total_steps > 0 else None
    steps = progress.epoch_steps
    if not steps or not epochs or step is None or done is None or steps * epochs > _MOST_STEPS:
        return None
    is_same_unit = abs(step - done * steps) <= max(2.0, _SAME_UNIT * steps)
    return steps * epochs if is_same_unit else None


def _share(done: float | None, total: float | None) -> float | None:
    if done is None or total is None or total <= 0:
        return None
    return min(1.0, max(0.0, done / total))


def _eta(progress: Progress, step: int | None, total: int | None) -> float | None:
    """What is left at the job's speed; else what its log says of the whole job."""
    seconds = progress.eta_seconds if progress.eta_scope == "job" else None
    if step is not None and total is not None:
        left, pace = max(0, total - step), _step_seconds(progress)
        seconds = left * pace if pace is not None else seconds if left else 0.0
    return seconds if seconds is not None and 0 <= seconds <= LONGEST_ETA else None


def _step_seconds(progress: Progress) -> float | None:
    """Seconds a step takes, by the speed the log shows or by the time it gives the rest of an epoch."""
    if progress.steps_per_second is not None and 0 < progress.steps_per_second < math.inf:
        return 1.0 / progress.steps_per_second
    inside, steps, left = progress.epoch_step, progress.epoch_steps, progress.eta_seconds
    if progress.eta_scope != "epoch" or left is None or inside is None or steps is None or inside >= steps:
        return None
    return left / (steps - inside)
