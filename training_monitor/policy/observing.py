"""From one look at a training to what the judge needs to know of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from training_monitor.models import Checkpoint, Failure, Gpu, JobStatus, JobView, Progress
from training_monitor.parse.evidence import Evidence, observe_evidence
from training_monitor.parse.log_events import find_phase
from training_monitor.parse.log_pace import LogPace, read_log_pace
from training_monitor.policy.failure import classify_failure
from training_monitor.policy.gpu_load import gpu_load
from training_monitor.policy.job_progress import job_progress
from training_monitor.verdicts import Observation

FRESH_SECONDS = 60.0  # a log whose writer is not known is read for how it ended when it is older than that


def observe_job(
    view: JobView,
    now: float,
    *,
    first: bool = True,
    gpus: Sequence[Gpu] = (),
    checkpoints: Sequence[Checkpoint] = (),
    evidence: Evidence | None = None,
    file_age: float | None = None,
) -> Observation:
    """One look at a job as an observation.

    Args:
        view: the job.
        now: epoch seconds.
        first: whether nothing was seen of it lately: then its log is asked when its newest step was made.
        gpus: all that may be its.
        checkpoints: those in the folder where it saves.
        evidence: what its processes do. file_age: seconds since a file was written where it saves.
    """
    ages = [file_age, *(each.age for each in checkpoints)]
    is_running = None if view.status is JobStatus.UNKNOWN else not view.status.is_terminal
    seen = observe_log(
        view.progress,
        view.log_tail,
        now,
        first=first,
        is_running=is_running,
        log_age=view.log_age,
        gpus=gpus,
        evidence=evidence,
        file_age=min((each for each in ages if each is not None), default=None),
    )
    runtime = None if view.started_at is None else max(0.0, now - view.started_at)
    return replace(
        seen,
        log_size=view.log_size,
        status=view.status,
        exit_code=view.exit_code,
        message=view.message,
        failure=failure_of(view) if view.status is JobStatus.FAILED else None,
        runtime=seen.runtime if runtime is None else runtime,  # its own word, also where its processes are not seen
    )


def observe_log(
    progress: Progress,
    text: str,
    now: float,
    *,
    first: bool,
    is_running: bool | None,
    log_age: float | None,
    log_size: int | None = None,
    gpus: Sequence[Gpu] = (),
    evidence: Evidence | None = None,
    file_age: float | None = None,
) -> Observation:
    """The same of a training without a job; `text` is the end of its log, `progress` the newest in it."""
    done, pace = job_progress(progress), read_log_pace(text) if first and text else LogPace()
    utilization, power = gpu_load(gpus)
    is_old = log_age is not None and log_age > FRESH_SECONDS
    unwritten = is_old or (evidence is not None and evidence.processes == 0)
    ended = is_running is False or (is_running is None and unwritten)
    return Observation(
        now,
        done.step,
        total_steps=done.total_steps,
        eta_seconds=done.eta_seconds,
        steps_per_second=progress.steps_per_second,
        loss=progress.loss,
        phase=find_phase(text),
        gpu_utilization=utilization,
        gpu_power_fraction=power,
        log_size=log_size,
        epoch=done.epoch,
        total_epochs=done.total_epochs,
        is_running=is_running,
        finished=progress.finished,
        failure=classify_failure(text) if ended else None,
        log_age=log_age,
        step_age=log_age + pace.step_lag if log_age is not None and pace.step_lag is not None else None,
        step_interval=pace.step_interval,
        step_time=pace.step_time,
        gpu_errors=tuple(f"GPU {'?' if gpu.index is None else gpu.index}: {gpu.error}" for gpu in gpus if gpu.error),
        **observe_evidence(evidence, file_age),
    )


def failure_of(view: JobView) -> Failure:
    """Why a job that ended badly did so: by its log and exit status, or else by what the target says of it."""
    failure = classify_failure(view.log_tail, exit_code=view.exit_code)
    if failure.category in ("none", "unknown"):
        failure = replace(failure, category="unknown", error_class="ambiguous", action="restart")
        return replace(failure, evidence=f"{view.message or 'no reason given'}; {failure.evidence}".rstrip("; "))
    return failure
