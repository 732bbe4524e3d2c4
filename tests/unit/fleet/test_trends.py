"""Where a training goes, what it will cost, and how it stands beside others."""

from __future__ import annotations

import math
import random
from dataclasses import fields

import pytest

from training_monitor.fleet.trends import (
    COMPARED,
    MOST_POINTS,
    Cost,
    RunComparison,
    add_costs,
    compare_runs,
    cost_by_day,
    describe_compared,
    project_cost,
    series,
    trend,
)
from training_monitor.fleet.values import FleetSample

BEGIN = 1_750_000_000.0


def seen(*rows: dict[str, float | None], every: float = 60.0) -> list[FleetSample]:
    return [FleetSample(BEGIN + every * at, values) for at, values in enumerate(rows)]


def test_a_trend_tells_first_last_bounds_and_how_much_is_known() -> None:
    found = trend(seen({"loss": 4.0}, {"loss": None}, {}, {"loss": 1.0}, {"loss": 2.0}), "loss")
    assert (found.first, found.last, found.low, found.high) == (4, 2, 1, 4)
    assert found.known == pytest.approx(0.6) and found.mean == pytest.approx(7 / 3)
    found = trend(seen({"loss": 3.0}, {"loss": math.inf}, {"loss": 1.0}, {"loss": math.nan}), "loss")
    assert found.last is not None and math.isnan(found.last)
    assert (found.low, found.high, found.mean, found.per_hour) == (1, 3, 2, pytest.approx(-60))
    found = trend(seen({"loss": 1.7e308}, {"loss": -1.7e308}), "loss")
    assert (found.mean, found.per_hour) == (0, None)
    many = trend(seen(*({"loss": 1.7e308} for _ in range(5 * MOST_POINTS))), "loss")
    assert many.mean == pytest.approx(1.7e308) and many.per_hour == 0


def test_what_was_never_known_has_no_trend_and_one_value_no_slope() -> None:
    for samples in ([], seen({}, {"loss": None}, {"step": 4})):
        found = trend(samples, "loss")
        assert (found.known, found.first, found.last, found.low, found.high) == (0, None, None, None, None)
        assert (found.mean, found.per_hour) == (None, None)
    assert trend(seen({"loss": 2.0}), "loss").per_hour is None
    again = [FleetSample(BEGIN, {"loss": 1.0}), FleetSample(BEGIN, {"loss": 2.0})]
    assert trend(again, "loss").per_hour is None


def test_a_few_wild_values_and_a_dense_end_do_not_outweigh_the_rest() -> None:
    chance = random.Random(1)
    rows = [{"total_cost": 1e9 if at % 7 == 3 else at / 60 * 2.5 + chance.gauss(0, 0.01)} for at in range(150)]
    assert trend(seen(*rows), "total_cost").per_hour == pytest.approx(2.5, rel=0.02)
    old = [FleetSample(BEGIN + 300 * at, {"gpu_utilization": 0.0}) for at in range(288)]
    new = [FleetSample(BEGIN + 86_400 + 10 * at, {"gpu_utilization": 100.0}) for at in range(8640)]
    assert trend([*old, *new], "gpu_utilization").mean == pytest.approx(50, abs=1)


def test_a_series_has_as_many_parts_as_samples_and_blanks_where_nothing_was_seen() -> None:
    rows: list[dict[str, float | None]] = [{"loss": 1.0}] * 4 + [{"loss": None}] * 4 + [{"loss": math.nan}, {}, {}, {}]
    samples = seen(*rows, every=10)
    first, middle, last = series(samples, "loss", 3, BEGIN, BEGIN + 120)
    assert first == 1 and middle is None and last is not None and math.isnan(last)
    found = series(seen(*({"step": float(at)} for at in range(10))), "step", 40, BEGIN, BEGIN + 540)
    assert len(found) == 6 and None not in found and found == sorted(found, key=lambda value: value or 0)
    samples = seen({"step": 1}, {"step": 2}, {"step": 3})
    assert series(samples, "step", 1, BEGIN + 60, BEGIN + 60) == [2]
    assert series(samples, "step", 5, BEGIN + 500, BEGIN + 600) == [None]
    assert series([], "step", 5, BEGIN, BEGIN) == [None]


