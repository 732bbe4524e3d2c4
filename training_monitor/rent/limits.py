"""When a job has had its time or its money. Pure."""

from __future__ import annotations

from training_monitor.core.units import format_duration
from training_monitor.vast.cost import HOUR, Limit, decide_budget, spent_by
from training_monitor.vast.training_request import QueuedJob, Rental


def instance_seconds(job: QueuedJob, now: float) -> float:
    """Return how long the job has had machines, in total."""
    return sum(max(0.0, (each.ended_at or now) - each.started_at) for each in job.work.rentals)


def reached_limit(job: QueuedJob, now: float) -> Limit | None:
    """Return the limit that ends the job; else one to report, as it is passed or will be; None if there is neither."""
    request, seconds = job.request, instance_seconds(job, now)
    if seconds >= request.hard_timeout:
        allowed = format_duration(request.hard_timeout)
        reason = f"hard timeout: {format_duration(seconds)} used on rented machines, but only {allowed} allowed"
        return Limit("hard_timeout", reason, ends=True)
    budget = _budget(job, now)
    if request.soft_timeout is not None and seconds >= request.soft_timeout and not (budget and budget.ends):
        return Limit(
            "soft_timeout", f"soft timeout: {format_duration(seconds)} used on rented machines; the job continues"
        )
    return budget


def seconds_left(job: QueuedJob, now: float) -> float:
    """Return how long the job may keep its machine: until its hard timeout, or until its budget is used up."""
    left, running = job.request.hard_timeout - instance_seconds(job, now), _running(job)
    if job.request.budget is not None and running and (price := running.newest_price):
        left = min(left, (job.request.budget - spent_by(job.work.rentals, now).dollars) / price * HOUR)
    return max(0.0, left)


def _running(job: QueuedJob) -> Rental | None:
    return next((each for each in reversed(job.work.rentals) if each.ended_at is None), None)


def _budget(job: QueuedJob, now: float) -> Limit | None:
    work, running = job.work, _running(job)
    left: float | None = None
    if running and work.step and work.total_steps:  # at the pace of this machine, including its setup
        left = (now - running.started_at) * max(0, work.total_steps - work.step) / work.step
    price = running.newest_price if running else None
    return decide_budget(job.request.budget, spent_by(work.rentals, now), price_per_hour=price, seconds_left=left)
