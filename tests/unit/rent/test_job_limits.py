"""When a job has had its time or its money."""

from __future__ import annotations

import pytest

from training_monitor.vast.cost import instance_seconds, reached_limit
from training_monitor.vast.training_request import JobState, JobWork, QueuedJob, Rental, TrainingRequest

HOUR = 3600.0


def job(*rentals: Rental, step: int | None = None, **request: object) -> QueuedJob:
    wanted = TrainingRequest("demo", command="train", **request)  # type: ignore[arg-type]
    work = JobWork(rentals=rentals, step=step, total_steps=100 if step else None)
    return QueuedJob("demo-1", JobState.TRAINING, wanted, work, 0.0, 0.0, 0.0)


def rental(start: float, end: float | None = None, price: float | None = 1.0) -> Rental:
    return Rental(7, 1, price, start, end)


def limit_of(seen: QueuedJob, now: float) -> tuple[str, str, bool]:
    limit = reached_limit(seen, now)
    return (limit.kind, limit.reason, limit.ends) if limit else ("", "", False)


def test_the_time_on_all_machines_counts_not_the_time_between_them() -> None:
    seen = job(rental(0, HOUR), rental(5 * HOUR))
    assert instance_seconds(seen, 6 * HOUR) == 2 * HOUR
    assert limit_of(seen, 6 * HOUR) == ("", "", False)
    assert instance_seconds(job(rental(HOUR)), 0.0) == 0.0, "the clock was set back"


@pytest.mark.parametrize(
    ("seen", "before", "at", "kind", "said", "ends"),
    [
        (job(rental(0)), 3.99, 4, "hard_timeout", "hard timeout", True),
        (job(rental(0), budget=2.0), 1.9, 2, "budget", "budget of $2.00", True),
        (job(rental(0), soft_timeout=HOUR), 0.5, 1, "soft_timeout", "soft timeout", False),
    ],
)
def test_a_limit_is_told_and_a_hard_one_or_a_spent_budget_ends_a_job(
    seen: QueuedJob, before: float, at: float, kind: str, said: str, ends: bool
) -> None:
    assert limit_of(seen, before * HOUR) == ("", "", False)
    found = limit_of(seen, at * HOUR)
    assert (found[0], found[2]) == (kind, ends) and said in found[1]


def test_an_unknown_price_is_not_free_and_not_the_end() -> None:
    kind, reason, ends = limit_of(job(rental(0, price=None), budget=2.0), 3 * HOUR)
    assert kind == "budget" and "cannot be checked" in reason and not ends


def test_a_budget_that_will_not_do_at_this_pace_is_told() -> None:
    assert limit_of(job(rental(0), step=50, budget=3.0), HOUR) == ("", "", False)
    kind, reason, ends = limit_of(job(rental(0), step=25, budget=3.0), HOUR)
    assert kind == "budget" and "before it finishes" in reason and not ends