def test_the_newest_price_or_the_slope_of_the_total_is_projected() -> None:
    price: dict[str, float | None] = {"cost_per_hour": 2.0, "total_cost": 1.1, "eta_seconds": 7200.0}
    found = project_cost(seen({"cost_per_hour": 1.0, "total_cost": 1.0}, price), hours=24)
    assert (found.dollars_per_hour, found.spent, found.hours, found.dollars) == (2, 1.1, 24, 48)
    assert found.to_completion == 4
    assert project_cost(seen({**price, "eta_seconds": 60.0}, {}), hours=1).to_completion is None
    assert project_cost(seen({**price, "eta_seconds": -60.0}), hours=1).to_completion is None
    found = project_cost(seen(*({"total_cost": 5 + at / 60} for at in range(90))), hours=2)
    assert found.dollars_per_hour == pytest.approx(1) and found.dollars == pytest.approx(2)
    assert found.to_completion is None


def test_a_cost_that_is_not_known_is_none_and_never_zero() -> None:
    five: dict[str, float | None] = {"total_cost": 5.0}
    for samples in [[], seen({}), seen(five), seen(five, {"total_cost": 1.0}), seen({"cost_per_hour": -1})]:
        found = project_cost(samples, hours=24)
        assert (found.dollars_per_hour, found.dollars, found.to_completion) == (None, None, None)


DAY = 86_400.0
DAYS = [BEGIN + DAY * number for number in range(4)]


def totals(*seen: tuple[float, float | None], status: str | None = "running") -> list[FleetSample]:
    """Samples of a total: (days since the beginning, dollars); the status is that of the last one."""
    samples = [FleetSample(BEGIN + DAY * day, {"total_cost": total}, "running") for day, total in seen]
    return [*samples[:-1], FleetSample(samples[-1].timestamp, samples[-1].values, status)]


def by_day(*members: list[FleetSample]) -> list[tuple[float | None, bool]]:
    costs = cost_by_day(members, DAYS)
    return [(each.dollars if each.dollars is None else round(each.dollars, 9), each.at_least) for each in costs]


def test_the_cost_of_a_day_is_what_the_total_rose_by_over_the_time_between() -> None:
    seen = totals((0, 0.0), (0.25, 1.0), (0.5, 2.0), (1, 4.0), (1.5, 5.0), (2, 6.0), (3, 7.0))
    assert by_day(seen) == [(4, False), (2, False), (1, False)]
    assert by_day(totals((0, 0.0), (0.5, 1.0), (2.5, 9.0), (3, 9.5))) == [(3, False), (4, False), (2.5, False)]
    unknown_between = totals((0, 0.0), (0.5, 1.0), (1, None), (1.5, math.nan), (2.5, 9.0), (3, 9.5))
    assert by_day(unknown_between) == [(3, False), (4, False), (2.5, False)]
    assert by_day(totals((-1, 1.0), (4, 11.0))) == [(2, False)] * 3
    assert by_day(totals((0, 0.0), (1, 10.0), (2, 1.5), (3, 2.0))) == [(10, False), (1.5, False), (0.5, False)]
    assert by_day(totals((0, 0.0), (1, 10.0), (2, 9.0), (3, 12.0))) == [(10, False), (0, False), (3, False)]


def test_what_is_not_known_is_not_zero_and_a_sum_with_it_at_least_so_much() -> None:
    for seen in ([], totals((1, None)), totals((1, 5.0)), totals((1, 5.0), (1, 5.0))):
        assert by_day(seen) == [(None, True)] * 3
    assert cost_by_day([], DAYS) == [Cost(None, True)] * 3
    assert cost_by_day([totals((0, 1.0), (1, 2.0))], DAYS[:1]) == []
    assert add_costs([Cost(1.0, False), Cost(None, False), Cost(2.0, False)]) == Cost(3.0, False)
    assert add_costs([Cost(1.0, False), Cost(None, True)]) == Cost(1.0, True)
    assert add_costs([Cost(None, True)]) == Cost(None, True) and add_costs([]) == Cost(None, False)


