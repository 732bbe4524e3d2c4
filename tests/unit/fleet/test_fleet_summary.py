"""What a fleet comes to: levels, burn, credit, and the end of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from training_monitor.fleet.metrics import DEFAULT_THRESHOLDS, Thresholds, TrainingMetrics
from training_monitor.fleet.rows import summarize
from training_monitor.fleet.values import FleetSummary

NOW = 1_750_000_000.0


def row(number: int | str = 1, status: str = "running", **values: Any) -> TrainingMetrics:
    return TrainingMetrics(number, "H100", status, key=f"vast://{number}", **values)


def total(*rows: TrainingMetrics, listed: Any = None, **given: Any) -> FleetSummary:
    values: dict[str, Any] = {"shown": {1, 2, 3}, "credit": None, "thresholds": DEFAULT_THRESHOLDS, "now": NOW}
    return summarize(rows, listed=listed, **{**values, **given})


def machine(number: Any, **fields: Any) -> dict[str, Any]:
    return {"id": number, "actual_status": "running", "dph_total": 2.0, **fields}


STOPPED = {"actual_status": "exited", "intended_status": "stopped", "storage_total_cost": 0.25}


def test_members_are_counted_by_their_health_and_none_come_to_nothing() -> None:
    assert total() == FleetSummary(levels={"healthy": 0, "warning": 0, "error": 0, "unknown": 0})
    rows = row(step=5), row(step=6), row(gpu_util=1.0), row(status="lost"), row()
    assert total(*rows).levels == {"healthy": 2, "warning": 1, "error": 1, "unknown": 1}
    assert total(*rows, thresholds=Thresholds(low_gpu=None)).levels["warning"] == 0


def test_the_credit_pays_for_the_whole_account_also_for_what_is_stopped_or_hidden() -> None:
    found = total(row(1, cost_per_hour=2.0), listed=[machine(1), machine(9, dph_total=3.0)], credit=50.0)
    assert (found.dollars_per_hour, found.credit, found.credit_hours) == (5.0, 50.0, 10.0)
    assert (found.hidden, found.hidden_dollars_per_hour) == (1, 3.0)
    found = total(listed=[machine(1), machine(8, **STOPPED), machine(9, **STOPPED)])
    assert (found.dollars_per_hour, found.hidden, found.hidden_dollars_per_hour) == (2.5, 2, 0.5)
    rows = row(1, cost_per_hour=2.0), row(2), row("gpu1"), row(3, "lost", total_cost=7.0)
    found = total(*rows, credit=10.0)
    assert (found.dollars_per_hour, found.unpriced, found.credit_hours, found.hidden) == (2.0, 1, 5.0, 0)
    assert total(listed=[machine(1)]).credit_hours is None
    assert total(listed=[], credit=10.0).credit_hours is None


def test_what_has_no_price_is_counted_and_not_free() -> None:
    for price in [None, "2.0", True, float("nan"), -1.0]:
        found = total(listed=[machine(1), machine(2, dph_total=price)], credit=10.0)
        assert (found.dollars_per_hour, found.unpriced, found.credit_hours) == (2.0, 1, 5.0), price
    for number in (None, "1", 1.5, True):  # a strange id
        assert total(listed=[machine(number)]).dollars_per_hour == 2.0


def test_what_was_spent_is_the_sum_of_what_is_known_of_each_machine() -> None:
    found = total(row(1, total_cost=1.5), row(2), row(3, "lost", total_cost=2.0), row("gpu1"))
    assert (found.dollars_spent, found.without_total) == (3.5, 1)
    machine_of_two = {"cost_per_hour": 2.0, "total_cost": 6.0}
    first, second = (row(1, eta_seconds=seconds, **machine_of_two) for seconds in (3600.0, 7200.0))
    found = total(first, replace(second, key="vast://1#pid"))
    assert (found.dollars_per_hour, found.dollars_spent, found.dollars_to_completion) == (2.0, 6.0, 4.0)


def test_the_forecast_sums_costs_and_takes_the_longest_eta() -> None:
    rows = (
        row(1, eta_seconds=3600.0, cost_per_hour=2.0),
        row(2, eta_seconds=1800.0, cost_per_hour=1.0),
        row(3, eta_seconds=7200.0),
        row("gpu1", eta_seconds=60.0),
        row(4, step=5),
        row(5, finished=True),
        row(6, "loading"),
    )
    found = total(*rows)
    assert (found.dollars_to_completion, found.seconds_to_completion, found.without_eta) == (2.5, 7200.0, 1)
    assert found.without_price == 1


def test_without_any_end_in_sight_there_is_no_forecast_rather_than_zero() -> None:
    seen = {"eta_seconds": 3600.0, "cost_per_hour": 2.0, "error": "no answer"}
    soon, over = total(row(stale_since=NOW - 1800.0, **seen)), total(row(stale_since=NOW - 3600.0, **seen))
    assert (soon.seconds_to_completion, soon.dollars_to_completion, soon.without_eta) == (1800.0, 1.0, 0)
    assert (over.seconds_to_completion, over.dollars_to_completion, over.without_eta) == (None, None, 1)
    found = total(row(cost_per_hour=1.0, step=5), row(eta_seconds=None, is_running=False))
    assert (found.dollars_to_completion, found.seconds_to_completion, found.without_eta) == (None, None, 1)
