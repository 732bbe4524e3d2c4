"""What a training will cost, what its machines have cost, how long the money lasts, and when a job has had its limit.

Dollars and seconds. Unknown costs are counted separately and never as 0: a sum with an unknown part is a lower bound.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from training_monitor.core.errors import SettingsError
from training_monitor.core.units import DAY, HOUR, format_duration, known_number, name_some

if TYPE_CHECKING:
    from training_monitor.vast.training_request import JobWork, QueuedJob, Rental, TrainingRequest

LEAST_SETUP_SECONDS = 180.0  # no machine boots, gets its data and is checked in less
_RUNNING = "running"


class Spending(NamedTuple):
    """The cost of machines: `dollars` for those with a price, and the instance ids of those without a known price."""

    dollars: float
    unknown_rentals: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class BurnForecast:
    """The cost of the listed instances while they stay as they are.

    Attributes:
        dollars_per_hour: the sum of the known costs.
        hours_left: how long the credit lasts, an upper bound when some costs are `unknown`; None if the credit is
            unknown, or nothing known costs anything.
        instances: how many there are.
        storage_only: how many of them are stopped and pay for their disk only.
        unknown: how many have an unknown cost.
    """

    dollars_per_hour: float
    hours_left: float | None
    instances: int
    storage_only: int
    unknown: int


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of a job, which `ends` it or is only reported. kind: hard_timeout | soft_timeout | budget."""

    kind: str
    reason: str
    ends: bool = False


def estimate_cost(
    request: TrainingRequest, price_per_hour: float, *, setup_seconds: float = 900, margin: float = 1.2
) -> float:
    """Estimate the amount to reserve for a training: setup and steps with a margin, at most up to its hard time limit.

    If the training is a command, its number of steps is unknown, and the estimate is based on the time limit.

    Args:
        request: the training.
        price_per_hour: the price of the machine, in dollars.
        setup_seconds: time from renting to the first step, plus time from the last step to the end.
        margin: factor by which the estimated time is multiplied.

    Raises:
        SettingsError: the price is not a number above 0.
    """
    price = known_number(price_per_hour)
    if price is None or price <= 0:
        raise SettingsError("price_per_hour", price_per_hour, "dollars, above 0")
    seconds = request.hard_timeout
    if request.spec is not None:
        seconds = min(seconds, margin * (setup_seconds + request.spec.steps * request.seconds_per_step))
    return price * seconds / HOUR


def least_seconds(request: TrainingRequest) -> float:
    """Return the least time that a training needs a machine: its setup, and its steps at the stated pace."""
    return LEAST_SETUP_SECONDS + (request.spec.steps * request.seconds_per_step if request.spec else 0.0)


def spent_by(rentals: Iterable[Rental], now: float, *, since: float = -inf) -> Spending:
    """Return what these machines cost until `now`, epoch seconds; one that has not ended still costs.

    Each price counts from the look that found it until the next one.
    """
    dollars, unknown = 0.0, []
    for rental in rentals:
        end = now if rental.ended_at is None else min(rental.ended_at, now)
        begins = [rental.started_at, *(each.since for each in rental.prices)]
        prices = [rental.price_per_hour, *(each.per_hour for each in rental.prices)]
        for begin, until, each in zip(begins, [*begins[1:], end], prices, strict=True):
            seconds = min(until, end) - max(begin, since)
            price = known_number(each)
            if price is not None and price >= 0:
                dollars += price * max(0.0, seconds) / HOUR
            elif seconds > 0:
                unknown.append(rental.instance_id)
    return Spending(dollars, tuple(unknown))


def cost_of(work: JobWork, now: float) -> float:
    """Return what the machines of a job cost in dollars: in all once it has ended, else until `now`, epoch seconds."""
    return work.spent if work.spent is not None else spent_by(work.rentals, now).dollars