def test_before_the_first_and_after_the_last_sample_it_may_have_cost_more() -> None:
    assert by_day(totals((1.5, 10.0), (2, 11.0), (3, 13.0))) == [(None, True), (1, True), (2, False)]
    assert by_day(totals((1.5, 0.5), (2, 1.5), (3, 3.5))) == [(None, False), (1, True), (2, False)]
    assert by_day(totals((1.5, 0.0), (2, 1.0), (3, 3.0))) == [(None, False), (1, False), (2, False)]
    assert by_day(totals((1.5, 9.0), (2, 0.5), (3, 1.5)))[0] == (None, True), "of an earlier rental"
    assert by_day(totals((1.5, 9.0), (2, 9.0), (3, 9.0)))[:2] == [(None, True), (0, True)]
    assert by_day(totals((0, 0.0), (1.5, 3.0))) == [(2, False), (1, True), (None, True)]
    assert by_day(totals((0, 0.0), (1.5, 3.0), status="lost")) == [(2, False), (1, False), (None, False)]
    assert by_day(totals((0, 0.0), (3 - 200 / DAY, 3.0)))[2][1] is False


def test_members_on_one_machine_share_its_cost() -> None:
    whole = totals((0, 0.0), (0.5, 1.0), (1, 2.0), (1.5, 3.0), (2, 4.0), (2.5, 5.0), (3, 6.0))
    assert by_day(whole, whole) == by_day(whole[:4], whole[2:]) == by_day(whole[3:], whole[:4]) == by_day(whole)
    assert by_day(whole, whole[:1] + whole[-1:]) == by_day(whole)
    assert by_day(whole[:2], whole[5:]) == by_day(whole[5:], whole[:2]) == by_day(whole), "what is between is known"


def test_a_comparison_looks_at_no_other_fields_than_it_says() -> None:
    whole = run(1, 20)
    asked = [FleetSample(each.timestamp, {name: each.values.get(name) for name in COMPARED}) for each in whole]
    assert compare_runs({"a": asked}) == compare_runs({"a": whole})


def run(speed: float, count: int, *, loss: float = 4.0, price: float = 3.6, first: int = 0) -> list[FleetSample]:
    rows: list[dict[str, float | None]] = [
        {
            "step": first + int(speed * 10 * at),
            "loss": loss - 0.001 * (first + speed * 10 * at),
            "steps_per_second": speed,
            "gpu_utilization": 90.0,
            "total_cost": 1 + price * 10 * at / 3600,
        }
        for at in range(count)
    ]
    return seen(*rows, every=10)


def test_runs_are_compared_at_the_highest_step_that_all_have_reached() -> None:
    slow, fast = compare_runs({"slow": run(1, 31), "fast": run(4, 31, loss=3.0)})
    assert [each.key for each in (slow, fast)] == ["slow", "fast"]
    assert (slow.last_step, fast.last_step) == (300, 1200) and slow.common_step == fast.common_step == 300
    assert slow.loss_at_common_step == slow.last_loss == pytest.approx(3.7)
    assert fast.loss_at_common_step == pytest.approx(2.7)  # between the samples at 280 and 320
    assert fast.best_loss == pytest.approx(2.72) and fast.best_loss_step == 280
    assert (slow.median_steps_per_second, slow.mean_gpu_utilization, slow.samples) == (1, pytest.approx(90), 31)
    assert slow.dollars_per_1000_steps == pytest.approx(1) and fast.dollars_per_1000_steps == pytest.approx(0.25)
    assert slow.total_cost == pytest.approx(1.3)
    assert slow.loss_trend_per_1000_steps == pytest.approx(-1)


