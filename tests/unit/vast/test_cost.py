"""Costs: estimates, what was spent, and how long the money lasts; what nobody knows never counts as 0."""

from __future__ import annotations

from typing import Any

import pytest

from training_monitor.core.errors import SettingsError
from training_monitor.vast.cost import (
    BurnForecast,
    Limit,
    Spending,
    day_start,
    decide_budget,
    decide_daily_budget,
    estimate_cost,
    forecast_burn,
    spent_by,
)
from training_monitor.vast.training_request import Rental, TrainingRequest, TrainingSpec

NOON = 1_750_075_200.0  # 2025-06-16 12:00 UTC
LORA = TrainingRequest("cat", dataset="/data", spec=TrainingSpec("cat", "tok", steps=4000), seconds_per_step=2.5)
COMMAND = TrainingRequest("run", command="python train.py", hard_timeout=7200.0)


def rental(number: int, price: float | None, began: float, ended: float | None = None) -> Rental:
    return Rental(number, 1, price, began, ended)


def test_an_estimate_is_setting_up_and_the_steps_with_a_margin_up_to_the_time_limit() -> None:
    assert estimate_cost(LORA, 0.36) == pytest.approx(0.36 * 1.2 * (900 + 10_000) / 3600)
    assert estimate_cost(LORA, 0.36, setup_seconds=0, margin=1) == pytest.approx(1.0)
    slow = TrainingRequest("cat", dataset="/data", spec=LORA.spec, seconds_per_step=1000.0, hard_timeout=3600.0)
    assert estimate_cost(slow, 0.5) == 0.5
    assert estimate_cost(COMMAND, 0.5) == 1.0, "a command is estimated by its time limit"


@pytest.mark.parametrize("price", [0, -1, float("nan"), float("inf"), None, "0.5", True])
def test_a_price_that_is_not_known_gives_no_estimate(price: float) -> None:
    with pytest.raises(SettingsError, match="price_per_hour"):
        estimate_cost(LORA, price)


# ---------------------------------------------------------------- spending


def test_machines_cost_until_they_are_gone_and_the_others_go_on_costing() -> None:
    rentals = [rental(1, 0.5, NOON - 7200, NOON - 3600), rental(2, 1.0, NOON - 1800)]
    assert spent_by(rentals, NOON) == Spending(1.0)
    assert spent_by(rentals, NOON + 3600) == Spending(2.0)
    assert spent_by([], NOON) == Spending(0.0, ())
    assert spent_by([rental(1, 0.0, NOON - 3600)], NOON) == Spending(0.0), "it is free"
    back = [rental(1, 0.5, NOON + 100), rental(2, 0.5, NOON - 10, NOON - 20)]
    assert spent_by(back, NOON) == Spending(0.0), "the clock was set back"


@pytest.mark.parametrize("price", [None, float("nan"), -0.5])
def test_a_price_that_is_not_known_does_not_count_as_zero_but_apart(price: float | None) -> None:
    spending = spent_by([rental(1, price, NOON - 3600), rental(2, 0.5, NOON - 3600)], NOON)
    assert spending == Spending(0.5, (1,))


def test_only_the_part_of_a_rental_in_the_window_counts() -> None:
    began = NOON - 12 * 3600
    across = rental(1, 1.0, began - 3600, began + 3600)
    before = rental(2, None, began - 7200, began - 3600)
    within = rental(3, 1.0, began + 3600, began + 7200)
    running = rental(4, 1.0, NOON - 3600)
    assert spent_by([across, before, within, running], NOON, since=began) == Spending(3.0)
    assert spent_by([rental(7, None, NOON - 100)], NOON, since=NOON - 50) == Spending(0.0, (7,))


def test_the_day_begins_at_midnight_utc() -> None:
    assert day_start(NOON) == NOON - 12 * 3600
    assert day_start(day_start(NOON)) == day_start(NOON)
    assert day_start(day_start(NOON) - 0.5) == day_start(NOON) - 86_400


# ---------------------------------------------------------------- burn forecast


def row(status: object, price: object = 0.4, storage: object = 0.01, **more: object) -> dict[str, Any]:
    return {"actual_status": status, "dph_total": price, "storage_total_cost": storage, **more}


