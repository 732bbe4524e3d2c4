"""What is said of a request before it waits for a machine that will never come, or for money that is not there."""

from __future__ import annotations

from typing import Any

import pytest

from training_monitor.vast.offers import MOST_PAGES, MOST_ROWS, MarketCheck, Offer, OfferQuery, judge_request
from training_monitor.vast.training_request import TrainingRequest, TrainingSpec

GOOD = {"num_gpus": 1, "reliability": 0.99, "country": "SE", "cuda": 12.4, "disk_gb": 500.0, "verified": True}


def offer(number: int, gpu: str, price: float, vram: float = 24.5) -> Offer:
    return Offer(number, gpu, price_per_hour=price, vram_gb=vram, rentable=True, **GOOD)  # type: ignore[arg-type]


MARKET = [offer(1, "RTX 4090", 0.411), offer(2, "RTX 3090", 0.205), offer(3, "A100 SXM4", 1.2, 80.0)]


def judge(
    query: dict[str, Any] | None = None,
    market: list[Offer] = MARKET,
    money: dict[str, float] | None = None,
    **asked: Any,
) -> MarketCheck:
    wishes = query or {}
    request = TrainingRequest("demo", offers=wishes, **{"command": "true", **asked})
    return judge_request(request, OfferQuery(**wishes), market, **money or {})


def test_what_can_be_done_is_told_with_what_it_and_another_cheapest_one_would_cost() -> None:
    found = judge({"preferred_gpus": ("4090",)}, budget=5.0)
    best, cheapest = found.notes
    assert found.obstacles == () and best == "best offer now: RTX 4090 for $0.411 per hour, at most $1.64 in all"
    assert cheapest == "cheapest suitable offer: RTX 3090 for $0.205 per hour, at most $0.82 in all"
    assert len(judge({"preferred_gpus": ("3090",)}).notes) == 1
    assert len(judge({"preferred_gpus": ("4090",), "only_preferred": True}).notes) == 1


def test_a_wish_that_nothing_meets_is_an_obstacle_with_what_to_change(subtests: pytest.Subtests) -> None:
    for query, said in [
        ({"preferred_gpus": ("4O90",)}, "no 4O90 is offered now; similar: A100 SXM4, RTX 3090, RTX 4090"),
        ({"preferred_gpus": ("RTX 4O90",)}, "no RTX 4O90 is offered now; similar: RTX 4090"),
        ({"max_price_per_hour": 0.2}, "no offer costs at most $0.2 per hour: allow $0.21 or more"),
        ({"min_vram_gb": 141.0}, "no GPU has 141 GB at that price: request 80 or less"),
        ({"min_reliability": 1.0}, "no offer meets the requirements; some would without the reliability"),
        (
            {"min_vram_gb": 141.0, "max_price_per_hour": 0.1},
            "no offer meets the requirements, even if any single one is dropped",
        ),
    ]:
        with subtests.test(query=query, said=said):
            [obstacle] = judge(query).obstacles
            assert obstacle.startswith(said)


def test_one_gpu_of_several_that_is_not_for_rent_is_told_only() -> None:
    found = judge({"preferred_gpus": ("H200", "A100")})
    assert found.obstacles == () and found.notes[0].startswith("no H200 is offered now; similar: ")
    many = [offer(number, "RTX 4090", 0.4) for number in range(1, MOST_ROWS * (MOST_PAGES - 1) + 1)]
    assert judge({"preferred_gpus": ("H200",)}, many).obstacles == (), "the dearest may not have been told"


def test_an_empty_market_may_be_a_refusal_and_is_no_obstacle() -> None:
    found = judge({"preferred_gpus": ("4090",), "num_gpus": 16}, [])
    assert found == MarketCheck(notes=("vast.ai offers no machine with 16 GPUs and 64 GB of disk",))


def test_a_budget_below_the_least_cost_is_an_obstacle() -> None:
    [obstacle] = judge(budget=0.01).obstacles
    assert obstacle.endswith("the cheapest offer costs $0.205 per hour, for at least 3m: allow $0.02 or more")
    assert judge(budget=0.02).obstacles == ()
    spec = TrainingSpec("demo", "sks", steps=4000)
    [obstacle] = judge(command=None, dataset="/data", spec=spec, budget=0.5).obstacles
    assert obstacle.endswith("for at least 2h49m: allow $0.58 or more")
    assert judge(command=None, dataset="/data", spec=spec, budget=0.58).obstacles == ()


def test_money_that_is_not_there_is_an_obstacle() -> None:
    assert judge(account="anna", money={"balance": 4.99}, budget=5.0, market=[MARKET[2]]).obstacles == ()
    assert judge(account="anna", money={"balance": 1.0}, budget=1.0).obstacles == ()
    [obstacle] = judge(account="anna", money={"balance": 1.0}, budget=5.0).obstacles
    assert obstacle == "anna has $1.00, but $1.64 must be reserved: make a deposit"
    [obstacle] = judge(money={"daily_budget": 1.0}).obstacles
    assert obstacle.startswith("$1.64 is more than the daily budget of $1.00")
    found = judge({"preferred_gpus": ("H2OO",)}, budget=0.001, account="anna", money={"balance": 0.0})
    assert len(found.obstacles) == 3, "every obstacle is told at once"


def test_steps_that_take_longer_than_they_may_are_told() -> None:
    spec = TrainingSpec("demo", "sks", steps=8000)
    found = judge(command=None, dataset="/data", spec=spec)
    assert found.obstacles == () and "needs 5h36m, but its hard limit is 4h00m" in found.notes[-1]