def test_what_was_undone_or_not_watched_is_not_compared() -> None:
    early, late = compare_runs({"early": run(1, 31), "late": run(1, 31, first=5000)})
    assert late.common_step == 300 and late.loss_at_common_step is None and early.loss_at_common_step is not None
    samples = [*run(1, 51, loss=4.0), *run(1, 11, loss=2.0, first=200)]
    [found] = compare_runs({"run": samples})
    assert (found.last_step, found.common_step) == (300, 300) and found.loss_at_common_step == pytest.approx(1.7)
    assert found.best_loss == pytest.approx(1.7) and found.best_loss_step == 300
    [found] = compare_runs({"run": [*run(9, 51, first=100), *run(1, 11, first=100)]})
    assert (found.median_steps_per_second, found.common_step) == (1, 200)


def one(*rows: dict[str, float | None]) -> RunComparison:
    [found] = compare_runs({"run": seen(*rows)})
    return found


def test_a_loss_that_is_not_seen_or_nan_or_without_steps_is_not_the_best() -> None:
    found = one({"step": 5, "loss": 2.0}, {"step": 5, "loss": None}, {"step": 5})
    assert (found.last_loss, found.best_loss, found.best_loss_step, found.loss_at_common_step) == (2, 2, 5, 2)
    found = one({"step": 1, "loss": 2.0}, {"step": 2, "loss": math.nan})
    assert found.last_loss is not None and math.isnan(found.last_loss)
    assert (found.best_loss, found.best_loss_step, found.loss_at_common_step) == (2, 1, None)
    found = one({"loss": 3.0}, {"loss": 2.0}, {"loss": 2.5})
    assert (found.best_loss, found.best_loss_step, found.common_step, found.last_loss) == (None, None, None, 2.5)


def test_of_a_run_of_which_nothing_is_known_all_is_unknown() -> None:
    nothing, other = compare_runs({"nothing": [], "other": run(1, 3)})
    assert (nothing.samples, nothing.last_step, nothing.best_loss, nothing.loss_at_common_step) == (0, None, None, None)
    assert (nothing.median_steps_per_second, nothing.mean_gpu_utilization, nothing.total_cost) == (None, None, None)
    assert (nothing.dollars_per_1000_steps, nothing.loss_trend_per_1000_steps) == (None, None)
    assert other.common_step == 20 and compare_runs({}) == ()
    for later in ({"step": 5, "total_cost": 2.0}, {"step": 6, "total_cost": 0.5}):
        assert one({"step": 5, "total_cost": 1.0}, later).dollars_per_1000_steps is None


def test_what_a_run_did_after_the_others_changes_nothing_that_is_compared() -> None:
    short = run(2, 31)
    late = {"step": 900, "loss": 0.1, "steps_per_second": 9.0, "gpu_utilization": 1.0, "total_cost": 50.0}
    longer = [*short, FleetSample(short[-1].timestamp + 10, late)]
    whole, more = compare_runs({"short": short, "longer": longer})
    alone = {"key", "samples", "last_step", "last_loss", "total_cost"}
    for name in {field.name for field in fields(whole)} - alone:
        assert getattr(more, name) == getattr(whole, name) is not None, name
    assert (more.last_step, more.last_loss, more.total_cost) == (900, 0.1, 50.0)
    assert (whole.best_loss_step, whole.last_step, whole.total_cost) == (600, 600, pytest.approx(1.3))


def test_which_steps_were_compared_is_told() -> None:
    both = compare_runs({"slow": run(1, 31), "fast": run(4, 31)})
    assert describe_compared(both) == "up to 300, which all runs have reached"
    one = compare_runs({"nothing": [], "other": run(1, 3)})
    assert describe_compared(one) == "up to 20, which all runs with a known step have reached"
    none = compare_runs({"nothing": [], "loss": seen({"loss": 3.0})})
    assert describe_compared(none) == describe_compared([]) == "none, because no step is known"
