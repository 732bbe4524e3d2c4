"""The keys that JSON documents of several commands share, under one name each. Pure."""

from __future__ import annotations

from typing import Any

from training_monitor.core.fields import keys_of
from training_monitor.core.models import Event, Progress
from training_monitor.core.values import TrainingStatus, Verdict
from training_monitor.verdict.judge import NOBODY_LOOKED

OF_A_LOG = (  # how it counts; the keys of a job are made from them
    "eta_scope",
    "epoch_step",
    "epoch_steps",
    "epochs_done",
    "epochs_planned",
    "steps_before",
)
# The names that documents have for the fields of a status; "" leaves one out.
STATUS_KEYS = {"loss": "loss_analysis", "runtime": "runtime_seconds", "progress": "", "verdict": ""}


def progress_keys(progress: Progress) -> dict[str, Any]:
    """Return how far a job is, over all its epochs, by the names that `check` has for it."""
    from training_monitor.logs.job_progress import job_progress

    job = job_progress(progress)
    seen = keys_of(progress, **dict.fromkeys(OF_A_LOG, ""))
    return {**seen, **keys_of(job, fraction="progress")}


def verdict_keys(verdict: Verdict) -> dict[str, Any]:
    """Return what the judge says, by the names that `check` has for it."""
    return keys_of(verdict, stall="")


def status_keys(status: TrainingStatus) -> dict[str, Any]:
    """Return one look of a watcher."""
    judged = {**progress_keys(status.progress), **verdict_keys(status.verdict or NOBODY_LOOKED)}
    return {**judged, **keys_of(status, **STATUS_KEYS)}


def event_keys(event: Event) -> dict[str, Any]:
    """Return an event of a supervised, watched or rented training, and how far the job is if it was looked at."""
    told = keys_of(event, view="")
    return {**told, **progress_keys(event.view.progress)} if event.view else told
