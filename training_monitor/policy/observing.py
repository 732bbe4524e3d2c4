"""From one look at a job to what the judge needs to know of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from training_monitor.models import Checkpoint, Failure, Gpu, JobStatus, JobView, Observation
from training_monitor.parse.log_events import find_phase
from training_monitor.parse.training_log import parse_progress
from training_monitor.policy.failure import classify_failure
from training_monitor.policy.gpu_load import gpu_load


def observe_job(
    view: JobView, now: float, *, gpus: Sequence[Gpu] = (), checkpoints: Sequence[Checkpoint] = ()
) -> Observation:
    """One look as an observation.

    Args:
        view: the job.
        now: epoch seconds.
        gpus: all that may be its.
        checkpoints: those in the folder where it saves.
    """
    progress = view.progress
    utilization, power = gpu_load(gpus)
    return Observation(
        timestamp=now,
        step=progress.step,
        total_steps=progress.total_steps,
        eta_seconds=progress.eta_seconds if progress.eta_scope != "epoch" else None,
        steps_per_second=progress.steps_per_second,
        loss=progress.loss,
        phase=find_phase(view.log_tail),
        gpu_utilization=utilization,
        gpu_power_fraction=power,
        log_size=view.log_size,
        epoch=progress.epoch,
        total_epochs=progress.total_epochs,
        status=view.status,
        exit_code=view.exit_code,
        message=view.message,
        is_running=None if view.status is JobStatus.UNKNOWN else not view.status.is_terminal,
        finished=progress.finished,
        failure=failure_of(view) if view.status is JobStatus.FAILED else None,
        runtime=None if view.started_at is None else max(0.0, now - view.started_at),
        log_age=view.log_age,
        step_age=view.log_age if _ends_with_step(view) else None,
        file_age=min((each.age for each in checkpoints if each.age is not None), default=None),
        gpu_errors=tuple(f"GPU {'?' if gpu.index is None else gpu.index}: {gpu.error}" for gpu in gpus if gpu.error),
    )


def _ends_with_step(view: JobView) -> bool:
    """Whether the last line of its log is the one with its newest step."""
    lines = [line for line in re.split(r"[\r\n]+", view.log_tail[-4096:]) if line.strip()]
    step = view.progress.step
    return step is not None and bool(lines) and parse_progress(lines[-1]).step == step


def failure_of(view: JobView) -> Failure:
    """Why a job that ended badly did so: by its log and exit status, or else by what the target says of it."""
    failure = classify_failure(view.log_tail, exit_code=view.exit_code)
    if failure.category in ("none", "unknown"):
        failure = replace(failure, category="unknown", error_class="ambiguous", action="restart")
        return replace(failure, evidence=f"{view.message or 'no reason given'}; {failure.evidence}".rstrip("; "))
    return failure
