"""Turn the queue of rented trainings into JSON values for the page. Pure.

A job's command, environment, dataset and hooks stay here: they may hold what not everybody may read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from training_monitor.core.units import format_duration
from training_monitor.ui.kit.text import format_total
from training_monitor.vast.cost import cost_of
from training_monitor.vast.training_request import QueuedJob
from training_monitor.web.pages import clean, clean_or_none

MOST_JOBS = 200  # the newest


def queue_page(jobs: Sequence[QueuedJob], damaged: Sequence[str], now: float) -> dict[str, Any]:
    """Return the jobs, newest first, and the ids of those that cannot be read; `now` in epoch seconds.

    None means unknown, or not there yet.
    """
    return {"jobs": [_job(job, now) for job in jobs], "damaged": [clean(each) for each in damaged]}


def _job(job: QueuedJob, now: float) -> dict[str, Any]:
    work, is_over = job.work, job.state.is_terminal
    to_end = job.to_end[1] if job.to_end and not is_over else None
    return {
        "id": clean(job.id),
        "state": clean(job.state.value.lower()),
        "level": {"COMPLETED": "healthy", "FAILED": "error"}.get(job.state.value, ""),
        "over": is_over,
        "step": None if work.last_step is None else f"{work.last_step}/{work.total_steps or '?'}",
        "gpu": clean_or_none(work.asked_gpu),
        "machine": clean_or_none(work.instance_id),
        "spent": format_total(cost_of(work, now)) if work.rentals or work.spent is not None else None,
        "budget": None if job.request.budget is None else format_total(job.request.budget),
        "age": format_duration(max(0.0, now - job.created_at)),
        "notes": [clean(each) for each in (work.reason, to_end, *work.warnings) if each],
    }
