"""When a job has had its time or its money."""

from __future__ import annotations

import pytest

from training_monitor.rent.limits import instance_seconds, reached_limit
from training_monitor.vast.cost import Limit
from training_monitor.vast.training_request import JobState, JobWork, QueuedJob, Rental, TrainingRequest

HOUR = 3600.0


def job(*rentals: Rental, step: int | None = None, **request: object) -> QueuedJob:
    wanted = TrainingRequest("demo", command="train", **request)  # type: ignore[arg-type]
    work = JobWork(rentals=rentals, step=step, total_steps=100 if step else None)
    return QueuedJob("demo-1", JobState.TRAINING, wanted, work, 0.0, 0.0, 0.0)


def rental(start: float, end: float | None = None, price: float | None = 1.0) -> Rental:
    return Rental(7, 1, price, start, end)


def passed_limit(seen: QueuedJob, now: float) -> Limit | None:
    limit = reached_limit(seen, now)
    return limit if limit and limit.ends else None


def approached_limit(seen: QueuedJob, now: float) -> Limit | None:
    limit = reached_limit(seen, now)
    return limit if limit and not limit.ends else None


def said(limit: Limit | None) -> tuple[str, str]:
    return (limit.kind, limit.reason) if limit else ("", "")


def test_the_time_on_all_machines_counts_not_the_time_between_them() -> None:
    seen = job(rental(0, HOUR), rental(5 * HOUR))
    assert instance_seconds(seen, 6 * HOUR) == 2 * HOUR
    assert passed_limit(seen, 6 * HOUR) is None


def test_a_clock_that_was_set_back_takes_no_time_away() -> None:
    assert instance_seconds(job(rental(HOUR)), 0.0) == 0.0


@pytest.mark.parametrize(("now", "passed"), [(3.99 * HOUR, False), (4 * HOUR, True)])
def test_the_hard_timeout_ends_a_job(now: float, passed: bool) -> None:
    kind, reason = said(passed_limit(job(rental(0)), now))
    assert (kind == "hard_timeout") == passed == ("hard timeout" in reason)


def test_a_budget_ends_a_job_when_it_is_spent() -> None:
    assert passed_limit(job(rental(0), budget=2.0), 1.9 * HOUR) is None
    kind, reason = said(passed_limit(job(rental(0), budget=2.0), 2 * HOUR))
    assert kind == "budget" and "budget of $2.00" in reason


def test_an_unknown_price_is_not_free_and_not_the_end() -> None:
    seen = job(rental(0, price=None), budget=2.0)
    assert passed_limit(seen, 3 * HOUR) is None
    kind, reason = said(approached_limit(seen, 3 * HOUR))
    assert kind == "budget" and "cannot be checked" in reason


def test_the_soft_timeout_is_told() -> None:
    seen = job(rental(0), soft_timeout=HOUR)
    assert approached_limit(seen, 0.5 * HOUR) is None
    kind, reason = said(approached_limit(seen, HOUR))
    assert kind == "soft_timeout" and "soft timeout" in reason


def test_a_budget_that_will_not_do_at_this_pace_is_told() -> None:
    assert approached_limit(job(rental(0), step=50, budget=3.0), HOUR) is None
    kind, reason = said(approached_limit(job(rental(0), step=25, budget=3.0), HOUR))
    assert kind == "budget" and "before it finishes" in reason