def test_running_machines_cost_their_price_and_stopped_ones_their_disk() -> None:
    rows = [row("running"), row("stopped"), row("exited", intended_status="stopped", cur_state="stopped")]
    assert forecast_burn(rows, 4.2) == BurnForecast(pytest.approx(0.42), pytest.approx(10.0), 3, 2, 0)
    assert forecast_burn([], 5.0) == BurnForecast(0.0, None, 0, 0, 0)


def test_every_status_but_stopped_may_cost_the_whole_price() -> None:
    for status in (None, "created", "loading", "frozen", "rebooting", "unknown", "offline", "new", 5):
        assert forecast_burn([row(status)], None) == BurnForecast(0.4, None, 1, 0, 0), status
    for wanted in ("intended_status", "cur_state"):  # one that ended by itself may still hold its GPU
        assert forecast_burn([row("exited", **{wanted: "running"})], None).dollars_per_hour == 0.4


def test_costs_that_a_row_does_not_tell_are_unknown(subtests: pytest.Subtests) -> None:
    for price in [None, "0.4", float("nan"), float("inf"), -1, True, 10**400, [0.4]]:
        with subtests.test(price=price):
            rows = [row("running", price), row("stopped", storage=price), row("running", 0.5)]
            assert forecast_burn(rows, 1.0) == BurnForecast(0.5, 2.0, 3, 1, 2)
            assert forecast_burn([{}], 1.0) == BurnForecast(0.0, None, 1, 0, 1)


def test_an_unknown_credit_gives_no_hours_and_a_used_up_one_gives_none_left() -> None:
    hours = [forecast_burn([row("running")], credit).hours_left for credit in (None, float("nan"), 0.0, -3.0)]
    assert hours == [None, None, 0.0, 0.0]


# ---------------------------------------------------------------- budgets


@pytest.mark.parametrize(
    ("budget", "spent", "price", "left"),
    [
        (None, Spending(1e6, (1,)), None, None),
        (5.0, Spending(3.0), 2.0, 3600),  # it reaches to the end
        *((5.0, Spending(4.9), *unknown) for unknown in ((None, 3600.0), (2.0, None), (0.0, 3600.0), (None, None))),
    ],
)
def test_without_a_budget_or_with_enough_or_unknown_work_left_a_job_goes_on(
    budget: float | None, spent: Spending, price: float | None, left: float | None
) -> None:
    assert decide_budget(budget, spent, price_per_hour=price, seconds_left=left) is None


def test_a_budget_that_is_used_up_ends_the_job_even_when_a_price_is_not_known() -> None:
    for unknown in ((), (1,)):
        decision = decide_budget(5.0, Spending(5.0, unknown), price_per_hour=0.5, seconds_left=0.0)
        assert decision == Limit("budget", "its budget of $5.00 is used up: $5.00 spent", ends=True)


@pytest.mark.parametrize(
    ("spent", "price", "left", "said"),
    [
        (Spending(4.0), 2.0, 3600, "used up in 0.5 h, before it finishes: $4.00 spent, $2.00 more needed"),
        (Spending(1.0, tuple(range(1, 9))), 0.1, 60, "the price of instance 1, 2, 3, 4, 5 and 3 more is unknown"),
    ],
)
def test_a_budget_that_will_be_used_up_or_cannot_be_checked_is_told(
    spent: Spending, price: float, left: float, said: str
) -> None:
    decision = decide_budget(5.0, spent, price_per_hour=price, seconds_left=left)
    assert decision is not None and not decision.ends
    assert decision.reason.startswith("its budget of $5.00 ") and decision.reason.endswith(said)


def test_a_job_is_begun_when_the_day_has_room_for_it() -> None:
    assert decide_daily_budget(20.0, Spending(10.0), promised=5.0, estimate=5.0) is None
    assert decide_daily_budget(20.0, Spending(10.0), promised=5.0, estimate=5.01) == (
        "the daily budget of $20.00 is not enough: $10.00 spent today, $5.00 reserved for other jobs, $5.01 needed"
    )
    reason = decide_daily_budget(20.0, Spending(0.0, (7,)), promised=0.0, estimate=1.0)
    assert reason == "the daily budget of $20.00 cannot be checked: the price of instance 7 is unknown"