def cost_per_hour(row: Mapping[str, Any]) -> float | None:
    """Return what an instance costs now, in dollars: a stopped one pays for its storage only. None: unknown."""
    burn = forecast_burn([row], None)
    return None if burn.unknown else burn.dollars_per_hour


def forecast_burn(rows: Iterable[Mapping[str, Any]], credit: float | None) -> BurnForecast:
    """Forecast how fast the listed instances use up the credit.

    Args:
        rows: the account's instances as the service lists them.
        credit: the credit in dollars; None if unknown.
    """
    costs: list[float | None] = []
    storage_only = 0
    for row in rows:
        is_stored = _pays_storage_only(row)
        storage_only += is_stored
        cost = known_number(row.get("storage_total_cost" if is_stored else "dph_total"))
        costs.append(None if cost is None or cost < 0 else cost)
    per_hour = sum(cost for cost in costs if cost is not None)
    left = known_number(credit)
    hours = None if left is None or per_hour <= 0 else max(0.0, left) / per_hour
    return BurnForecast(per_hour, hours, len(costs), storage_only, costs.count(None))


def _pays_storage_only(row: Mapping[str, Any]) -> bool:
    """Return whether an instance is stopped, or exited for good: one that exited by itself may still hold its GPU."""
    status = row.get("actual_status")
    wanted = (row.get("intended_status"), row.get("cur_state"))
    return status == "stopped" or (status == "exited" and _RUNNING not in wanted)


def decide_budget(
    budget: float | None,
    spending: Spending,
    *,
    price_per_hour: float | None = None,
    seconds_left: float | None = None,
) -> Limit | None:
    """Decide whether a job may continue, given what its machines have cost.

    Args:
        budget: of the job, dollars; None: there is no limit.
        spending: of the job so far.
        price_per_hour: of its current machine; None: unknown.
        seconds_left: until the job can have finished; None: unknown.

    Returns:
        The limit that ends the job when the budget is used up; one to report when it will be before the job can finish,
        or when a machine's price is unknown; else None.
    """
    if budget is None:
        return None
    if spending.dollars >= budget:
        reason = f"its budget of ${budget:.2f} is used up: ${spending.dollars:.2f} spent"
        return Limit("budget", reason, ends=True)
    if spending.unknown_rentals:
        return Limit("budget", f"its budget of ${budget:.2f} cannot be checked: {_unpriced(spending)}")
    if not price_per_hour or seconds_left is None:
        return None
    needed = price_per_hour * seconds_left / HOUR
    if spending.dollars + needed <= budget:
        return None
    lasts = (budget - spending.dollars) / price_per_hour
    return Limit(
        "budget",
        f"its budget of ${budget:.2f} will be used up in {lasts:.1f} h, before it finishes:"
        f" ${spending.dollars:.2f} spent, ${needed:.2f} more needed",
    )


def day_start(now: float) -> float:
    """Return when the UTC day of `now` began; both in epoch seconds."""
    return now - now % DAY


def decide_daily_budget(budget: float, spending: Spending, promised: float, estimate: float) -> str | None:
    """Return why another job may not start today; None if it may.

    Args:
        budget: for one day and all jobs, dollars.
        spending: of all jobs today.
        promised: what the running jobs will still cost.
        estimate: of the new job.
    """
    if spending.unknown_rentals:
        return f"the daily budget of ${budget:.2f} cannot be checked: {_unpriced(spending)}"
    if spending.dollars + promised + estimate <= budget:
        return None
    return (
        f"the daily budget of ${budget:.2f} is not enough: ${spending.dollars:.2f} spent today,"
        f" ${promised:.2f} reserved for other jobs, ${estimate:.2f} needed"
    )


def _unpriced(spending: Spending) -> str:
    """Name the machines without a known price, the first five of them."""
    numbers = [str(number) for number in spending.unknown_rentals]
    return f"the price of instance {name_some(numbers, 5)} is unknown"


# ---------------------------------------------------------------- the limits of a job


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
