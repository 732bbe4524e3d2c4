"""When a job has had enough: its time on machines and its money. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from training_monitor.policy.cost import HOUR, BudgetDecision, decide_budget, spent_by
from training_monitor.renting import QueuedJob
from training_monitor.units import format_duration


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that a job has passed or comes near to. kind: hard_timeout | soft_timeout | budget."""

    kind: str
    reason: str


def machine_seconds(job: QueuedJob, now: float) -> float:
    """How long the job has had machines, all of them together."""
    return sum(max(0.0, (each.ended_at or now) - each.started_at) for each in job.work.rentals)


def passed_limit(job: QueuedJob, now: float) -> Limit | None:
    """Why the job is to be ended: its hard time-out or its budget; None while it may go on."""
    limit, seconds = job.request.hard_timeout, machine_seconds(job, now)
    if seconds >= limit:
        reason = f"hard timeout: {format_duration(seconds)} on machines, {format_duration(limit)} allowed"
        return Limit("hard_timeout", reason)
    decision = _budget(job, now)
    return Limit("budget", decision.reason or "") if decision.action == "end" else None


def seconds_left(job: QueuedJob, now: float) -> float:
    """How long the job may keep the machine it has: until its hard time-out, or until its budget is used up."""
    left = job.request.hard_timeout - machine_seconds(job, now)
    price = next((each.price_per_hour for each in reversed(job.work.rentals) if each.ended_at is None), None)
    if job.request.budget is not None and price:
        left = min(left, (job.request.budget - spent_by(job.work.rentals, now).dollars) / price * HOUR)
    return max(0.0, left)


def approached_limit(job: QueuedJob, now: float) -> Limit | None:
    """What somebody should know before it is too late: the soft time-out has passed, or the budget will not do."""
    limit, seconds = job.request.soft_timeout, machine_seconds(job, now)
    if limit is not None and seconds >= limit:
        return Limit("soft_timeout", f"soft timeout: {format_duration(seconds)} on machines; it goes on")
    decision = _budget(job, now)
    return Limit("budget", decision.reason or "") if decision.action == "warn" else None


def _budget(job: QueuedJob, now: float) -> BudgetDecision:
    work = job.work
    running = [each for each in work.rentals if each.ended_at is None]
    seconds_left: float | None = None
    if running and work.step and work.total_steps:  # at the pace of this machine, its setting up included
        seconds_left = (now - running[-1].started_at) * max(0, work.total_steps - work.step) / work.step
    price = running[-1].price_per_hour if running else None
    spending = spent_by(work.rentals, now)
    return decide_budget(job.request.budget, spending, price_per_hour=price, seconds_left=seconds_left)
